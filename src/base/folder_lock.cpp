#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utc.h"

namespace mantissa {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kRenewed = 10s;    // between renewals
constexpr auto kMissed = 60s;     // without a renewal: the lock counts as lost here, before others take it over
constexpr double kStale = 120;    // seconds without a renewal: the holder counts as dead
constexpr double kBeginning = 5;  // seconds that a holder may take between creating the file and naming itself
constexpr auto kSettled = 2s;     // after a takeover: another host's, begun in the same moment, shows itself
constexpr size_t kContent = 512;  // bytes; always as many, so that a renewal needs no room on a full disk
constexpr const char* kFormat = "mantissa run lock";

struct Holder {
  std::string host, boot, id;
  int64_t pid = 0;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "an unnamed host";
}

// Differs between hosts and between starts of one; "" where the system does not say.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// The text of an open lock file; more than it can hold is cut. False when it cannot be read (errno).
bool read_text_of(int fd, std::string& text) {
  text.assign(kContent + 1, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return true;
}

std::string text_of(int fd, const std::string& path) {
  std::string text;
  if (!read_text_of(fd, text)) fail(Exit::kStorage, "{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

// False for what no lock holds.
bool parse(const std::string& text, Holder& holder) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("format") || json["format"] != kFormat) return false;
  try {
    holder = {.host = json.at("host"), .boot = json.at("boot"), .id = json.at("id"), .pid = json.at("pid")};
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

double seconds_of(const timespec& t) { return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec); }

// Seconds since the open file was written to, both times by the clock of its file system.
double age_of(int fd, const std::string& path, const std::string& id) {
  const std::string probe = fmt::format("{}.clock-{}", path, id);
  struct stat then {
  }, now{};
  Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) fail(Exit::kStorage, "{}: cannot create: {}", probe, std::strerror(errno));
  const bool read = ::write(file.get(), "\n", 1) == 1 && ::fsync(file.get()) == 0 && ::fstat(file.get(), &now) == 0 &&
                    ::fstat(fd, &then) == 0;
  const int error = errno;
  ::unlink(probe.c_str());
  if (!read) fail(Exit::kStorage, "{}: cannot be written: {}", probe, std::strerror(error));
  return seconds_of(now.st_mtim) - seconds_of(then.st_mtim);
}

// Tries again for a while where another process holds the lock; of a file that was just made it lets go at once.
bool flock_within(int fd, Clock::duration patience) {
  const auto begin = Clock::now();
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR && (errno != EWOULDBLOCK || Clock::now() - begin > patience)) return false;
    if (errno == EWOULDBLOCK) std::this_thread::sleep_for(5ms);
  }
  return true;
}

std::string folder_of(const std::string& path) { return std::filesystem::path(path).parent_path().string(); }

