#include "program_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "blob/bytes.h"

namespace trt_et {

// A flatbuffer, read by the numbers of its schema's fields. A place outside of it reads as 0.
class Flatbuffer {
 public:
  Flatbuffer(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}

  bool ok() const { return ok_; }
  size_t root() { return offset(0); }
  // Of a table's field; 0 where the table leaves it out.
  size_t field(size_t table, size_t number) {
    const size_t vtable = table - static_cast<size_t>(int64_t{read<int32_t>(table)});
    const size_t entry = 4 + 2 * number;
    if (table == 0 || entry + 2 > read<uint16_t>(vtable)) return 0;
    const size_t at = read<uint16_t>(vtable + entry);
    return at == 0 ? 0 : table + at;
  }
  // What a field refers to: a table, a vector or a text.
  size_t target(size_t table, size_t number) {
    const size_t at = field(table, number);
    return at == 0 ? 0 : offset(at);
  }
  template <typename T>
  T number(size_t table, size_t number) {
    const size_t at = field(table, number);
    return at == 0 ? T{0} : read<T>(at);
  }
  size_t length(size_t vector) {
    const size_t count = vector == 0 ? 0 : read<uint32_t>(vector);
    ok_ = ok_ && count <= size_;
    return ok_ ? count : 0;
  }
  // A table in a vector of tables.
  size_t element(size_t vector, size_t index) { return offset(vector + 4 + 4 * index); }
  const uint8_t* data(size_t vector) {
    const size_t count = length(vector);
    ok_ = ok_ && count <= size_ - std::min(size_, vector + 4);
    return bytes_ + (ok_ && vector != 0 ? vector + 4 : 0);
  }
  std::string text(size_t table, size_t number) {
    const size_t at = target(table, number);
    const auto* characters = reinterpret_cast<const char*>(data(at));
    return ok_ ? std::string(characters, length(at)) : std::string();
  }

 private:
  template <typename T>
  T read(size_t at) {
    ok_ = ok_ && at <= size_ && sizeof(T) <= size_ - at;
    if (!ok_) return T{0};
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(read_le<Unsigned>(bytes_ + at));
  }
  size_t offset(size_t at) {
    const size_t distance = read<uint32_t>(at);
    return distance == 0 ? 0 : at + distance;
  }

  const uint8_t* const bytes_;
  const size_t size_;
  bool ok_ = true;
};

namespace {

// The header in front of the flatbuffer's own bytes (executorch/schema/extended_header.h).
constexpr size_t kMagic = 8, kLength = 12, kProgramSize = 16, kSegmentBase = 24, kSegmentSize = 32,
                 kHeaderEnd = 40;
constexpr size_t kMaxSegmentAlignment = 4096;

// Numbers of fields (executorch/schema/program.fbs).
constexpr size_t kProgramPlans = 1, kProgramInline = 3, kProgramSegments = 4, kProgramNamed = 7;
constexpr size_t kPlanName = 0, kPlanDelegates = 7;
constexpr size_t kDelegateId = 0, kDelegateProcessed = 1;
constexpr size_t kReferenceLocation = 0, kReferenceIndex = 1;
constexpr size_t kSegmentOffsetField = 0, kSegmentSizeField = 1;
constexpr size_t kNamedKey = 0, kNamedSegment = 1;

Status damaged() { return {Error::InvalidProgram, "the bytes are no ExecuTorch program"}; }

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};

// What the segment's place was a multiple of.
size_t alignment_of(size_t offset) {
  size_t alignment = kMaxSegmentAlignment;
  while (offset % alignment != 0) alignment /= 2;
  return alignment;
}

Status append(std::FILE* file, const void* bytes, size_t size) {
  if (size == 0 || std::fwrite(bytes, 1, size, file) == size) return {};
  return fail(Error::AccessFailed, "writing %zu bytes fails: %s", size, std::strerror(errno));
}

}  // namespace

Status ProgramFile::open(const void* bytes, size_t size) {
  bytes_ = static_cast<const uint8_t*>(bytes);
  if (size < kHeaderEnd || std::memcmp(bytes_ + kMagic, "eh00", 4) != 0) {
    return fail(Error::InvalidProgram, "the bytes are no ExecuTorch program with segments");
  }
  const uint64_t program = read_le<uint64_t>(bytes_ + kProgramSize);
  const uint64_t base = read_le<uint64_t>(bytes_ + kSegmentBase);
  tells_size_ = read_le<uint32_t>(bytes_ + kLength) >= kHeaderEnd - kMagic;
  // Without segments the base is 0.
  if (program > size || base > size || (base != 0 && base < program)) return damaged();
  base_ = bytes_ + base;
  Flatbuffer buffer(bytes_, static_cast<size_t>(program));
  const size_t root = buffer.root();
  TRT_ET_TRY(read_segments(buffer, root));
  for (const Segment& segment : segments_) {
    const size_t all = size - static_cast<size_t>(base);
    if (segment.offset > all || segment.size > all - segment.offset) return damaged();
  }
  return read_delegates(buffer, root);
}

