// Engine blobs, as docs/blob.md specifies them; trt_et/engine_info.py reads them by the same rules.
//
// A blob comes out of a file and is not trusted: every offset is compared by subtraction, and the
// checksum is verified before the metadata is parsed or an engine library sees a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace trt_et {

using Dims = std::vector<int64_t>;

// One input or output of the engine. `dtype` is empty where a foreign blob does not say, and then
// the shape says nothing either. The three ranges are empty where the shape is static.
struct Binding {
  std::string name;
  std::string dtype;
  Dims shape;
  Dims min_shape;
  Dims opt_shape;
  Dims max_shape;
  std::optional<Dims> dim_order;
  // Of an output that no argument of the delegate has: the call whose result it is.
  std::string value_of;
  bool is_input = false;

  bool is_dynamic() const;
};

// An output that the engine writes into one of its inputs, in place.
struct Alias {
  std::string output;
  std::string input;
  std::string kind;
};

enum class DeviceIdState { present, missing, unreadable };

struct Metadata {
  std::vector<Binding> bindings;
  std::vector<Alias> aliases;
  bool hardware_compatible = false;
  DeviceIdState device_id_state = DeviceIdState::missing;
  int device_id = 0;
  std::string serialized_metadata;
  std::string target_platform;
  std::string builder;
  std::string library_version;
  std::vector<std::string> compute_capabilities;
  std::string gpu_name;
  std::string sha256;
  // Of the engine in a file beside the program; empty: the engine is in the blob.
  std::string engine_key;
  // Of an ONNX network: its JSON text, and the named data that its initializers refer to.
  std::string network;
  std::vector<std::string> weights;
};

// A parsed blob. `engine` points into the bytes that were parsed.
struct Blob {
  char magic[5] = "";
  Metadata metadata;
  const uint8_t* engine = nullptr;
  size_t engine_size = 0;
  size_t engine_offset = 0;
  bool has_checksum = false;

  // The engine is in a file of its own beside the program (.ptd).
  bool is_external() const { return engine_size == 0 && !metadata.engine_key.empty(); }
  bool is_reference() const { return std::string_view(magic) == "TRRF"; }
  // The engine's bytes are an ONNX model, to be built where it is loaded.
  bool is_network() const { return metadata.builder == "onnx"; }
};

// Parses and verifies a blob. Throws nothing; memory that runs out is a Status too.
Status parse_blob(const void* data, size_t size, Blob* blob) noexcept;

// The same of a blob in two parts: its engine, and what comes before.
Status parse_blob(const void* front, size_t front_size, const void* engine, size_t engine_size,
                  Blob* blob) noexcept;

// Whether an engine can take the place of another: its inputs and outputs are equal, but for
// names and what they are tuned for.
bool have_same_interface(const Metadata& a, const Metadata& b);

// The GPU that the engine is for. A blob of ours must say so. Torch-TensorRT's, which have no
// checksum, mean 0 when they say nothing, as its own runtime takes it.
Status device_of(const Blob& blob, int* device);

// Parses the JSON document of a blob. For parse_blob() and tests.
Status parse_metadata(const char* text, size_t size, Metadata* metadata);

}  // namespace trt_et
