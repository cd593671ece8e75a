#include "train/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/file.h"
#include "base/philox.h"
#include "tests/base/support.h"
#include "train/checkpoint/saver.h"
#include "train/checkpoint/store.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

// Some state of every dtype, in host memory.
struct State {
  struct Part {
    std::string name;
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Part> parts;

  State() {
    add("weights/embedding.weight", DType::kBF16, {48, 16});
    add("masters/embedding.weight", DType::kF32, {48, 16});
    add("m/layers.0.mlp.up.weight", DType::kE4M3, {16, 24});
    add("v/layers.0.mlp.up.weight", DType::kU8, {16, 24});
    add("m_scale/layers.0.mlp.up.weight", DType::kE8M0, {12});
    add("codes/layers.0", DType::kE2M1, {8, 6});
    add("scaling/head.ring", DType::kI32, {1});
    add("engine/updates", DType::kI64, {1});
  }
  void add(const char* name, DType dtype, Shape shape) {
    Part part{name, dtype, shape, std::vector<std::byte>(static_cast<size_t>(bytes_of(dtype, shape.count())))};
    for (size_t i = 0; i < part.bytes.size(); ++i)
      part.bytes[i] = static_cast<std::byte>((i * 131 + parts.size() * 17 + 3) & 0xff);
    parts.push_back(std::move(part));
  }
  void visit(const StateVisitor& f) {
    for (Part& part : parts) f({part.name, {part.bytes.data(), part.dtype, part.shape}, nullptr});
  }
  std::vector<SavedTensor> saved() const {
    std::vector<SavedTensor> out;
    for (const Part& part : parts) out.push_back({part.name, part.dtype, part.shape, part.bytes});
    return out;
  }
  void clear() {
    for (Part& part : parts) std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0});
  }
  bool operator==(const State& other) const {
    return std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(),
                      [](const Part& a, const Part& b) { return a.bytes == b.bytes; });
  }
};

const Json kRun = {{"progress", {{"tokens", 4096}, {"loss", 2.5}}}};

// "" where nothing is thrown.
std::string error_of(const std::function<void()>& body, Exit code = Exit::kInput) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

