// A preload that makes calls of chosen kinds fail, of those on paths under one folder: loader and system libraries do
// not count. docs/faults.md names the variables; drive.py sets them. No library but libc, no allocation: it runs
// inside every call of the program under test.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Kind {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kClose,
  kLeave,
  kRename,
  kFsync,
  kMmap,
  kTruncate,
  kMkdir,
  kRemove,
  kList,
  kStat,
  kLink,
  kLock,
  kKinds
};
constexpr const char* kNames[kKinds] = {"open", "create",   "read",  "write",  "close", "leave", "rename", "fsync",
                                        "mmap", "truncate", "mkdir", "remove", "list",  "stat",  "link",   "lock"};

enum class Mode { kErrno, kShort, kEnd, kKill, kBus };
struct Error {
  const char* name;
  Mode mode;
  int number;
};
constexpr Error kErrors[] = {{"EIO", Mode::kErrno, EIO},       {"ENOSPC", Mode::kErrno, ENOSPC},
                             {"EINTR", Mode::kErrno, EINTR},   {"EACCES", Mode::kErrno, EACCES},
                             {"EMFILE", Mode::kErrno, EMFILE}, {"ENOMEM", Mode::kErrno, ENOMEM},
                             {"EDQUOT", Mode::kErrno, EDQUOT}, {"EXDEV", Mode::kErrno, EXDEV},
                             {"EROFS", Mode::kErrno, EROFS},   {"ENOLCK", Mode::kErrno, ENOLCK},
                             {"SHORT", Mode::kShort, 0},       {"END", Mode::kEnd, 0},
                             {"KILL", Mode::kKill, 0},         {"BUS", Mode::kBus, 0}};

struct Plan {
  char root[PATH_MAX] = {};
  size_t root_size = 0;
  bool counted[kKinds] = {};  // share one count
  long first = 0, last = 0;   // of the calls that fail; 0: none
  Error error{};
  int log = -1;
};
Plan plan;
std::atomic<long> calls{0};

[[noreturn]] void refuse(const char* what, const char* value) {
  ::dprintf(2, "faults: %s=%s is not known\n", what, value);
  ::_exit(125);
}

__attribute__((constructor)) void read_plan() {
  const char* root = std::getenv("FAULTS_ROOT");
  if (root == nullptr) return;
  plan.root_size = std::strlen(root);
  if (root[0] != '/' || plan.root_size + 1 > sizeof plan.root) refuse("FAULTS_ROOT", root);
  std::memcpy(plan.root, root, plan.root_size + 1);
  if (const char* log = std::getenv("FAULTS_LOG")) {
    // Beyond what a program closes or redirects.
    const int low =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (low < 0) refuse("FAULTS_LOG", log);
    plan.log = static_cast<int>(::syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, 1000));
    ::syscall(SYS_close, low);
    if (plan.log < 0) refuse("FAULTS_LOG", log);
  }
  const char* kinds = std::getenv("FAULTS_CALLS");
  for (const char* at = kinds ? kinds : ""; *at != '\0';) {
    const size_t size = std::strcspn(at, ",");
    bool known = false;
    for (int k = 0; k < kKinds; ++k)
      if (std::strlen(kNames[k]) == size && std::strncmp(at, kNames[k], size) == 0) plan.counted[k] = known = true;
    if (!known) refuse("FAULTS_CALLS", kinds);
    at += size + (at[size] == ',');
  }
  if (const char* error = std::getenv("FAULTS_ERROR")) {
    for (const Error& e : kErrors)
      if (std::strcmp(e.name, error) == 0) plan.error = e;
    if (plan.error.name == nullptr) refuse("FAULTS_ERROR", error);
  }
  if (const char* nth = std::getenv("FAULTS_NTH")) plan.first = plan.last = std::atol(nth);
  if (std::getenv("FAULTS_STICKY") != nullptr) plan.last = LONG_MAX;
  if (plan.first > 0 && plan.error.name == nullptr) refuse("FAULTS_ERROR", "");
}

// Without "//", "." and "..", links as they are; false when it does not fit.
bool normalise(const char* path, char* out) {
  size_t size = 0;
  for (const char* at = path; *at != '\0';) {
    const size_t part = std::strcspn(at, "/");
    if (part == 2 && at[0] == '.' && at[1] == '.') {
      while (size > 0 && out[--size] != '/') {
      }
    } else if (part > 0 && !(part == 1 && at[0] == '.')) {
      if (size + part + 2 > PATH_MAX) return false;
      out[size++] = '/';
      std::memcpy(out + size, at, part);
      size += part;
    }
    at += part + (at[part] == '/');
  }
  out[size] = '\0';
  return true;
}

bool path_of_descriptor(int fd, char* out) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long n = ::syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
  if (n <= 0) return false;
  out[n] = '\0';
  return true;
}

