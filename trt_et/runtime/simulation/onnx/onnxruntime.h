// onnxruntime, opened at run time by our own description of its C interface (functions.def).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/status.h"

namespace trt_et::onnx {

struct OrtAllocator;
struct OrtEnv;
struct OrtMemoryInfo;
struct OrtSession;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtTensorInfo;  // OrtTensorTypeAndShapeInfo
struct OrtTypeInfo;
struct OrtValue;

inline constexpr uint32_t kApiVersion = 18;

// Everything that a process has once: the functions and the objects that no session owns.
struct Library {
#define TRT_ET_ORT(function, position, result, ...) result (*function)(__VA_ARGS__) = nullptr;
#include "functions.def"
#undef TRT_ET_ORT
  OrtEnv* environment = nullptr;
  OrtAllocator* allocator = nullptr;
  OrtMemoryInfo* host_memory = nullptr;

  // Takes the status that a function returned.
  Status check(OrtStatus* returned, const char* what, Error error = Error::Internal) const;
};

// Opens the library that TRT_ET_ONNXRUNTIME_LIBRARY names, or that is installed beside ExecuTorch's
// package, or that the loader finds; once. NotFound: there is none.
Status open_library(const Library** library);

template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

}  // namespace trt_et::onnx