std::string read_whole(const std::string& folder) {
  return error_of([&] { Checkpoint::open(folder).verify(); });
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string bytes_at(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST(Checkpoint, ComesBackInEveryByte) {
  const TempFolder folder;
  const std::string place = folder / "step_7";
  const State before;
  write_checkpoint(place, 7, kRun, before.saved(), 1024);
  EXPECT_GT(files_of(place).size(), 3u) << "a file a kilobyte, and the manifest";

  const Checkpoint checkpoint = Checkpoint::open(place);
  EXPECT_EQ(checkpoint.step(), 7);
  EXPECT_EQ(checkpoint.run(), kRun);
  uint64_t bytes = 0;
  for (const std::string& name : files_of(place)) bytes += name == Manifest::kName ? 0 : file_size(place + "/" + name);
  EXPECT_EQ(checkpoint.bytes(), bytes);
  State after;
  after.clear();
  ASSERT_FALSE(after == before);
  checkpoint.restore([&](const StateVisitor& f) { after.visit(f); });
  EXPECT_TRUE(after == before);
}

TEST(Checkpoint, HoldsNoMoreThanItsState) {
  const TempFolder folder;
  State state;
  state.parts.clear();
  for (int i = 0; i < 40; ++i)
    state.add(fmt::format("masters/layers.{}.mlp.up.weight", i).c_str(), DType::kF32, {128, 256});
  write_checkpoint(folder / "step_1", 1, kRun, state.saved());
  uint64_t on_disk = 0;
  for (const std::string& name : files_of(folder / "step_1")) on_disk += file_size(folder / "step_1/" + name);
  EXPECT_LT(static_cast<double>(on_disk), 1.01 * 40 * 128 * 256 * 4);
}

// `flips` bits at most, spread over the file, are flipped in their turn.
void flip_bits(const std::string& place, const std::string& name, size_t flips) {
  const std::string path = place + "/" + name, whole = bytes_at(path);
  const size_t bits = whole.size() * 8, step = (bits / flips) | 1;
  for (size_t bit = 0; bit < bits; bit += step) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    put(path, damaged);
    const std::string error = read_whole(place);
    ASSERT_NE(error.find(name), std::string::npos) << "bit " << bit << " of " << name << ": " << error;
    uint64_t header = 0;
    std::memcpy(&header, whole.data(), 8);
    if (name != Manifest::kName && bit / 8 >= 8 + header) {
      ASSERT_NE(error.find("tensor "), std::string::npos) << "bit " << bit << " of " << name << ": " << error;
    }
  }
  put(path, whole);
  ASSERT_EQ(read_whole(place), "");
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  const TempFolder folder;
  const std::string place = folder / "step_7";
  write_checkpoint(place, 7, kRun, State().saved(), 2048);
  for (const std::string& name : files_of(place)) flip_bits(place, name, 150);
}

TEST(SlowCheckpoint, ManyFlippedBitsAreFound) {
  const TempFolder folder;
  const std::string place = folder / "step_7";
  write_checkpoint(place, 7, kRun, State().saved(), 2048);
  for (const std::string& name : files_of(place)) flip_bits(place, name, 20000);
}

TEST(Checkpoint, DamageIsNamed) {
  const TempFolder folder;
  const std::string place = folder / "step_7";
  const auto expect = [&](const std::string& words, const std::function<void()>& damage) {
    fs::remove_all(place);
    write_checkpoint(place, 7, kRun, State().saved(), 1024);
    damage();
    const std::string error = read_whole(place);
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  const std::string first = place + "/state-00001.safetensors", second = place + "/state-00002.safetensors";
  expect("state-00001.safetensors: is not there", [&] { fs::remove(first); });
  expect("bytes, expected", [&] { fs::resize_file(first, fs::file_size(first) - 1); });
  expect("bytes, expected", [&] { put(first, bytes_at(first) + "x"); });
  expect("manifest.json", [&] { fs::remove(place + "/manifest.json"); });
  expect("manifest.json", [&] { put(place + "/manifest.json", ""); });
  expect("changed since it was written", [&] {
    std::string text = bytes_at(place + "/manifest.json");
    text.replace(text.find("\"step\": 7"), 9, "\"step\": 8");
    put(place + "/manifest.json", text);
  });
  expect("state-0000", [&] {
    const std::string a = bytes_at(first), b = bytes_at(second);
    put(first, b), put(second, a);
  });
  expect("state-00001.safetensors", [&] {
    fs::remove(first);
    fs::create_symlink(second, first);
  });
}

// Two tensors of one size and dtype change places, header and all: only their checksums differ.
TEST(Checkpoint, SwappedTensorsAreFound) {
  const TempFolder folder;
  State a, b;
  for (std::byte& byte : b.parts[1].bytes) byte ^= std::byte{1};
  write_checkpoint(folder / "a", 7, kRun, a.saved());
  write_checkpoint(folder / "b", 7, kRun, b.saved());
  fs::copy_file(folder / "b/state-00001.safetensors", folder / "a/state-00001.safetensors",
                fs::copy_options::overwrite_existing);
  const std::string error = read_whole(folder / "a");
  EXPECT_NE(error.find("tensor masters/embedding.weight: changed"), std::string::npos) << error;
}

TEST(Checkpoint, AnotherStateIsRefusedByName) {
  const TempFolder folder;
  write_checkpoint(folder / "step_7", 7, kRun, State().saved());
  const Checkpoint checkpoint = Checkpoint::open(folder / "step_7");
  const auto refused = [&](State state) {
    return error_of([&] { checkpoint.restore([&](const StateVisitor& f) { state.visit(f); }); });
  };
  State less;
  less.parts.pop_back();
  EXPECT_NE(refused(less).find("tensor engine/updates: this run has no such state"), std::string::npos);
  State more;
  more.add("scaling/new", DType::kF32, {4});
  EXPECT_NE(refused(more).find("tensor scaling/new is not in the checkpoint"), std::string::npos);
  State other;
  other.parts[0].shape = {16, 48};
  EXPECT_NE(refused(other).find("tensor weights/embedding.weight: BF16 [48,16], this run has BF16 [16,48]"),
            std::string::npos)
      << refused(other);
}

TEST(Manifest, RefusesWhatNobodyWrote) {
  const Manifest sound{.step = 3,
                       .files = {{"state-00001.safetensors", 100, "aa"}},
                       .pieces = {{"a", "F32", {4}, 0, 4, 0, "bb"}},
                       .run = {}};
  EXPECT_EQ(parse_manifest(sound.text(), "m").pieces[0].tensor, "a");
  const auto refused = [&](const std::function<void(Manifest&)>& change) {
    Manifest m = sound;
    change(m);
    return error_of([&] { parse_manifest(m.text(), "m"); });
  };
  EXPECT_NE(refused([](Manifest& m) { m.files[0].name = "../x"; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.files[0].name = ".."; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces[0].file = 1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces[0].first = 1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces[0].count = 3; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces[0].dtype = "F7"; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces[0].shape = {INT64_MAX, 4}; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.pieces.push_back(m.pieces[0]); }), "");
  EXPECT_NE(error_of([] { parse_manifest("{}", "m"); }), "");
  EXPECT_NE(error_of([] { parse_manifest("[]", "m"); }), "");
  EXPECT_NE(error_of([] { parse_manifest(R"({"format": 2})", "m"); }).find("format 2"), std::string::npos);
}

CheckpointStore store_with(const TempFolder& folder, std::initializer_list<int64_t> steps) {
  CheckpointStore store(folder / "checkpoints");
  for (const int64_t step : steps) write_checkpoint(store.place(step), step, kRun, State().saved());
  return store;
}

TEST(CheckpointStore, TheNewestThatVerifies) {
  const TempFolder folder;
  const CheckpointStore store = store_with(folder, {9, 10, 100});
  fs::create_directory(folder / "checkpoints/step_0200");
  fs::create_directory(folder / "checkpoints/step_300.tmp-1");
  put(folder / "checkpoints/step_400", "");
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{9, 10, 100}));
  std::vector<std::string> reasons;
  const auto rejected = [&](const std::string& reason) { reasons.push_back(reason); };
  EXPECT_EQ(store.newest(rejected)->step(), 100);
  EXPECT_TRUE(reasons.empty());

  const std::string file = store.place(100) + "/state-00001.safetensors";
  std::string bytes = bytes_at(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(file, bytes);
  fs::remove(store.place(10) + "/manifest.json");
  EXPECT_EQ(store.newest(rejected)->step(), 9);
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_NE(reasons[0].find("step_100/state-00001.safetensors: tensor"), std::string::npos) << reasons[0];
  EXPECT_NE(reasons[1].find("step_10/manifest.json"), std::string::npos) << reasons[1];

  // One that was copied to another name is not that step.
  fs::copy(store.place(9), store.place(11), fs::copy_options::recursive);
  reasons.clear();
  EXPECT_EQ(store.newest(rejected)->step(), 9);
  EXPECT_NE(reasons.at(1).find("says step 9"), std::string::npos) << reasons[1];
  EXPECT_FALSE(CheckpointStore(folder / "none").newest(rejected));
}

TEST(CheckpointStore, KeepsByItsRules) {
  const TempFolder folder;
  const CheckpointStore store = store_with(folder, {10, 20, 30, 40, 50, 60});
  store.prune(50, {.last = 2, .every = 20}, 10);
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{10, 20, 40, 50})) << "60 is of a future that was left";
  store.prune(50, {.last = 0}, {});
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{50}));
}

