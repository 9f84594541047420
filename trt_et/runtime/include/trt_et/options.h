// The options of the backend TRT_ET_BACKEND_NAME, with their types (docs/native.md has what each
// does). For all methods that are loaded from now on:
//
//   trt_et::Options options;
//   options.device(1).execution_contexts(1);
//   auto error = options.set();
//
// For one load:
//
//   executorch::runtime::LoadBackendOptionsMap by_backend;
//   auto error = options.add_to(by_backend);
//   error = module.load(by_backend);
#pragma once

#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

#include <cstdint>
#include <string>

#include "trt_et/runtime.h"

namespace trt_et {

class Options {
 public:
  using Error = executorch::runtime::Error;

  // The GPU for every engine, instead of the one in its program.
  Options& device(int index) { return add("device", index); }
  Options& cuda_graphs(bool on) { return add("cuda_graphs", on); }
  // 1 to 64.
  Options& execution_contexts(int count) { return add("execution_contexts", count); }
  // The index of the only one to use; -1: the smallest that takes the shapes.
  Options& optimization_profile(int index) { return add("optimization_profile", index); }
  Options& blocking_waits(bool on) { return add("blocking_waits", on); }
  // Runs each engine at load, with its typical shapes.
  Options& warm_up_at_load(bool on) { return add("warm_up_at_load", on); }
  Options& profile_layers(bool on) { return add("profile_layers", on); }
  // One scratch memory on each GPU for the engines of a method.
  Options& shared_device_memory(bool on) { return add("shared_device_memory", on); }
  // Bytes of GPU memory for weights; -1: as TensorRT sees fit.
  Options& weight_streaming_budget(int64_t bytes) {
    return add("weight_streaming_budget", std::to_string(bytes).c_str());
  }
  // 0 to 100: a percentage of the weights that an engine can stream.
  Options& weight_streaming_percentage(int percentage) {
    return add("weight_streaming_budget", (std::to_string(percentage) + "%").c_str());
  }
  // The absolute path of a folder, or "off"; at most 255 characters.
  Options& runtime_cache(const char* folder) { return add("runtime_cache", folder); }
  // Absolute paths of libraries, separated by ":"; at most 255 characters.
  Options& plugin_libraries(const char* paths) { return add("plugin_libraries", paths); }
  // For engines that were built for DLA.
  Options& dla_core(int index) { return add("dla_core", index); }
  // Whether TensorRT may run code on the host that an engine holds.
  Options& engine_host_code(bool allowed) { return add("engine_host_code", allowed); }

  // Whether engines of ONNX networks may be built. They are kept in a folder: its absolute path, or
  // "off"; at most 255 characters.
  Options& build(bool allowed) { return add("build", allowed); }
  Options& engine_folder(const char* folder) { return add("engine_folder", folder); }

  // For all loads from now on.
  Error set() {
    if (error_ != Error::Ok) return error_;
    return executorch::runtime::set_option(TRT_ET_BACKEND_NAME, options_.view());
  }

  // For one load. The map refers to this object.
  Error add_to(executorch::runtime::LoadBackendOptionsMap& by_backend) {
    if (error_ != Error::Ok) return error_;
    return by_backend.set_options(TRT_ET_BACKEND_NAME, options_.view());
  }

 private:
  template <size_t length, typename T>
  Options& add(const char (&name)[length], T value) {
    const Error error = options_.set_option(name, value);
    if (error_ == Error::Ok) error_ = error;
    return *this;
  }

  executorch::runtime::BackendOptions<24> options_;
  Error error_ = Error::Ok;
};

}  // namespace trt_et