bool path_at(int folder, const char* path, char* out) {
  char joined[2 * PATH_MAX];
  if (path == nullptr || std::strlen(path) >= PATH_MAX) return false;
  if (path[0] == '/') return normalise(path, out);
  if (folder == AT_FDCWD) {
    if (::syscall(SYS_getcwd, joined, PATH_MAX) <= 0) return false;
  } else if (!path_of_descriptor(folder, joined)) {
    return false;
  }
  const size_t size = std::strlen(joined);
  joined[size] = '/';
  std::memcpy(joined + size + 1, path, std::strlen(path) + 1);
  return normalise(joined, out);
}

// Counts the call and says whether it fails; errno is the plan's then.
bool fails(Kind kind, const char* path) {
  const bool under = std::strncmp(path, plan.root, plan.root_size) == 0 &&
                     (path[plan.root_size] == '/' || path[plan.root_size] == '\0');
  if (!under) return false;
  const long call = plan.counted[kind] ? ++calls : 0;
  const bool hit = call > 0 && call >= plan.first && call <= plan.last;
  if (plan.log >= 0) {
    char line[PATH_MAX + 64];
    const int size = std::snprintf(line, sizeof line, "%c%s %s\n", hit ? '!' : ' ', kNames[kind], path);
    ::syscall(SYS_write, plan.log, line, static_cast<size_t>(size));
  }
  if (!hit) return false;
  if (plan.error.mode == Mode::kKill && kind != kWrite) ::syscall(SYS_kill, ::getpid(), SIGKILL);
  errno = plan.error.number;
  return true;
}

bool path_fails(Kind kind, int folder, const char* path) {
  char full[PATH_MAX];
  const int kept = errno;
  if (plan.root_size == 0 || !path_at(folder, path, full)) {
    errno = kept;
    return false;
  }
  errno = kept;
  return fails(kind, full);
}

bool descriptor_fails(Kind kind, int fd) {
  char full[PATH_MAX];
  const int kept = errno;
  const bool known = plan.root_size > 0 && path_of_descriptor(fd, full);
  errno = kept;
  return known && fails(kind, full);
}

template <class F>
F next(const char* name, F) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

// Of n bytes how many a short call takes: one at least, so that there is progress.
size_t part_of(size_t n) { return n > 1 ? n / 2 : n; }

// Whether a file has bytes behind its offset; where it has none, a read that gives none is no fault.
bool has_more(int fd, off_t at) {
  struct stat info;
  const long place = at >= 0 ? at : ::syscall(SYS_lseek, fd, 0, SEEK_CUR);
  return ::syscall(SYS_fstat, fd, &info) == 0 && place >= 0 && place < info.st_size;
}

// What a failing transfer of `n` bytes does: `call(m)` moves the first m of them.
template <class Call>
ssize_t transfer(Kind kind, int fd, size_t n, off_t at, Call call) {
  if (kind == kRead && plan.error.mode == Mode::kEnd && !has_more(fd, at)) return call(n);
  if (!descriptor_fails(kind, fd)) return call(n);
  switch (plan.error.mode) {
    case Mode::kShort:
      return call(part_of(n));
    case Mode::kEnd:
      return 0;
    case Mode::kKill:  // in the middle of the write
      call(part_of(n));
      ::syscall(SYS_kill, ::getpid(), SIGKILL);
      [[fallthrough]];
    default:
      return -1;
  }
}

template <class Call>
ssize_t transfer_vector(Kind kind, int fd, const iovec* parts, int count, Call call) {
  if (!descriptor_fails(kind, fd)) return call(parts, count);
  if (plan.error.mode == Mode::kEnd) return 0;
  if (plan.error.mode == Mode::kErrno) return -1;
  iovec first = count > 0 ? parts[0] : iovec{};
  first.iov_len = part_of(first.iov_len);
  const ssize_t done = call(&first, 1);
  if (plan.error.mode == Mode::kKill) ::syscall(SYS_kill, ::getpid(), SIGKILL);
  return done;
}

Kind kind_of_open(int flags) { return (flags & O_ACCMODE) == O_RDONLY ? kOpen : kCreate; }

void* map(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  const auto real = [](void* a, size_t n, int p, int f, int d, off_t o) {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, a, n, p, f, d, o));
  };
  if (fd < 0 || (flags & MAP_ANONYMOUS) != 0 || !descriptor_fails(kMmap, fd))
    return real(address, size, protection, flags, fd, offset);
  if (plan.error.mode != Mode::kBus) return MAP_FAILED;
  // The last page becomes one of an empty file: whoever touches it gets SIGBUS, as when the file had shrunk.
  void* mapped = real(address, size, protection, flags, fd, offset);
  if (mapped == MAP_FAILED) return mapped;
  const int empty = static_cast<int>(::syscall(SYS_memfd_create, "faults", 0));
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), last = (size - 1) / page * page;
  real(static_cast<char*>(mapped) + last, page, protection, MAP_PRIVATE | MAP_FIXED, empty, 0);
  ::syscall(SYS_close, empty);
  return mapped;
}

}  // namespace

