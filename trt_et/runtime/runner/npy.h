// Arrays as numpy.save() writes them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace trt_et::runner {

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

struct NpyArray {
  std::string descr;  // the dtype: "<f4"
  std::vector<int32_t> shape;
  std::vector<uint8_t> bytes;  // in C order
};

// Reads a .npy file of at most `limit` bytes of data. False, and the reason, where it is not one.
bool read_npy(const std::string& path, size_t limit, NpyArray* array, std::string* problem);

}  // namespace trt_et::runner
