#include "train/run_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/units.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;

std::string text_of_bytes(uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// The folder, or the nearest one above it that is there.
std::string standing(const std::string& folder) {
  std::filesystem::path path = std::filesystem::absolute(folder);
  while (!exists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

// Of the checkpoints that are there; what cannot be opened counts as nothing.
uint64_t bytes_there(const CheckpointStore& store) {
  uint64_t bytes = 0;
  for (const int64_t step : store.steps()) try {
      bytes += Checkpoint::open(store.place(step)).bytes();
    } catch (const Error&) {
    }
  return bytes;
}

}  // namespace

RunCheckpoints::RunCheckpoints(const TrainConfig& config, std::string folder, const MemoryPlan& plan)
    : every_(parse_checkpoint_interval(config.train.checkpoint_every, "train.checkpoint_every")),
      keep_{.last = config.train.keep_last, .every = config.train.keep_every},
      keep_best_(config.train.keep_best),
      beside_(plan.copies),
      patience_(config.train.disk_patience),
      state_bytes_(plan.checkpoint_bytes),
      folder_(std::move(folder)),
      store_(join_path(folder_, CheckpointStore::kFolder)) {
  if (!on()) return;
  // An old one goes when the new one is durable. More than three are looked for when they are written.
  const auto most = static_cast<uint64_t>(std::min<int64_t>(keep_.last + 1, 3));
  const uint64_t needed = most * static_cast<uint64_t>(plan.checkpoint_bytes), free = free_bytes(standing(folder_));
  if (free >= needed) return;
  if (const uint64_t there = bytes_there(store_); free + there < needed)
    fail(Exit::kStorage,
         "{}: {} checkpoints take {}, {} are free; make room, give another run.dir, lower train.keep_last, or train "
         "without them with train.checkpoint_every: 0",
         store_.folder(), most, text_of_bytes(needed), text_of_bytes(free + there));
}

void RunCheckpoints::begin(const Progress* behind) {
  last_ = Clock::now();
  if (behind != nullptr) saved_step_ = durable_ = behind->step, saved_owes_ = behind->owes;
  if (!on()) return;
  make_dirs(store_.folder());
  sync_directory(folder_);
  store_.remove_leftovers();
  saver_ = std::make_unique<CheckpointSaver>(
      store_, SaverOptions{.keep = keep_, .beside = beside_, .retry_seconds = retry_seconds(patience_)});
  saver_->reserve(state_bytes_);
}

bool RunCheckpoints::take_file(const char* name) {
  const std::string path = join_path(folder_, name);
  if (::unlink(path.c_str()) == 0) return true;
  if (errno != ENOENT) fail(Exit::kStorage, "{}: is there and cannot be removed: {}", path, std::strerror(errno));
  return false;
}

bool RunCheckpoints::take_stop() { return take_file(kStop); }

bool RunCheckpoints::due(const Progress& progress, const Sink& tell) {
  const bool asked = take_file(kSaveNow);
  if (asked && !on())
    tell(Warning{fmt::format("{}: train.checkpoint_every is 0, nothing is saved", join_path(folder_, kSaveNow))});
  if (!on() || saved(progress)) return false;
  if (asked) return true;
  if (keep_best_ && progress.best_step == progress.step) return true;
  if (every_.steps > 0) return progress.step % every_.steps == 0;
  return std::chrono::duration<double>(Clock::now() - last_).count() >= every_.seconds;
}

// What the disk refused for good ends the run; the user is told what stands.
template <class Body>
void RunCheckpoints::in_disk_context(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != Exit::kStorage) throw;
    throw Error(Exit::kStorage,
                fmt::format("the checkpoint of step {} was not saved: {}; {}", saved_step_, error.what(),
                            durable_ < 0 ? std::string("there is none before it")
                                         : fmt::format("that of step {} stands, and the same command goes on from it "
                                                       "when there is room",
                                                       durable_)));
  }
}

void RunCheckpoints::save(const Progress& progress, Json run, const CheckpointSaver::Visit& visit) {
  in_disk_context([&] { saver_->wait(); });
  last_ = Clock::now();
  saved_step_ = progress.step, saved_owes_ = progress.owes;
  const auto best = keep_best_ && progress.best_step > 0 ? std::optional(progress.best_step) : std::nullopt;
  in_disk_context([&] { saver_->save(progress.step, std::move(run), visit, best); });
}

void RunCheckpoints::report(const Sink& tell) {
  if (!saver_) return;
  for (const SaveReport& r : saver_->finished()) {
    durable_ = r.step;
    tell(CheckpointSaved{r.step, r.bytes, r.copy_seconds, r.write_seconds});
  }
  for (const std::string& warning : saver_->warnings()) tell(Warning{warning});
  in_disk_context([&] { saver_->poll(); });
}

void RunCheckpoints::finish(const Sink& tell) {
  if (!saver_) return;
  std::exception_ptr failure;
  try {
    in_disk_context([&] { saver_->wait(); });
  } catch (...) {
    failure = std::current_exception();
  }
  report(tell);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace mantissa