extern "C" {

#define OPEN(name)                                                  \
  int name(const char* path, int flags, ...) {                      \
    va_list rest;                                                   \
    va_start(rest, flags);                                          \
    const auto mode = va_arg(rest, mode_t);                         \
    va_end(rest);                                                   \
    if (path_fails(kind_of_open(flags), AT_FDCWD, path)) return -1; \
    return next(#name, &name)(path, flags, mode);                   \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                              \
  int name(int folder, const char* path, int flags, ...) {        \
    va_list rest;                                                 \
    va_start(rest, flags);                                        \
    const auto mode = va_arg(rest, mode_t);                       \
    va_end(rest);                                                 \
    if (path_fails(kind_of_open(flags), folder, path)) return -1; \
    return next(#name, &name)(folder, path, flags, mode);         \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                   \
  FILE* name(const char* path, const char* mode) {                                    \
    if (path_fails(mode[0] == 'r' ? kOpen : kCreate, AT_FDCWD, path)) return nullptr; \
    return next(#name, &name)(path, mode);                                            \
  }
FOPEN(fopen)
FOPEN(fopen64)

#define MKOSTEMP(name)                                  \
  int name(char* path, int flags) {                     \
    if (path_fails(kCreate, AT_FDCWD, path)) return -1; \
    return next(#name, &name)(path, flags);             \
  }
MKOSTEMP(mkostemp)
MKOSTEMP(mkostemp64)

ssize_t read(int fd, void* to, size_t n) {
  return transfer(kRead, fd, n, -1, [&](size_t m) { return ::syscall(SYS_read, fd, to, m); });
}
#define PREAD(name)                                                                                     \
  ssize_t name(int fd, void* to, size_t n, off_t at) {                                                  \
    return transfer(kRead, fd, n, at, [&](size_t m) { return ::syscall(SYS_pread64, fd, to, m, at); }); \
  }
PREAD(pread)
PREAD(pread64)
ssize_t readv(int fd, const iovec* parts, int count) {
  return transfer_vector(kRead, fd, parts, count,
                         [&](const iovec* p, int n) { return ::syscall(SYS_readv, fd, p, n); });
}
ssize_t write(int fd, const void* from, size_t n) {
  return transfer(kWrite, fd, n, -1, [&](size_t m) { return ::syscall(SYS_write, fd, from, m); });
}
#define PWRITE(name)                                                                                        \
  ssize_t name(int fd, const void* from, size_t n, off_t at) {                                              \
    return transfer(kWrite, fd, n, at, [&](size_t m) { return ::syscall(SYS_pwrite64, fd, from, m, at); }); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int fd, const iovec* parts, int count) {
  return transfer_vector(kWrite, fd, parts, count,
                         [&](const iovec* p, int n) { return ::syscall(SYS_writev, fd, p, n); });
}

// As on Linux: the descriptor is gone although the call fails.
int close(int fd) {
  const long flags = ::syscall(SYS_fcntl, fd, F_GETFL);
  const bool failed = descriptor_fails(flags >= 0 && (flags & O_ACCMODE) == O_RDONLY ? kLeave : kClose, fd);
  const int error = errno;
  const int closed = static_cast<int>(::syscall(SYS_close, fd));
  if (failed) errno = error;
  return failed ? -1 : closed;
}

int fsync(int fd) { return descriptor_fails(kFsync, fd) ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { return descriptor_fails(kFsync, fd) ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd)); }

void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  return map(address, size, protection, flags, fd, offset);
}
void* mmap64(void* address, size_t size, int protection, int flags, int fd, off_t offset) {
  return map(address, size, protection, flags, fd, offset);
}

#define OF_DESCRIPTOR(kind, name, parameters, ...) \
  int name parameters {                            \
    if (descriptor_fails(kind, fd)) return -1;     \
    return next(#name, &name)(__VA_ARGS__);        \
  }
OF_DESCRIPTOR(kTruncate, ftruncate, (int fd, off_t size), fd, size)
OF_DESCRIPTOR(kTruncate, ftruncate64, (int fd, off_t size), fd, size)
OF_DESCRIPTOR(kTruncate, fallocate, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
OF_DESCRIPTOR(kTruncate, fallocate64, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
OF_DESCRIPTOR(kLock, flock, (int fd, int operation), fd, operation)
OF_DESCRIPTOR(kStat, fstat, (int fd, struct stat* to), fd, to)
OF_DESCRIPTOR(kStat, fstat64, (int fd, struct stat64* to), fd, to)
OF_DESCRIPTOR(kStat, fstatvfs, (int fd, struct statvfs* to), fd, to)
OF_DESCRIPTOR(kStat, fstatvfs64, (int fd, struct statvfs64* to), fd, to)

#define OF_PATH(kind, name, parameters, ...)         \
  int name parameters {                              \
    if (path_fails(kind, AT_FDCWD, path)) return -1; \
    return next(#name, &name)(__VA_ARGS__);          \
  }
OF_PATH(kRename, rename, (const char* path, const char* to), path, to)
OF_PATH(kTruncate, truncate, (const char* path, off_t size), path, size)
OF_PATH(kTruncate, truncate64, (const char* path, off_t size), path, size)
OF_PATH(kMkdir, mkdir, (const char* path, mode_t mode), path, mode)
OF_PATH(kRemove, unlink, (const char* path), path)
OF_PATH(kRemove, rmdir, (const char* path), path)
OF_PATH(kRemove, remove, (const char* path), path)
OF_PATH(kStat, stat, (const char* path, struct stat* to), path, to)
OF_PATH(kStat, stat64, (const char* path, struct stat64* to), path, to)
OF_PATH(kStat, lstat, (const char* path, struct stat* to), path, to)
OF_PATH(kStat, lstat64, (const char* path, struct stat64* to), path, to)
OF_PATH(kStat, access, (const char* path, int mode), path, mode)
OF_PATH(kStat, statvfs, (const char* path, struct statvfs* to), path, to)
OF_PATH(kStat, statvfs64, (const char* path, struct statvfs64* to), path, to)
OF_PATH(kLink, symlink, (const char* to, const char* path), to, path)
OF_PATH(kLink, link, (const char* from, const char* path), from, path)

#define AT_PATH(kind, name, parameters, ...)       \
  int name parameters {                            \
    if (path_fails(kind, folder, path)) return -1; \
    return next(#name, &name)(__VA_ARGS__);        \
  }
AT_PATH(kRename, renameat, (int folder, const char* path, int to_folder, const char* to), folder, path, to_folder, to)
AT_PATH(kRename, renameat2, (int folder, const char* path, int to_folder, const char* to, unsigned flags), folder, path,
        to_folder, to, flags)
AT_PATH(kMkdir, mkdirat, (int folder, const char* path, mode_t mode), folder, path, mode)
AT_PATH(kRemove, unlinkat, (int folder, const char* path, int flags), folder, path, flags)
AT_PATH(kStat, fstatat, (int folder, const char* path, struct stat* to, int flags), folder, path, to, flags)
AT_PATH(kStat, fstatat64, (int folder, const char* path, struct stat64* to, int flags), folder, path, to, flags)
AT_PATH(kStat, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* to), folder, path, flags,
        mask, to)
AT_PATH(kStat, faccessat, (int folder, const char* path, int mode, int flags), folder, path, mode, flags)
AT_PATH(kLink, symlinkat, (const char* to, int folder, const char* path), to, folder, path)

// What a program compiled with _FORTIFY_SOURCE calls.
int __open_2(const char* path, int flags) { return open(path, flags, 0); }
int __open64_2(const char* path, int flags) { return open64(path, flags, 0); }
int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags, 0); }
int __openat64_2(int folder, const char* path, int flags) { return openat64(folder, path, flags, 0); }
ssize_t __read_chk(int fd, void* to, size_t n, size_t) { return read(fd, to, n); }
ssize_t __pread_chk(int fd, void* to, size_t n, off_t at, size_t) { return pread(fd, to, n, at); }
ssize_t __pread64_chk(int fd, void* to, size_t n, off_t at, size_t) { return pread(fd, to, n, at); }

ssize_t readlink(const char* path, char* to, size_t size) {
  if (path_fails(kStat, AT_FDCWD, path)) return -1;
  return next("readlink", &readlink)(path, to, size);
}
char* realpath(const char* path, char* to) {
  if (path_fails(kStat, AT_FDCWD, path)) return nullptr;
  return next("realpath", &realpath)(path, to);
}

DIR* opendir(const char* path) {
  if (path_fails(kList, AT_FDCWD, path)) return nullptr;
  return next("opendir", &opendir)(path);
}
DIR* fdopendir(int fd) {
  if (descriptor_fails(kList, fd)) return nullptr;
  return next("fdopendir", &fdopendir)(fd);
}
dirent* readdir(DIR* folder) {
  if (descriptor_fails(kList, ::dirfd(folder))) return nullptr;
  return next("readdir", &readdir)(folder);
}
dirent64* readdir64(DIR* folder) {
  if (descriptor_fails(kList, ::dirfd(folder))) return nullptr;
  return next("readdir64", &readdir64)(folder);
}

}  // extern "C"
