// A folder of engines that were built on this machine.
#pragma once

#include <string>

#include "build/engine_build.h"
#include "files.h"
#include "library.h"

namespace trt_et::tensorrt {

// One engine's place in the folder, which is the network, how it is built, this TensorRT, and this
// GPU. Nothing that goes wrong with the folder fails anything: it is logged, and engines are built
// again.
class EngineStore {
 public:
  EngineStore(const trt_et_engine_request& request, const Library& library);

  // Empty: engines are not kept.
  const std::filesystem::path& folder() const { return folder_; }
  // In front of the names of files that go when the build ends.
  std::string temporary_prefix() const;

  bool find(BuiltEngine* found);
  // For the process that builds: waits while another one does, for an hour. Removes what killed
  // builds have left.
  void lock();
  // Writes the engine, whole or not at all, and removes the engines that were not used for the
  // longest time as long as all together are larger than 20 GiB.
  bool keep(const void* engine, size_t size);

 private:
  std::string path(const char* ending) const;
  void remove_leftovers();
  void make_room() const;

  std::filesystem::path folder_;
  const std::string key_;   // everything that the engine depends on
  const std::string name_;  // of its files, without their endings
  FileLock lock_;
};

}  // namespace trt_et::tensorrt
