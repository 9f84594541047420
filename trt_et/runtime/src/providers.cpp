// Which provider loads an engine, and the refusals where none can.
#include "cuda/cuda_api.h"
#include "engine.h"

namespace trt_et {
namespace {

// "tensorrt_rtx 1.5.0.114", or what is known of a foreign engine.
std::string builder_of(const Blob& blob) {
  const Metadata& metadata = blob.metadata;
  std::string name = metadata.builder.empty() ? "TensorRT" : metadata.builder.substr(0, 24);
  if (!metadata.library_version.empty()) name += " " + metadata.library_version.substr(0, 24);
  return name;
}

Status find_reference(const cuda::Api& api, const trt_et_engine_provider** provider) {
  if (!api.simulated()) {
    return {Error::NotSupported,
            "reference engines run on simulated GPUs only: set TRT_ET_CUDA=simulated:N, or export "
            "with builder=\"tensorrt_rtx\""};
  }
  *provider = &reference_provider();
  return {};
}

// The TensorRT libraries' providers will be found here by builder and library version.
Status find_tensorrt(const cuda::Api& api, const Blob& blob) {
  if (api.simulated()) {
    return fail(Error::NotSupported,
                "real %s engine cannot run on simulated GPUs; export with builder=\"reference\"",
                blob.metadata.builder.empty() ? "TensorRT" : blob.metadata.builder.c_str());
  }
  return fail(Error::NotSupported, "engine for %s: this build of trt-et has no TensorRT loader",
              builder_of(blob).c_str());
}

}  // namespace

Status find_provider(const Blob& blob, int device, const trt_et_engine_provider** provider) {
  cuda::Api* api = nullptr;
  int count = 0;
  const Status usable = cuda::usable_devices(&api, &count);
  if (!usable.ok()) {
    if (usable.error == Error::InvalidArgument) return usable;  // A bad TRT_ET_CUDA.
    if (blob.is_reference()) {
      return fail(Error::NotFound, "reference engine on cuda:%d needs TRT_ET_CUDA=simulated:N: %s",
                  device, usable.text.c_str());
    }
    return fail(Error::NotFound, "engine for %s on cuda:%d needs an NVIDIA driver: %s",
                builder_of(blob).c_str(), device, usable.text.c_str());
  }
  if (device >= count) {
    return fail(Error::NotFound, "engine is for cuda:%d but this machine has %d GPU(s)", device,
                count);
  }
  return blob.is_reference() ? find_reference(*api, provider) : find_tensorrt(*api, blob);
}

}  // namespace trt_et