TEST(CheckpointStore, RemovesNothingButItsOwn) {
  const TempFolder folder;
  const CheckpointStore store = store_with(folder, {10, 20});
  put(store.place(10) + "/notes.txt", "mine");
  const std::string error = error_of([&] { store.prune(20, {.last = 1}, {}); }, Exit::kStorage);
  EXPECT_NE(error.find("notes.txt: is no file of a checkpoint; it stays"), std::string::npos) << error;

  const std::string checkpoints = folder / "checkpoints";
  fs::create_directory(checkpoints + "/step_30.tmp-77");
  put(checkpoints + "/step_30.tmp-77/state-00001.safetensors.tmp-77", "half");
  fs::create_directory(checkpoints + "/step_30.tmp-mine");
  fs::remove_all(checkpoints + fmt::format("/step_10.tmp-{}-old", ::getpid()));
  store.remove_leftovers();
  EXPECT_EQ(files_of(checkpoints), (std::vector<std::string>{"step_20", "step_30.tmp-mine"}));
}

TEST(CheckpointSaver, KeepsTheStateOfItsStep) {
  const TempFolder folder;
  const CheckpointStore store(folder / "checkpoints");
  State state;
  const State before = state;
  {
    CheckpointSaver saver(store, {.keep = {.last = 1}});
    const auto visit = [&](const StateVisitor& f) { state.visit(f); };
    saver.save(1, kRun, visit);
    state.clear();
    saver.wait();
    ASSERT_EQ(saver.finished().size(), 1u);
    saver.save(2, kRun, visit);
  }
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{2})) << "a save that has begun is finished";
  write_checkpoint(store.place(1), 1, kRun, before.saved());
  Checkpoint::open(store.place(2)).restore([&](const StateVisitor& f) { state.visit(f); });
  State cleared;
  cleared.clear();
  EXPECT_TRUE(state == cleared);
}

