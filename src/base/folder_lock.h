// One process at a time works in a folder: a lock file, run.lock, that stands there while it does.
//
// On one host flock(2) decides, and a killed process holds nothing. Where flock does not reach, on other hosts of a
// network file system or where the file system has none, the file's exclusive creation decides: it names host and
// process, and its holder renews it every ten seconds. One that was not renewed for two minutes, by the file
// system's own clock, is taken over.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/descriptor.h"

namespace mantissa {

class FolderLock {
 public:
  static constexpr const char* kName = "run.lock";

  // Exit::kUsage when another process works in `folder`, with its host and number; also when a run.lock stands there
  // that is none. Exit::kStorage when it cannot be written.
  explicit FolderLock(const std::string& folder);
  // Removes run.lock.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Throws Exit::kStorage when the lock is no longer this process': another host took it over, or it could not be
  // renewed for a minute. To be asked before what must not be written twice.
  void expect_held() const;
  // What is to be said of how it was taken, "" where nothing is.
  const std::string& note() const { return note_; }

 private:
  enum class Owner { kSelf, kAnother, kUnknown };  // kUnknown: the file cannot be read (errno)
  bool acquire();
  Owner owner() const;
  std::string content() const;
  void renew();
  void keep();

  std::string path_, id_, note_;
  Descriptor file_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::string trouble_;
  std::thread keeper_;
};

}  // namespace mantissa
