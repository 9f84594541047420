#include "weights.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "files.h"
#include "onnx_model.h"

namespace trt_et::tensorrt {
Status find_weights(const trt_et_engine_request& request, std::vector<WeightBytes>* found) {
  std::vector<ExternalInitializer> initializers;
  if (!find_external_initializers(request.bytes, request.size, &initializers)) {
    return fail(Error::InvalidProgram, "the network of %zu bytes is no ONNX model", request.size);
  }
  const trt_et_weight* const begin = request.weights;
  const trt_et_weight* const end = begin + request.weight_count;
  for (const ExternalInitializer& one : initializers) {
    const auto* weight = std::find_if(
        begin, end, [&](const trt_et_weight& known) { return one.location == known.name; });
    if (weight == end) {
      return fail(Error::InvalidProgram, "initializer '%.60s' is in '%.80s', which its blob lacks",
                  one.name.c_str(), one.location.c_str());
    }
    found->push_back({one.name, weight->name, weight->bytes, weight->size});
  }
  return {};
}

Status WeightFiles::write(const std::string& folder, const std::vector<WeightBytes>& weights) {
  if (folder.empty() || !make_temporary_folder(folder, &folder_)) {
    return fail(Error::AccessFailed,
                "this TensorRT reads weights from files only, and there is no folder for them "
                "(engine_folder): %.80s",
                folder.empty() ? "none is set" : std::strerror(errno));
  }
  for (const WeightBytes& weight : weights) {
    const std::string path = folder_ + "/" + weight.key;
    std::error_code unknown;
    if (std::filesystem::exists(path, unknown)) continue;  // Of two initializers.
    if (!write_file(path, weight.bytes, weight.size)) {
      return fail(Error::AccessFailed, "no room for a weight of %zu bytes in %.90s: %.60s",
                  weight.size, folder.c_str(), std::strerror(errno));
    }
  }
  return {};
}

WeightFiles::~WeightFiles() {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace trt_et::tensorrt
