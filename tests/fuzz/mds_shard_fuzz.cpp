// MDS shard images of seven kinds of columns, three samples.
#include <memory>

#include "data/mds/reader.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  static const std::vector<mds::Column> columns = {
      mds::make_column("a", "ndarray", -1, "input"), mds::make_column("b", "ndarray:int32", -1, "input"),
      mds::make_column("c", "ndarray:int16:2,2", 8, "input"), mds::make_column("g", "str", -1, "input")};
  const mds::Shard shard = mds::open_shard_image(input, "input", columns, 3);
  for (int64_t i = 0; i < 3; ++i) {
    for (const int column : {0, 1, 2}) shard.array(i, column);
    shard.text(i, 3);
  }
})