Status ProgramFile::read_segments(Flatbuffer& buffer, size_t program) {
  const size_t segments = buffer.target(program, kProgramSegments);
  for (size_t i = 0; i < buffer.length(segments); ++i) {
    const size_t table = buffer.element(segments, i);
    Segment segment;
    segment.offset = buffer.number<uint64_t>(table, kSegmentOffsetField);
    segment.size = buffer.number<uint64_t>(table, kSegmentSizeField);
    segment.offset_field = buffer.field(table, kSegmentOffsetField);
    segment.size_field = buffer.field(table, kSegmentSizeField);
    segments_.push_back(segment);
  }
  const size_t named = buffer.target(program, kProgramNamed);
  for (size_t i = 0; i < buffer.length(named); ++i) {
    const size_t table = buffer.element(named, i);
    const size_t segment = buffer.number<uint32_t>(table, kNamedSegment);
    if (segment >= segments_.size()) return damaged();
    named_data_[buffer.text(table, kNamedKey)] = segment;
  }
  return buffer.ok() ? Status{} : damaged();
}

Status ProgramFile::read_delegates(Flatbuffer& buffer, size_t program) {
  const size_t plans = buffer.target(program, kProgramPlans);
  const size_t inside = buffer.target(program, kProgramInline);
  for (size_t i = 0; i < buffer.length(plans); ++i) {
    const size_t plan = buffer.element(plans, i);
    const size_t delegates = buffer.target(plan, kPlanDelegates);
    for (size_t j = 0; j < buffer.length(delegates); ++j) {
      const size_t table = buffer.element(delegates, j);
      const size_t reference = buffer.target(table, kDelegateProcessed);
      Delegate found;
      found.method = buffer.text(plan, kPlanName);
      found.backend = buffer.text(table, kDelegateId);
      found.in_segment = buffer.number<uint8_t>(reference, kReferenceLocation) != 0;
      const size_t index = buffer.number<uint32_t>(reference, kReferenceIndex);
      if (index >= (found.in_segment ? segments_.size() : buffer.length(inside))) return damaged();
      if (found.in_segment) {
        found.segment = index;
        found.bytes = segment(index);
        found.size = segment_size(index);
      } else {
        const size_t data = buffer.target(buffer.element(inside, index), 0);
        found.bytes = buffer.data(data);
        found.size = buffer.length(data);
      }
      if (!buffer.ok()) return damaged();
      delegates_.push_back(std::move(found));
    }
  }
  return buffer.ok() ? Status{} : damaged();
}

Status ProgramFile::write(const std::string& path, const WriteSegment& write_segment) const {
  const std::string part = path + ".part";
  std::unique_ptr<std::FILE, Close> file(std::fopen(part.c_str(), "wb"));
  if (file == nullptr) {
    return fail(Error::AccessFailed, "%.120s: %s", part.c_str(), std::strerror(errno));
  }
  struct Remove {
    const std::string& path;
    ~Remove() { (void)std::remove(path.c_str()); }
  } remove{part};
  std::vector<uint8_t> front(bytes_, base_);
  TRT_ET_TRY(append(file.get(), front.data(), front.size()));
  const std::vector<uint8_t> zeros(kMaxSegmentAlignment);
  uint64_t end = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& old = segments_[i];
    const size_t alignment = old.offset == 0 ? 1 : alignment_of(old.offset);
    const size_t padding = (alignment - static_cast<size_t>(end % alignment)) % alignment;
    TRT_ET_TRY(append(file.get(), zeros.data(), padding));
    const uint64_t offset = end + padding;
    uint64_t size = 0;
    TRT_ET_TRY(write_segment(i, [&](const void* more, size_t bytes) {
      size += bytes;
      return append(file.get(), more, bytes);
    }));
    if ((old.offset_field == 0 && offset != 0) || (old.size_field == 0 && size != 0)) {
      return fail(Error::NotSupported, "the program's segments are not in order");
    }
    if (old.offset_field != 0) write_le(&front[old.offset_field], offset);
    if (old.size_field != 0) write_le(&front[old.size_field], size);
    end = offset + size;
  }
  if (tells_size_) write_le(&front[kSegmentSize], end);
  if (std::fseek(file.get(), 0, SEEK_SET) != 0) {
    return fail(Error::AccessFailed, "%.120s: %s", part.c_str(), std::strerror(errno));
  }
  TRT_ET_TRY(append(file.get(), front.data(), front.size()));
  if (std::fclose(file.release()) != 0 || std::rename(part.c_str(), path.c_str()) != 0) {
    return fail(Error::AccessFailed, "%.120s: %s", path.c_str(), std::strerror(errno));
  }
  return {};
}

}  // namespace trt_et