[[noreturn]] void refuse(const std::string& path, const Holder& holder) {
  if (holder.id.empty()) fail(Exit::kUsage, "{}: another process begins to work in this folder", folder_of(path));
  fail(Exit::kUsage, "{}: process {} on {} works in this folder; wait for its end, or give another run.dir",
       folder_of(path), holder.pid, printable(holder.host));
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(join_path(folder, kName)) {
  std::random_device random;
  id_ = fmt::format("{:08x}{:08x}", random(), random());
  const auto begin = Clock::now();
  while (!acquire()) {
    if (Clock::now() - begin > 10s) refuse(path_, {});
    std::this_thread::sleep_for(20ms);
  }
  keeper_ = std::thread([this] { keep(); });
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  const Owner owner = this->owner();
  if (owner == Owner::kAnother) {
    struct stat info {};
    if (::lstat(path_.c_str(), &info) == 0)
      fmt::print(stderr, "warning: {}: cannot be removed and stays: it is not as this process wrote it\n", path_);
    return;
  }
  if (owner == Owner::kUnknown || ::unlink(path_.c_str()) != 0)
    fmt::print(stderr, "warning: {}: cannot be removed and stays: {}\n", path_, std::strerror(errno));
}

// False: another process is just making or removing the file; to be tried again.
bool FolderLock::acquire() {
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  file_ = Descriptor(::open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0644));
  const bool created = static_cast<bool>(file_);
  if (!created && errno != EEXIST) fail(Exit::kStorage, "{}: cannot create: {}", path_, std::strerror(errno));
  if (!created) file_ = Descriptor(::open(path_.c_str(), kFlags));
  if (!file_ && errno == ENOENT) return false;
  if (!file_) fail(Exit::kStorage, "{}: cannot be opened: {}", path_, std::strerror(errno));
  struct stat own {
  }, there{};
  if (::fstat(file_.get(), &own) != 0 || !S_ISREG(own.st_mode)) fail(Exit::kStorage, "{}: is not a plain file", path_);

  const std::string text = text_of(file_.get(), path_);
  Holder holder;
  if (!text.empty() && !parse(text, holder))
    fail(Exit::kUsage, "{}: is not the lock of a run; move it away, or give another run.dir", path_);
  bool here = true;  // flock speaks for every process of this host
  if (!flock_within(file_.get(), created ? 1s : 0s)) {
    if (errno == EWOULDBLOCK) {
      if (holder.id.empty()) return false;  // about to name itself
      refuse(path_, holder);
    }
    here = false;
    note_ = fmt::format(
        "{}: the file system has no flock ({}); the lock is renewed instead, and outlives a killed run "
        "by two minutes",
        path_, std::strerror(errno));
  }
  if (::stat(path_.c_str(), &there) != 0 || there.st_ino != own.st_ino || there.st_dev != own.st_dev) return false;
  bool taken = false;
  if (!created) {
    const bool same_host = holder.boot.empty() ? holder.host == host_name() : holder.boot == boot_id();
    if (text.empty() || !here || !same_host) {
      const double age = age_of(file_.get(), path_, id_);
      if (text.empty() && age < kBeginning) return false;
      if (!text.empty() && age < kStale) refuse(path_, holder);
      taken = true;
      if (!text.empty())
        note_ = fmt::format("{}: process {} on {} has not renewed it for {:.0f} s and counts as dead", path_,
                            holder.pid, printable(holder.host), age);
    }
  }
  try {
    renew();
  } catch (const Error&) {
    if (created) ::unlink(path_.c_str());
    throw;
  }
  if (taken) {
    std::this_thread::sleep_for(kSettled);
    if (owner() != Owner::kSelf) refuse(path_, {});
  }
  return true;
}

std::string FolderLock::content() const {
  const nlohmann::json json = {{"format", kFormat}, {"host", host_name()}, {"pid", ::getpid()},
                               {"boot", boot_id()}, {"id", id_},           {"time", utc_now()}};
  std::string text = json.dump();
  check(text.size() < kContent, "lock of {} bytes", text.size());
  text.resize(kContent - 1, ' ');
  return text + '\n';
}

void FolderLock::renew() {
  const std::string text = content();
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::pwrite(file_.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::kStorage, "{}: cannot be written: {}", path_, std::strerror(errno));
    if (n == 0) fail(Exit::kStorage, "{}: cannot be written: {} of {} bytes", path_, done, text.size());
    done += static_cast<size_t>(n);
  }
  if (::fsync(file_.get()) != 0) fail(Exit::kStorage, "{}: cannot be written: {}", path_, std::strerror(errno));
}

// Through its name: another host may have put its own in its place, or its own words into it.
FolderLock::Owner FolderLock::owner() const {
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return errno == ENOENT || errno == ELOOP ? Owner::kAnother : Owner::kUnknown;
  std::string text;
  if (!read_text_of(file.get(), text)) return Owner::kUnknown;
  Holder holder;
  return parse(text, holder) && holder.id == id_ ? Owner::kSelf : Owner::kAnother;
}

void FolderLock::keep() {
  auto renewed = Clock::now();
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kRenewed, [this] { return stop_; })) {
    lock.unlock();
    std::string trouble;
    if (owner() == Owner::kAnother) {
      trouble = "another process took it over or removed it";
    } else {
      try {
        renew();
        renewed = Clock::now();
      } catch (const Error& error) {
        if (Clock::now() - renewed > kMissed) trouble = fmt::format("it could not be renewed: {}", error.what());
      }
    }
    lock.lock();
    if (!trouble.empty()) {
      trouble_ = trouble;
      return;
    }
  }
}

void FolderLock::expect_held() const {
  const std::lock_guard lock(mutex_);
  if (!trouble_.empty()) fail(Exit::kStorage, "{}: the lock of this folder is lost: {}", path_, trouble_);
}

}  // namespace mantissa
