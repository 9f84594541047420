// Files that the providers keep from one process to the next.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace trt_et::tensorrt {

// The folder that a load option names, or else `name` in the user's cache folder; empty: nowhere.
// Root makes no folder in the home of another user, who could not write there any more.
std::filesystem::path cache_folder(const std::string& option, const char* name);

// Makes a folder whose content is run: it is its user's alone.
bool make_private(const std::filesystem::path& folder);

// Whether another user owns the folder, or may write to it.
bool is_others(const std::filesystem::path& folder);

// The content of a file. False, and errno tells why, also if it is no regular file: one that
// others have put there must not hold the process up.
bool read_file(const std::string& path, std::string* content);

// What a file holds. Both functions return false if it cannot be written; errno tells why. A limit
// of the process for the size of files is such a reason, and no signal.
using Parts = std::initializer_list<std::string_view>;
bool write_file(const std::string& path, Parts parts);
// A reader finds the old file or the new one, never a part of one. The name of the part is `prefix`
// and six characters that nobody can guess.
bool write_atomically(const std::string& path, const std::string& prefix, Parts parts);
// Parts of write_atomically() with this prefix that a process has left which was killed an hour ago
// or earlier.
void remove_old_parts(const std::string& prefix);
bool make_temporary_folder(const std::string& prefix, std::string* path);

// A file that one thread of all processes has locked; it goes with the lock.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { release(); }

  // False if another has it for longer than `patience`, or if there can be no such file; errno
  // tells.
  bool take(const std::string& path, std::chrono::milliseconds patience);
  void release();
  bool is_held() const { return file_ >= 0; }

 private:
  std::string path_;
  int file_ = -1;
};

// A file in memory, for reading.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  bool open(const std::string& path);
  const unsigned char* data() const { return static_cast<const unsigned char*>(bytes_); }
  size_t size() const { return size_; }

 private:
  void* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trt_et::tensorrt
