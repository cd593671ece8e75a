# cmake -DOUTPUT=file.cpp "-DASSETS=a;b" -P embed_assets.cmake: the bytes of each file under its name, as
# mantissa::report::kAssets (src/report/assets.h).
set(arrays "")
set(entries "")
set(index 0)
foreach(asset ${ASSETS})
  file(READ ${asset} hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  get_filename_component(name ${asset} NAME)
  string(APPEND arrays "constexpr unsigned char kBytes${index}[] = {\n${bytes}0x00};\n")
  string(APPEND entries "    {\"${name}\", kBytes${index}, sizeof(kBytes${index}) - 1},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT}.new "// Written by cmake/embed_assets.cmake.\n#include \"report/assets.h\"\n\nnamespace mantissa::report {\n"
  "namespace {\n${arrays}}  // namespace\n\nconst Asset kAssets[] = {\n${entries}};\n"
  "const size_t kAssetCount = sizeof(kAssets) / sizeof(kAssets[0]);\n\n}  // namespace mantissa::report\n")
file(RENAME ${OUTPUT}.new ${OUTPUT})
