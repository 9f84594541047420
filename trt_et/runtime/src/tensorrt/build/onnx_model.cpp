#include "onnx_model.h"

#include <cstdint>

namespace trt_et::tensorrt {
namespace {

// Field numbers of onnx.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kTensorName = 8, kTensorExternalData = 13, kTensorLocation = 14;
constexpr uint64_t kEntryKey = 1, kEntryValue = 2;
constexpr uint64_t kExternal = 1;  // TensorProto.DataLocation

// One message in the wire format of protobuf: a field after another.
class Message {
 public:
  Message(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  // False at the end, and where the bytes are no message; bad() tells which.
  bool next() {
    uint64_t tag = 0;
    if (left_ == 0 || bad_ || !read_varint(&tag)) return false;
    field_ = tag >> 3;
    wire_ = static_cast<int>(tag & 7);
    value_ = 0;
    size_t length = 0;
    if (wire_ == 0) return read_varint(&value_);
    if (wire_ == 1) length = 8;
    if (wire_ == 5) length = 4;
    if (wire_ == 2) {
      uint64_t announced = 0;
      if (!read_varint(&announced)) return false;
      length = announced > left_ ? left_ + 1 : static_cast<size_t>(announced);
    }
    if (length > left_ || field_ == 0 || wire_ == 3 || wire_ == 4 || wire_ > 5) {
      return !(bad_ = true);
    }
    bytes_ = at_;
    length_ = length;
    at_ += length;
    left_ -= length;
    return true;
  }

  bool bad() const { return bad_; }
  bool is_bytes(uint64_t field) const { return field_ == field && wire_ == 2; }
  bool is_number(uint64_t field) const { return field_ == field && wire_ == 0; }
  uint64_t number() const { return value_; }
  Message message() const { return {bytes_, length_}; }
  std::string text() const { return {reinterpret_cast<const char*>(bytes_), length_}; }

 private:
  bool read_varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && left_ > 0; shift += 7) {
      const uint8_t byte = *at_++;
      --left_;
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return !(bad_ = true);
  }

  const uint8_t* at_;
  size_t left_;
  bool bad_ = false;
  uint64_t field_ = 0;
  int wire_ = 0;
  uint64_t value_ = 0;
  const uint8_t* bytes_ = nullptr;
  size_t length_ = 0;
};

// Of a StringStringEntryProto.
bool read_location(Message entry, std::string* location) {
  std::string key, value;
  while (entry.next()) {
    if (entry.is_bytes(kEntryKey)) key = entry.text();
    if (entry.is_bytes(kEntryValue)) value = entry.text();
  }
  if (key == "location") *location = value;
  return !entry.bad();
}

bool read_initializer(Message tensor, std::vector<ExternalInitializer>* found) {
  ExternalInitializer one;
  bool external = false, good = true;
  while (good && tensor.next()) {
    if (tensor.is_bytes(kTensorName)) one.name = tensor.text();
    if (tensor.is_number(kTensorLocation)) external = tensor.number() == kExternal;
    if (tensor.is_bytes(kTensorExternalData)) good = read_location(tensor.message(), &one.location);
  }
  if (external) found->push_back(std::move(one));
  return good && !tensor.bad();
}

}  // namespace

bool find_external_initializers(const void* model, size_t size,
                                std::vector<ExternalInitializer>* found) {
  Message message(static_cast<const uint8_t*>(model), size);
  bool has_graph = false;
  while (message.next()) {
    if (!message.is_bytes(kModelGraph)) continue;
    has_graph = true;
    Message graph = message.message();
    while (graph.next()) {
      if (graph.is_bytes(kGraphInitializer) && !read_initializer(graph.message(), found)) {
        return false;
      }
    }
    if (graph.bad()) return false;
  }
  return has_graph && !message.bad();
}

}  // namespace trt_et::tensorrt
