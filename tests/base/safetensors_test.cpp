#include "base/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/base/support.h"

namespace mantissa::safetensors {
namespace {

using testing::error_of;
using testing::TempFolder;

std::string image(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, 'd');
}

Reader parse(const std::string& bytes) { return Reader::parse(std::as_bytes(std::span(bytes)), "m.safetensors"); }

TEST(Safetensors, RoundTrip) {
  const TempFolder folder;
  const std::string path = folder / "x.safetensors";
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> b = {7, 8, 9};
  const std::vector<uint8_t> packed = {0x12, 0x34};
  write(path, {{"b", "BF16", {3}, std::as_bytes(std::span(b))},
               {"z", "F32", {2, 3}, std::as_bytes(std::span(a))},
               {"c", "F32", {0, 5}, {}},
               {"q", "F4", {2, 2}, std::as_bytes(std::span(packed))},
               {"s", "F32", {}, std::as_bytes(std::span(a).first(1))}});
  const Reader reader = Reader::open(path);
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "pt"}}));
  ASSERT_EQ(reader.tensors().size(), 5u);
  const View& z = reader.at("z");
  EXPECT_EQ(z.dtype, "F32");
  EXPECT_EQ(z.shape, (std::vector<int64_t>{2, 3}));
  ASSERT_EQ(z.bytes.size(), 24u);
  EXPECT_EQ(std::memcmp(z.bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(reader.at("c").bytes.size(), 0u);
  EXPECT_EQ(reader.at("s").elements(), 1);
  EXPECT_EQ(reader.at("q").bytes[1], std::byte{0x34});
  EXPECT_EQ(reader.find("none"), nullptr);
  EXPECT_EQ(error_of(Exit::kInput, [&] { reader.at("zz"); }), path + ": no tensor \"zz\"; the nearest is \"z\"");

  const std::string bytes = read_text(path);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  // Larger elements first, then by name.
  EXPECT_TRUE(bytes.substr(8, header).starts_with(
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"));
}

TEST(Safetensors, ReadsTheGoldens) {
  for (const std::string model : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const Reader reader =
        Reader::open(std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + model + "/model.safetensors");
    EXPECT_GT(reader.tensors().size(), 10u) << model;
  }
}

TEST(Safetensors, WriterRefusesWrongBytes) {
  const TempFolder folder;
  const std::vector<float> a(6);
  const auto bytes = std::as_bytes(std::span(a));
  error_of(Exit::kInternal, [&] { write(folder / "x", {{"a", "F32", {7}, bytes}}); });
  error_of(Exit::kInternal, [&] { write(folder / "x", {{"a", "F33", {6}, bytes}}); });
  error_of(Exit::kInternal, [&] { write(folder / "x", {{"a", "F32", {6}, bytes}, {"a", "F32", {6}, bytes}}); });
  EXPECT_FALSE(exists(folder / "x"));
}

struct Case {
  const char* what;
  std::string bytes;
  std::string message;  // after "m.safetensors: "
};

TEST(Safetensors, RefusesEveryBrokenRule) {
  const auto one = [](const std::string& entry) { return image(R"({"t":)" + entry + "}", 8); };
  const std::string deep = std::string(70, '[') + std::string(70, ']');
  const Case cases[] = {
      {"empty", "", "has 0 bytes, a safetensors file has at least 8"},
      {"short", "\x01\x02\x03", "has 3 bytes, a safetensors file has at least 8"},
      {"header past the file", std::string("\x10\0\0\0\0\0\0\0{}", 10),
       "not safetensors, or cut short: header of 16 bytes, file of 10 (limit 100000000)"},
      {"no object", image("[1]", 0), "the header does not start with an object"},
      {"leading space", image(" {}", 0), "the header does not start with an object"},
      {"empty header", image("", 4), "the header does not start with an object"},
      {"second value", image("{}{}", 0), ""},
      {"half an object", image(R"({"t":{)", 0), ""},
      {"too deep", image(R"({"t":)" + deep + "}", 0), "tensor \"t\": is array, expected an object"},
      {"deep inside a shape", one(R"({"dtype":"U8","shape":)" + deep + R"(,"data_offsets":[0,8]})"),
       "tensor \"t\": a dimension is [...], expected a whole number >= 0"},
      {"key twice",
       image(
           R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           8),
       "key \"t\" stands twice in one object"},
      {"inner key twice", one(R"({"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]})"),
       "key \"dtype\" stands twice in one object"},
      {"no dtype", one(R"({"shape":[8],"data_offsets":[0,8]})"), "tensor \"t\": no \"dtype\""},
      {"no shape", one(R"({"dtype":"U8","data_offsets":[0,8]})"), "tensor \"t\": no \"shape\""},
      {"no offsets", one(R"({"dtype":"U8","shape":[8]})"), "tensor \"t\": no \"data_offsets\""},
      {"an extra key", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1})"),
       "tensor \"t\": has a key \"x\", expected dtype, shape and data_offsets"},
      {"entry is a list", one("[1]"), "tensor \"t\": is array, expected an object"},
      {"unknown dtype", one(R"({"dtype":"F33","shape":[8],"data_offsets":[0,8]})"),
       "tensor \"t\": unknown dtype \"F33\""},
      {"dtype is a number", one(R"({"dtype":3,"shape":[8],"data_offsets":[0,8]})"), "tensor \"t\": unknown dtype 3"},
      {"negative dimension", one(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"),
       "tensor \"t\": a dimension is -8, expected a whole number >= 0"},
      {"float dimension", one(R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})"),
       "tensor \"t\": a dimension is 8.0, expected a whole number >= 0"},
      {"huge dimension", one(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]})"),
       "tensor \"t\": dimension 9223372036854775808 is too large"},
      {"overflow", one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
       "tensor \"t\": shape [4294967296, 4294967296] overflows"},
      {"rank 9", one(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,8],"data_offsets":[0,8]})"),
       "tensor \"t\": has more than 8 dimensions"},
      {"part of a byte", one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,8]})"),
       "tensor \"t\": shape [3] at 4 bits is no whole byte"},
      {"three offsets", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8,9]})"),
       "tensor \"t\": data_offsets is not [begin, end]"},
      {"backwards", one(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})"),
       "tensor \"t\": data_offsets [8, 0] run backwards"},
      {"wrong size", one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
       "tensor \"t\": data_offsets [0, 8] hold 8 bytes, expected 12 (F32 [3])"},
      {"past the end", one(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"),
       "tensor \"t\": data_offsets [0, 9] pass the end of the data (8 bytes)"},
      {"hole at the start", one(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})"),
       "tensor \"t\": data begins at 4, expected 0: a hole before it"},
      {"overlap",
       image(
           R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           8),
       "tensor \"b\": data begins at 4, expected 5: overlaps another tensor"},
      {"hole",
       image(
           R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           8),
       "tensor \"b\": data begins at 4, expected 3: a hole before it"},
      {"rest", one(R"({"dtype":"U8","shape":[7],"data_offsets":[0,7]})"), "1 bytes follow the last tensor"},
      {"data without tensors", image("{}", 3), "3 bytes follow the last tensor"},
      {"metadata is a list", image(R"({"__metadata__":[]})", 0), "__metadata__ is array, expected an object"},
      {"metadata is nested", image(R"({"__metadata__":{"a":1}})", 0),
       "__metadata__ \"a\" is number, expected a string"},
      {"metadata twice", image(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "key \"__metadata__\" stands twice in one object"},
      {"metadata key twice", image(R"({"__metadata__":{"a":"","a":""}})", 0), "key \"a\" stands twice in one object"},
      {"shape is null", one(R"({"dtype":"U8","shape":null,"data_offsets":[0,8]})"), "tensor \"t\": shape is no list"},
      {"offsets are text", one(R"({"dtype":"U8","shape":[8],"data_offsets":["0",8]})"),
       "tensor \"t\": data_offsets is \"0\", expected a whole number >= 0"},
      {"offsets of 65 bits", one(R"({"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]})"), ""},
      {"not UTF-8", image("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0), ""},
      {"zip", std::string("PK\x03\x04") + std::string(30, '\0'), ""},
      {"pickle", std::string("\x80\x02}q") + std::string(30, '\0'), ""},
      {"gguf", "GGUF" + std::string(30, '\0'), ""},
      {"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n", ""},
      {"html", "<!DOCTYPE html><html>", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string message = error_of(Exit::kInput, [&] { parse(c.bytes); });
    EXPECT_TRUE(message.starts_with("m.safetensors: ")) << message;
    if (!c.message.empty()) {
      EXPECT_EQ(message, "m.safetensors: " + c.message);
    }
  }
}

TEST(Safetensors, RecognisedFilesNameAWayOut) {
  const auto says = [](const std::string& bytes) { return error_of(Exit::kInput, [&] { parse(bytes); }); };
  EXPECT_NE(says("PK\x03\x04 zip").find("safetensors.torch.save_file"), std::string::npos);
  EXPECT_NE(says("\x80\x04 pickle").find("safetensors.torch.save_file"), std::string::npos);
  EXPECT_NE(says("GGUF....").find("Hugging Face folder"), std::string::npos);
  EXPECT_NE(says("version https://git-lfs.github.com/spec/v1").find("git lfs pull"), std::string::npos);
  EXPECT_NE(says("\n<html><body>").find("a web page"), std::string::npos);
}

TEST(Safetensors, AcceptsWhatIsAllowed) {
  EXPECT_EQ(parse(image("{}   ", 0)).tensors().size(), 0u);
  EXPECT_EQ(parse(image(R"({"__metadata__":{"a":"b"}})", 0)).metadata().at("a"), "b");
  // Empty tensors share an offset with their neighbour; order in the header is free.
  const Reader reader = parse(image(
      R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      8));
  EXPECT_EQ(reader.tensors().size(), 3u);
}

// The eight bytes of a length may look like another format: pickle (80 01 to 80 05) or gzip (1f 8b).
TEST(Safetensors, LengthsThatResembleOtherFormats) {
  for (const size_t length : {0x180, 0x280, 0x380, 0x480, 0x580, 0x8b1f}) {
    SCOPED_TRACE(length);
    const std::string entry = R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})";
    EXPECT_EQ(parse(image(entry + std::string(length - entry.size(), ' '), 8)).tensors().size(), 1u);
  }
}

