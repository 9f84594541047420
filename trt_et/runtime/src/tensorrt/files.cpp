#include "files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <random>
#include <thread>

#include "common/provider_status.h"

namespace trt_et::tensorrt {

namespace fs = std::filesystem;

namespace {

bool may_use(const char* folder) {
  struct stat status;
  return geteuid() != 0 || stat(folder, &status) != 0 || status.st_uid == 0;
}

// Whether another user owns the folder, or may write to it.
bool is_others(const fs::path& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0) return false;
  return status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

CacheFolder default_folder(const char* name) {
  const char* variable = "XDG_CACHE_HOME";
  const char* base = host().variable(variable);
  fs::path folder = base == nullptr ? "" : base;
  if (!folder.is_absolute()) {
    variable = "HOME";
    base = host().variable(variable);
    if (base == nullptr || *base != '/') {
      return {{}, base == nullptr ? "HOME is not set" : "HOME is no absolute path"};
    }
    folder = fs::path(base) / ".cache";
  }
  if (!may_use(base)) return {{}, std::string(variable) + " is another user's folder"};
  folder = folder / "trt-et" / name;
  if (is_others(folder)) return {{}, "other users may write to " + folder.string()};
  return {folder, ""};
}

bool make_folder(const fs::path& folder, mode_t mode) {
  std::error_code failed;
  if (fs::is_directory(folder, failed)) return true;
  if (!folder.has_relative_path() || !make_folder(folder.parent_path(), mode)) return false;
  return mkdir(folder.c_str(), mode) == 0 || errno == EEXIST;
}

}  // namespace

CacheFolder cache_folder(const std::string& option, const char* name) {
  if (option.empty()) return default_folder(name);
  return {option == "off" ? "" : option, "", /*is_named=*/true};
}

bool CacheFolder::make() const { return make_folder(path, is_named ? 0777 : 0700); }

namespace {

// While it lives, a write beyond the process's limit for files fails, and no signal ends the
// process.
class WithoutFileSizeSignal {
 public:
  WithoutFileSizeSignal() {
    (void)sigemptyset(&signal_);
    (void)sigaddset(&signal_, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  WithoutFileSizeSignal(const WithoutFileSizeSignal&) = delete;
  WithoutFileSizeSignal& operator=(const WithoutFileSizeSignal&) = delete;
  ~WithoutFileSizeSignal() {
    const timespec now{};
    if (sigismember(&before_, SIGXFSZ) == 0) (void)sigtimedwait(&signal_, nullptr, &now);
    (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
};

// Writes the parts one after another and closes the file; errno tells why not.
bool write_and_close(int file, Parts parts) {
  int problem = 0;
  {
    const WithoutFileSizeSignal guard;
    for (std::string_view part : parts) {
      while (problem == 0 && !part.empty()) {
        const ssize_t written = write(file, part.data(), part.size());
        if (written > 0) {
          part.remove_prefix(static_cast<size_t>(written));
        } else if (written == 0 || errno != EINTR) {
          problem = written == 0 ? EIO : errno;
        }
      }
    }
  }
  if (close(file) != 0 && problem == 0) problem = errno;
  errno = problem;
  return problem == 0;
}

// For reading; negative where there is none, or something else: the open of a FIFO would wait.
int open_regular(const std::string& path, struct stat* status) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return file;
  if (fstat(file, status) == 0 && S_ISREG(status->st_mode)) return file;
  (void)close(file);
  errno = S_ISDIR(status->st_mode) ? EISDIR : EINVAL;
  return -1;
}

// Closes the file. False, and errno tells why.
bool read_and_close(int file, size_t expected, std::string* content) {
  content->resize(expected);
  size_t size = 0;
  ssize_t got = 1;
  while (got > 0 || (got < 0 && errno == EINTR)) {
    if (size == content->size()) content->resize(size + (1 << 12));  // It may have grown.
    got = read(file, content->data() + size, content->size() - size);
    if (got > 0) size += static_cast<size_t>(got);
  }
  const int problem = errno;
  content->resize(size);
  (void)close(file);
  errno = problem;
  return got == 0;
}

// A new file that `prefix` and six characters name; negative: errno tells why not.
int create_unnamed(const std::string& prefix, mode_t mode, std::string* path) {
  constexpr char kCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::uniform_int_distribution<size_t> any(0, sizeof kCharacters - 2);
  for (int attempt = 0; attempt < 100; ++attempt) {
    *path = prefix;
    for (int i = 0; i < 6; ++i) *path += kCharacters[any(random)];
    const int file = open(path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

}  // namespace

bool read_file(const std::string& path, std::string* content) {
  struct stat status;
  const int file = open_regular(path, &status);
  return file >= 0 && read_and_close(file, static_cast<size_t>(status.st_size) + 1, content);
}

bool write_file(const std::string& path, Parts parts) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return file >= 0 && write_and_close(file, parts);
}

bool write_atomically(const std::string& path, const std::string& prefix, Parts parts,
                      mode_t mode) {
  std::string part;
  const int file = create_unnamed(prefix, mode, &part);
  if (file < 0) return false;
  if (write_and_close(file, parts) && std::rename(part.c_str(), path.c_str()) == 0) return true;
  const int problem = errno;
  (void)unlink(part.c_str());
  errno = problem;
  return false;
}

void remove_old_parts(const std::string& prefix) {
  constexpr std::chrono::hours kAbandoned{1};
  const fs::path begin = prefix;
  const std::string name = begin.filename();
  std::error_code gone;
  for (fs::directory_iterator at(begin.parent_path(), gone), end; !gone && at != end;
       at.increment(gone)) {
    const std::string found = at->path().filename();
    if (found.size() != name.size() + 6 || found.compare(0, name.size(), name) != 0) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(at->path(), ignored);
    if (ignored || fs::file_time_type::clock::now() - written < kAbandoned) continue;
    (void)fs::remove_all(at->path(), ignored);
  }
}

bool make_temporary_folder(const std::string& prefix, std::string* path) {
  std::string name = prefix + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return false;
  *path = name;
  return true;
}

bool sleep_until(std::chrono::steady_clock::time_point end, const GoOn& go_on) {
  constexpr std::chrono::milliseconds kStep{100};
  for (;;) {
    if (go_on != nullptr && !go_on()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return true;
    std::this_thread::sleep_until(go_on == nullptr ? end : std::min(end, now + kStep));
  }
}

namespace {

// Another user's file can be locked, too, where it can be read.
int open_lock(const std::string& path, mode_t mode) {
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
  if (file >= 0 || errno != EACCES) return file;
  file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) errno = EACCES;
  return file;
}

// 0, or why not.
int try_lock(int file) {
  int locked = 0;
  do {
    locked = flock(file, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  return locked == 0 ? 0 : errno;
}

bool is_named(int file, const std::string& path) {
  struct stat held, named;
  return fstat(file, &held) == 0 && stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

// Not flock()'s own wait: on a network's file system it may never end.
bool FileLock::take(const std::string& path, std::chrono::milliseconds patience, const GoOn& go_on,
                    mode_t mode) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLongestPause{2000};
  std::chrono::milliseconds pause{20};
  release();
  int file = -1;
  for (const auto end = Clock::now() + patience;;) {
    if (file < 0) file = open_lock(path, mode);
    if (file < 0) return false;
    int problem = try_lock(file);
    if (problem == 0 && is_named(file, path)) {
      path_ = path;
      file_ = file;
      return true;
    }
    // Whoever had it has removed it: what is open is no longer the file of that name.
    const bool replaced = problem == 0 || problem == ESTALE;
    const auto now = Clock::now();
    if (replaced && now < end) {
      (void)close(file);
      file = -1;
      continue;
    }
    if (problem == EWOULDBLOCK && now < end) {
      if (sleep_until(std::min(end, now + pause), go_on)) {
        pause = std::min(2 * pause, kLongestPause);
        continue;
      }
      problem = ECANCELED;
    } else if (replaced) {
      problem = EWOULDBLOCK;
    } else if (problem != EWOULDBLOCK) {
      (void)unlink(path.c_str());
      problem = ENOLCK;
    }
    (void)close(file);
    errno = problem;
    return false;
  }
}

void FileLock::release() {
  if (file_ < 0) return;
  (void)unlink(path_.c_str());
  (void)close(file_);
  file_ = -1;
}

bool FileInMemory::open(const std::string& path) {
  struct stat status;
  const int file = open_regular(path, &status);
  if (file < 0) return false;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  const auto size = static_cast<size_t>(status.st_size);
  // File systems without a disk have no major number.
  if (size == 0 || major(status.st_dev) == 0) {
    if (!read_and_close(file, size + 1, &read_)) return false;
    bytes_ = read_.data();
    size_ = read_.size();
    return true;
  }
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int problem = errno;
  (void)close(file);
  errno = problem;
  if (bytes == MAP_FAILED) return false;
  bytes_ = bytes;
  size_ = size;
  return true;
}

bool FileInMemory::is_at(const std::string& path) const {
  struct stat named;
  return stat(path.c_str(), &named) == 0 && named.st_dev == device_ && named.st_ino == inode_;
}

FileInMemory::~FileInMemory() {
  if (bytes_ != nullptr && bytes_ != read_.data()) (void)munmap(const_cast<void*>(bytes_), size_);
}

}  // namespace trt_et::tensorrt
