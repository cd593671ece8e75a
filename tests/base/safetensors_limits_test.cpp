// Large headers, legal and hostile: time and memory stay in proportion to the header (docs/checkpoints.md).
#include <cstring>
#include <functional>

#include "base/file.h"
#include "base/safetensors.h"
#include "tests/base/child_cost.h"
#include "tests/base/support.h"

namespace mantissa::safetensors {
namespace {

using testing::Cost;
using testing::TempFolder;

// `piece(i)` repeated with commas to about `bytes` bytes.
std::string repeat(size_t bytes, const std::function<std::string(size_t)>& piece) {
  std::string out;
  for (size_t i = 0; out.size() < bytes; ++i) out += (i ? "," : "") + piece(i);
  return out;
}

std::string tensors(size_t bytes) {
  return "{" +
         repeat(bytes,
                [](size_t i) {
                  const std::string at = std::to_string(4 * i), end = std::to_string(4 * i + 4);
                  return "\"layers." + std::to_string(i) +
                         R"(.q_proj.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[)" + at + "," + end + "]}";
                }) +
         "}";
}

struct Case {
  const char* what;
  std::function<std::string()> header;  // made one at a time
  int code;
};

// A second of processor time and 300 MB for 10 MB, ten times as much for 100 MB.
void expect_cheap(const std::vector<Case>& cases, double scale) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers change time and memory";
  const TempFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string path = folder / "x";
    {
      const std::string header = c.header();
      // A legal header has four colons and four bytes of data a tensor.
      const auto data = c.code == 0 ? std::count(header.begin(), header.end(), ':') : 0;
      const uint64_t length = header.size();
      AtomicFile file(path);
      file.write(std::as_bytes(std::span(&length, 1)));
      file.write(header);
      file.write(std::string(static_cast<size_t>(data), '\0'));
      file.commit();
    }
    const Cost cost = testing::cost_of([&] { Reader::open(path); });
    EXPECT_EQ(cost.code, c.code) << cost.message;
    EXPECT_LT(cost.cpu_seconds, 1.0 * scale);
    EXPECT_LT(cost.megabytes, 300 * scale);
    ::testing::Test::RecordProperty(c.what, fmt::format("{:.3f} s, {:.0f} MB", cost.cpu_seconds, cost.megabytes));
  }
}

std::vector<Case> cases(size_t bytes) {
  const auto object = [bytes](const std::function<std::string(size_t)>& piece) {
    return [bytes, piece] { return "{" + repeat(bytes, piece) + "}"; };
  };
  return {
      {"legal", [bytes] { return tensors(bytes); }, 0},
      {"lists", [bytes] { return "{\"a\":[" + repeat(bytes, [](size_t) { return "[]"; }) + "]}"; }, 3},
      {"nested", [bytes] { return "{\"a\":" + std::string(bytes / 2, '[') + std::string(bytes / 2, ']') + "}"; }, 3},
      {"dimensions", [bytes] { return "{\"a\":{\"shape\":[" + repeat(bytes, [](size_t) { return "1"; }) + "]}}"; }, 3},
      {"objects", object([](size_t i) { return '"' + std::to_string(i) + "\":{}"; }), 3},
      {"empty tensors behind a hole", object([](size_t i) {
         return '"' + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[)" + (i ? "0,0]}" : "1,1]}");
       }),
       3},
      {"metadata",
       [bytes] {
         return "{\"__metadata__\":{" + repeat(bytes, [](size_t i) { return '"' + std::to_string(i) + "\":\"\""; }) +
                "}";
       },
       3},
      {"one name", [bytes] { return "{\"" + std::string(bytes, 'n') + "\":1}"; }, 3},
  };
}

TEST(SafetensorsLimits, HeadersOfTenMegabytes) { expect_cheap(cases(9'900'000), 1); }

TEST(SlowSafetensorsLimits, HeadersOfAHundredMegabytes) { expect_cheap(cases(98'000'000), 10); }

TEST(SafetensorsLimits, AHeaderAboveTheLimitIsNotRead) {
  const TempFolder folder;
  const uint64_t length = 100'000'001;
  std::string image(8, '\0');
  std::memcpy(image.data(), &length, 8);
  write_atomic(folder / "x", image + "{" + std::string(length, ' '));
  const Cost cost = testing::cost_of([&] { Reader::open(folder / "x"); });
  EXPECT_EQ(cost.code, 3);
  EXPECT_NE(cost.message.find("header of 100000001 bytes"), std::string::npos) << cost.message;
  if (!testing::kSanitized) {
    EXPECT_LT(cost.megabytes, 100);
  }
}

}  // namespace
}  // namespace mantissa::safetensors