// Every single-byte change of a small file is either refused as bad input or still a consistent file.
TEST(Safetensors, SurvivesEveryByteChange) {
  const std::string good = image(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      8);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[i] = static_cast<char>(value);
      try {
        const Reader reader = parse(bad);
        size_t total = 0;
        for (const auto& [name, view] : reader.tensors()) total += view.bytes.size();
        EXPECT_EQ(total, 8u);
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), 3);
      }
    }
  }
}

// Pieces of the file cut out, doubled, overwritten and filled with what parsers trip over.
TEST(Safetensors, SurvivesMutations) {
  const std::string good =
      image(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
            8);
  int refused = 0;
  for (uint32_t seed = 0; seed < 10'000; ++seed) {
    const std::string bad = testing::mutated(good, seed);
    try {
      const Reader reader = parse(bad);
      size_t total = 0;
      for (const auto& [name, view] : reader.tensors()) total += view.bytes.size();
      EXPECT_LE(total, bad.size()) << seed;
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.code()), 3) << seed;
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST(Safetensors, WriterTakesPieces) {
  const TempFolder folder;
  const std::vector<float> a = {1, 2, 3};
  const std::vector<uint16_t> b = {7, 8};
  Writer writer(folder / "x", {{"b", "BF16", {2}}, {"a", "F32", {3}}});
  ASSERT_EQ(writer.tensors()[0].name, "a");
  const auto bytes = std::as_bytes(std::span(a));
  writer.write(bytes.first(5));
  writer.write(bytes.subspan(5));
  error_of(Exit::kInternal, [&] { writer.commit(); });
  EXPECT_FALSE(exists(folder / "x"));
  error_of(Exit::kInternal, [&] { writer.write(bytes); });
  writer.write(std::as_bytes(std::span(b)));
  writer.commit();
  const Reader reader = Reader::open(folder / "x");
  EXPECT_EQ(std::memcmp(reader.at("a").bytes.data(), a.data(), 12), 0);
  EXPECT_EQ(std::memcmp(reader.at("b").bytes.data(), b.data(), 4), 0);
}

}  // namespace
}  // namespace mantissa::safetensors
