// The parts of a .pte file: which delegates it has, and its segments, which may be replaced.
//
// Behind the program's flatbuffer lie segments of bytes, at places that the flatbuffer names. A
// file with other segments has the same flatbuffer but for those numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace trt_et {

class ProgramFile {
 public:
  struct Delegate {
    std::string method;
    std::string backend;
    bool in_segment = false;  // else within the flatbuffer, and `bytes` says where
    size_t segment = 0;
    const uint8_t* bytes = nullptr;
    size_t size = 0;
  };

  // Puts bytes behind those before; they are a segment of the new file.
  using Append = std::function<Status(const void* bytes, size_t size)>;
  // Writes one segment of the new file.
  using WriteSegment = std::function<Status(size_t segment, const Append& append)>;

  // The bytes must outlive this object. What they say of places is checked.
  Status open(const void* bytes, size_t size);

  const std::vector<Delegate>& delegates() const { return delegates_; }
  // The segment of each named data.
  const std::map<std::string, size_t>& named_data() const { return named_data_; }
  const uint8_t* segment(size_t index) const { return base_ + segments_[index].offset; }
  size_t segment_size(size_t index) const { return segments_[index].size; }

  // Writes this program with other segments, whole or not at all.
  Status write(const std::string& path, const WriteSegment& write_segment) const;

 private:
  struct Segment {
    size_t offset = 0;  // from the first one's
    size_t size = 0;
    // Where the flatbuffer has these numbers; 0 where it leaves out a zero.
    size_t offset_field = 0;
    size_t size_field = 0;
  };

  Status read_segments(class Flatbuffer& buffer, size_t program);
  Status read_delegates(class Flatbuffer& buffer, size_t program);

  const uint8_t* bytes_ = nullptr;
  const uint8_t* base_ = nullptr;  // of the first segment
  bool tells_size_ = false;        // the header has the size of all segments
  std::vector<Segment> segments_;
  std::vector<Delegate> delegates_;
  std::map<std::string, size_t> named_data_;
};

}  // namespace trt_et
