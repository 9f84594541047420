#include "files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace trt_et::tensorrt {

namespace fs = std::filesystem;

fs::path cache_folder(const std::string& option, const char* name) {
  if (option == "off") return {};
  if (!option.empty()) return option;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "trt-et" / name;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return {};
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

// Writes the parts one after another and closes the file; errno tells why not.
bool write_and_close(int file, Parts parts) {
  int problem = 0;
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
  if (close(file) != 0 && problem == 0) problem = errno;
  errno = problem;
  return problem == 0;
}

}  // namespace

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

bool make_temporary_folder(const std::string& prefix, std::string* path) {
  std::string name = prefix + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return false;
  *path = name;
  return true;
}

bool FileLock::take(const std::string& path, bool wait) {
  release();
  constexpr int kTries = 1000;
  for (int i = 0; i < kTries; ++i) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return false;
    int locked = 0;
    do {
      locked = flock(file, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
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
    const int problem = errno;
    (void)close(file);
    errno = problem;
    if (locked != 0) return false;
  }
  return false;
}

void FileLock::release() {
  if (file_ < 0) return;
  (void)unlink(path_.c_str());
  (void)close(file_);
  file_ = -1;
}

bool MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status;
  void* bytes = MAP_FAILED;
  if (fstat(file, &status) == 0 && status.st_size > 0) {
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
