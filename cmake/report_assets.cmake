# What report.html carries inside: the style sheets and scripts of src/report/assets and Debian's dygraphs
# (libjs-dygraphs), written as bytes into one generated source. Without dygraphs the report keeps its tables.
find_path(MANTISSA_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs /usr/share/nodejs/dygraphs/dist
  DOC "folder of dygraph.min.js and dygraph.min.css")
set(assets
  ${CMAKE_SOURCE_DIR}/src/report/assets/report.css
  ${CMAKE_SOURCE_DIR}/src/report/assets/page.js
  ${CMAKE_SOURCE_DIR}/src/report/assets/charts.js
  ${CMAKE_SOURCE_DIR}/src/report/assets/quantization.js
  ${CMAKE_SOURCE_DIR}/src/report/assets/dygraphs_license.txt)
if(MANTISSA_DYGRAPHS AND EXISTS ${MANTISSA_DYGRAPHS}/dygraph.min.css)
  list(APPEND assets ${MANTISSA_DYGRAPHS}/dygraph.min.js ${MANTISSA_DYGRAPHS}/dygraph.min.css)
  message(STATUS "Report charts: dygraphs of ${MANTISSA_DYGRAPHS}")
else()
  message(WARNING "dygraphs not found (package libjs-dygraphs): report.html will have its tables and no curves")
endif()

set(generated ${CMAKE_BINARY_DIR}/report_assets.cpp)
add_custom_command(OUTPUT ${generated}
  COMMAND ${CMAKE_COMMAND} "-DOUTPUT=${generated}" "-DASSETS=${assets}" -P ${CMAKE_SOURCE_DIR}/cmake/embed_assets.cmake
  DEPENDS ${assets} ${CMAKE_SOURCE_DIR}/cmake/embed_assets.cmake
  COMMENT "Embedding the report's assets" VERBATIM)
target_sources(mantissa_report PRIVATE ${generated})
