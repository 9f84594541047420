#include "files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <thread>

#include "common/provider_status.h"

namespace trt_et::tensorrt {

namespace fs = std::filesystem;

namespace {

bool may_use(const char* folder) {
  struct stat status;
  return geteuid() != 0 || stat(folder, &status) != 0 || status.st_uid == 0;
}

}  // namespace

fs::path cache_folder(const std::string& option, const char* name) {
  if (option == "off") return {};
  if (!option.empty()) return option;
  const char* cache = host().variable("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') {
    return may_use(cache) ? fs::path(cache) / "trt-et" / name : fs::path();
  }
  const char* home = host().variable("HOME");
  if (home == nullptr || *home != '/' || !may_use(home)) return {};
  return fs::path(home) / ".cache" / "trt-et" / name;
}

bool make_private(const fs::path& folder) {
  std::error_code failed;
  if (fs::is_directory(folder, failed)) return true;
  if (!folder.has_relative_path() || !make_private(folder.parent_path())) return false;
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

bool is_others(const fs::path& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0) return false;
  return status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

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
  errno = EINVAL;
  return -1;
}

}  // namespace

bool read_file(const std::string& path, std::string* content) {
  struct stat status;
  const int file = open_regular(path, &status);
  if (file < 0) return false;
  ssize_t got = 1;
  content->clear();
  while (got > 0 || (got < 0 && errno == EINTR)) {
    char buffer[1 << 16];
    got = read(file, buffer, sizeof buffer);
    if (got > 0) content->append(buffer, static_cast<size_t>(got));
  }
  const int problem = errno;
  (void)close(file);
  errno = problem;
  return got == 0;
}

bool write_file(const std::string& path, Parts parts) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return file >= 0 && write_and_close(file, parts);
}

bool write_atomically(const std::string& path, const std::string& prefix, Parts parts) {
  std::string part = prefix + "XXXXXX";
  const int file = mkostemp(part.data(), O_CLOEXEC);
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
    (void)fs::remove(at->path(), ignored);
  }
}

bool make_temporary_folder(const std::string& prefix, std::string* path) {
  std::string name = prefix + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return false;
  *path = name;
  return true;
}

// Not flock()'s own wait: on a network's file system it may never end.
bool FileLock::take(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause{20};
  release();
  for (const auto end = Clock::now() + patience;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return false;
    int locked = 0;
    do {
      locked = flock(file, LOCK_EX | LOCK_NB);
    } while (locked != 0 && errno == EINTR);
    struct stat held, named;
    // Whoever had it may have removed it: what is locked then is no longer the file of that name.
    const bool same = locked == 0 && fstat(file, &held) == 0 && stat(path.c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (same) {
      path_ = path;
      file_ = file;
      return true;
    }
    const int problem = locked == 0 ? EWOULDBLOCK : errno;
    (void)close(file);
    errno = problem;
    if (problem != EWOULDBLOCK || Clock::now() >= end) return false;
    if (locked != 0) std::this_thread::sleep_for(kPause);
  }
}

void FileLock::release() {
  if (file_ < 0) return;
  (void)unlink(path_.c_str());
  (void)close(file_);
  file_ = -1;
}

bool MappedFile::open(const std::string& path) {
  struct stat status;
  const int file = open_regular(path, &status);
  if (file < 0) return false;
  void* bytes = MAP_FAILED;
  if (status.st_size > 0) {
    bytes = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  (void)close(file);
  if (bytes == MAP_FAILED) return false;
  bytes_ = bytes;
  size_ = static_cast<size_t>(status.st_size);
  return true;
}

MappedFile::~MappedFile() {
  if (bytes_ != nullptr) (void)munmap(bytes_, size_);
}

}  // namespace trt_et::tensorrt
