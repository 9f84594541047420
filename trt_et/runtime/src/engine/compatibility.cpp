#include "compatibility.h"

#include <algorithm>

#include "common/log.h"

namespace trt_et {
namespace {

constexpr int kAmpere = 8;

#if defined(__linux__) && defined(__x86_64__)
constexpr const char* kPlatform = "linux_x86_64";
#elif defined(__linux__) && defined(__aarch64__)
constexpr const char* kPlatform = "linux_aarch64";
#else
constexpr const char* kPlatform = "";
#endif

// What says nothing of this platform is left to TensorRT.
bool is_for_another_platform(const std::string& platform) {
  return !platform.empty() && platform != "unknown" && *kPlatform != '\0' && platform != kPlatform;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.substr(0, 60);
}

}  // namespace

const char* platform_name() { return kPlatform; }

Status check_compatibility(cuda::Api& api, const Blob& blob, int device) {
  const Metadata& metadata = blob.metadata;
  if (blob.is_network()) return {};  // Its engine is built for this GPU.
  const auto& targets = metadata.compute_capabilities;
  if (is_for_another_platform(metadata.target_platform)) {
    return fail(Error::DelegateInvalidCompatibility,
                "engine is for the platform %.40s, but this is %s: export the model for it",
                metadata.target_platform.c_str(), kPlatform);
  }
  cuda::DeviceInfo found;
  TRT_ET_TRY(api.device_info(device, &found));
  const std::string capability = found.capability();
  const bool listed = std::find(targets.begin(), targets.end(), capability) != targets.end();
  const bool rtx = metadata.builder == "tensorrt_rtx";
  // Simulated GPUs have the capability 0.0: a fake TensorRT's engine names it, or nothing.
  const bool ampere = found.major >= kAmpere || api.simulated();
  bool fits = listed || targets.empty();
  if (rtx) {
    fits = targets.empty() ? ampere : listed;
  } else if (metadata.hardware_compatible) {
    fits = listed || ampere;
  }
  if (!fits) {
    const std::string wanted = targets.empty() || (metadata.hardware_compatible && !rtx)
                                   ? "8.0 or later"
                                   : joined(targets);
    return fail(Error::DelegateInvalidCompatibility,
                "engine is for compute capability %s (%.40s), but cuda:%d is %s (%.40s)",
                wanted.c_str(), metadata.gpu_name.empty() ? "any GPU" : metadata.gpu_name.c_str(),
                device, capability.c_str(), found.name.c_str());
  }
  const bool same = metadata.gpu_name.empty() || metadata.gpu_name == found.name;
  if (!same && !metadata.hardware_compatible && !rtx) {
    log(LogLevel::debug,
        "TensorRTBackend: engine was built on a %.60s and runs on a %.60s of the same compute "
        "capability; it may be slower than one that was built here",
        metadata.gpu_name.c_str(), found.name.c_str());
  }
  return {};
}

}  // namespace trt_et