TEST(CheckpointSaver, WaitsAddUpToThePatience) {
  EXPECT_EQ(retry_seconds(31), SaverOptions{}.retry_seconds);
  EXPECT_EQ(retry_seconds(9), (std::vector<double>{1, 2, 4, 2}));
  EXPECT_EQ(retry_seconds(0.5), std::vector<double>{0.5});
  EXPECT_TRUE(retry_seconds(0).empty());
}

TEST(CheckpointSaver, WithoutACopyItIsWrittenBeforeSaveReturns) {
  const TempFolder folder;
  const CheckpointStore store(folder / "checkpoints");
  State state;
  const State before = state;
  CheckpointSaver saver(store, {.beside = false, .retry_seconds = {0.01}});
  saver.save(1, kRun, [&](const StateVisitor& f) { state.visit(f); });
  ASSERT_EQ(saver.finished().size(), 1u);
  state.clear();
  Checkpoint::open(store.place(1)).restore([&](const StateVisitor& f) { state.visit(f); });
  EXPECT_TRUE(state == before);

  fs::rename(folder / "checkpoints", folder / "kept");
  put(folder / "checkpoints", "in the way");
  EXPECT_NE(error_of([&] { saver.save(2, kRun, [&](const StateVisitor& f) { state.visit(f); }); }, Exit::kStorage), "");
}

TEST(CheckpointSaver, TriesAgainThenFails) {
  const TempFolder folder;
  const CheckpointStore store(folder / "checkpoints");
  State state;
  const auto visit = [&](const StateVisitor& f) { state.visit(f); };
  put(folder / "checkpoints", "in the way");
  CheckpointSaver saver(store, {.retry_seconds = {0.01, 0.01, 0.5}});
  saver.save(1, kRun, visit);
  std::vector<std::string> said;
  while (said.size() < 3)
    for (std::string& text : saver.warnings()) said.push_back(std::move(text));
  EXPECT_NE(said[0].find("checkpoint of step 1"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("tried again in 0.01 s"), std::string::npos) << said[0];
  fs::remove(folder / "checkpoints");
  saver.wait();
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{1}));

  fs::rename(folder / "checkpoints", folder / "kept");
  put(folder / "checkpoints", "in the way");
  CheckpointSaver hopeless(store, {.retry_seconds = {0.01}});
  hopeless.save(2, kRun, visit);
  EXPECT_NE(error_of([&] { hopeless.wait(); }, Exit::kStorage), "");
  EXPECT_EQ(read_whole(folder / "kept/step_1"), "");

  ::testing::internal::CaptureStderr();
  {
    CheckpointSaver unheard(store, {.retry_seconds = {60}});
    unheard.save(3, kRun, visit);
  }
  const std::string last_words = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(last_words.find("the checkpoint of step 3 was not saved"), std::string::npos) << last_words;
}

}  // namespace
}  // namespace mantissa
