// Files that the providers keep from one process to the next.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace trt_et::tensorrt {

// Where a provider keeps files.
struct CacheFolder {
  std::filesystem::path path;  // empty: nowhere
  std::string problem;         // why nowhere; empty if the user has said so
  // Its user has named it: who may read it and write to it is their choice (umask). What is in the
  // default folder is run, and is its user's alone.
  bool is_named = false;

  // Makes the folder if there is none; errno tells why not.
  bool make() const;
  mode_t file_mode() const { return is_named ? 0666 : 0600; }
};

// The folder that a load option names, or else `name` in the user's cache folder, unless other
// users may write to that. Root makes no folder in the home of another user, who could not write
// there any more.
CacheFolder cache_folder(const std::string& option, const char* name);

// The content of a file. False, and errno tells why, also if it is no regular file: one that
// others have put there must not hold the process up.
bool read_file(const std::string& path, std::string* content);

// What a file holds. Both functions return false if it cannot be written; errno tells why. A limit
// of the process for the size of files is such a reason, and no signal.
using Parts = std::initializer_list<std::string_view>;
bool write_file(const std::string& path, Parts parts);
// A reader finds the old file or the new one, never a part of one. The name of the part is `prefix`
// and six characters. `mode` is as for open().
bool write_atomically(const std::string& path, const std::string& prefix, Parts parts, mode_t mode);
bool make_temporary_folder(const std::string& prefix, std::string* path);
// Removes what the two functions above have made with this prefix and a process has left that was
// killed an hour ago or earlier.
void remove_old_parts(const std::string& prefix);

// Asked while something is waited for: false ends that. Empty: nobody is asked.
using GoOn = std::function<bool()>;

// Sleeps until then, or until `go_on` ends it, which returns false.
bool sleep_until(std::chrono::steady_clock::time_point end, const GoOn& go_on);

// A file that one thread of all processes has locked; it goes with the lock.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { release(); }

  // False if another has it for longer than `patience` (errno is EWOULDBLOCK), if `go_on` has ended
  // the wait (ECANCELED), if the file system has no locks (ENOLCK), or if there can be no such
  // file.
  bool take(const std::string& path, std::chrono::milliseconds patience, const GoOn& go_on = {},
            mode_t mode = 0600);
  void release();
  bool is_held() const { return file_ >= 0; }

 private:
  std::string path_;
  int file_ = -1;
};

// A file in memory, for reading: mapped if it is on a disk of this machine. Elsewhere, where
// another machine may remove it meanwhile, it is read.
class FileInMemory {
 public:
  FileInMemory() = default;
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  ~FileInMemory();

  bool open(const std::string& path);
  const unsigned char* data() const { return static_cast<const unsigned char*>(bytes_); }
  size_t size() const { return size_; }
  // Whether it is the file that now has this name.
  bool is_at(const std::string& path) const;

 private:
  std::string read_;
  const void* bytes_ = nullptr;
  size_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace trt_et::tensorrt
