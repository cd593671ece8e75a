#include "base/mapped_range.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace mantissa {

namespace {

// A node of a list that only grows, so that the handler walks it without a lock. Nodes of released ranges are used
// again.
struct GuardedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  // both 0: released
  std::atomic<bool> lost{false};
  uint64_t device = 0, inode = 0;
  GuardedRange* next = nullptr;
};

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<GuardedRange*>::is_always_lock_free);

std::atomic<GuardedRange*> g_first{nullptr};
uintptr_t g_page = 0;            // bytes of a page
struct sigaction g_before = {};  // what SIGBUS did

// mmap() is not on POSIX's list of functions for handlers; on Linux it is a plain system call.
void on_bus(int number, siginfo_t* info, void*) {
  const int error = errno;
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (GuardedRange* range = g_first.load(); range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin.load(), end = range->end.load();
    if (at < begin || at >= end) continue;
    const uintptr_t page = at / g_page * g_page, behind = (end + g_page - 1) / g_page * g_page;
    if (::mmap(reinterpret_cast<void*>(page), behind - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0) == MAP_FAILED)
      break;
    range->lost.store(true);
    errno = error;
    return;
  }
  ::sigaction(SIGBUS, &g_before, nullptr);
  ::raise(number);  // taken when the handler returns
}

void install() {
  g_page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  check(::sigaction(SIGBUS, &action, &g_before) == 0, "sigaction(SIGBUS) failed");
}

// Ranges by their begin, and nodes to use again. It outlives whoever unmaps at exit.
struct Ranges {
  std::mutex mutex;
  std::unordered_map<const void*, GuardedRange*> held;
  std::vector<GuardedRange*> released;
};

Ranges& ranges() {
  static auto* all = new Ranges();
  return *all;
}

}  // namespace

void guard_range(const void* data, size_t size, uint64_t device, uint64_t inode) {
  static std::once_flag installed;
  std::call_once(installed, install);
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  if (all.released.empty()) {
    auto* range = new GuardedRange();
    range->next = g_first.load();
    g_first.store(range);
    all.released.push_back(range);
  }
  GuardedRange* range = all.released.back();
  all.held.emplace(data, range);
  all.released.pop_back();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  range->device = device, range->inode = inode;
  range->lost.store(false);
  range->end.store(begin + size);
  range->begin.store(begin);
}

void release_range(const void* data) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  const auto at = all.held.find(data);
  check(at != all.held.end(), "no range is guarded here");
  at->second->begin.store(0);
  at->second->end.store(0);
  all.released.push_back(at->second);
  all.held.erase(at);
}

const std::atomic<bool>& lost_flag(const void* data) {
  const std::lock_guard lock(ranges().mutex);
  return ranges().held.at(data)->lost;
}

bool is_whole(const MappedFile& file) {
  if (file.bytes().empty()) return true;
  GuardedRange* range = nullptr;
  {
    const std::lock_guard lock(ranges().mutex);
    range = ranges().held.at(file.bytes().data());
  }
  if (range->lost.load()) return false;
  // The bytes behind the new end in its last page are zeros without a signal. A file that took the place of the mapped
  // one says nothing of it.
  struct stat info {};
  const bool there = ::stat(file.path().c_str(), &info) == 0;
  if (!there && errno != ENOENT && errno != ENOTDIR)
    fail(Exit::kInput, "{}: cannot be looked at: {}", file.path(), std::strerror(errno));
  const bool same = there && info.st_dev == range->device && info.st_ino == range->inode;
  if (!same || static_cast<uint64_t>(info.st_size) >= file.bytes().size()) return true;
  range->lost.store(true);  // growing again does not bring the bytes back
  return false;
}

void refuse_shrunk(const MappedFile& file, const std::string& place) {
  const size_t size = file.bytes().size();
  struct stat info {};
  const bool there = ::stat(file.path().c_str(), &info) == 0;
  if (there && static_cast<uint64_t>(info.st_size) < size)
    fail(Exit::kInput, "{}: {}: the file has shrunk to {} bytes, expected the {} that it had when it was opened",
         file.path(), place, info.st_size, size);
  fail(Exit::kInput, "{}: {}: cannot read it any more, expected the {} bytes that it had when it was opened",
       file.path(), place, size);
}

}  // namespace mantissa
