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

  // In front of the names of files that go when the build ends.
  std::string temporary_prefix() const;

  // Leaves out the engine that the request says TensorRT has refused, and removes its file.
  bool find(BuiltEngine* found);
  // Why it is not found, for a user who allows no build.
  std::string lack() const;
  // For the process that builds: waits while another one builds this engine, for an hour at most.
  // Removes what killed builds have left. InvalidState: the caller has ended the wait.
  Status lock();
  // Then waits while others build on this GPU, likewise.
  Status lock_gpu();
  // Writes the engine, whole or not at all, and removes the engines that were not used for the
  // longest time as long as all together are larger than 20 GiB.
  bool keep(const void* engine, size_t size);

  const std::filesystem::path& folder() const { return folder_.path; }

 private:
  std::string path(const char* ending) const;
  Status wait_for(FileLock* lock, const std::filesystem::path& file, const char* builder);
  void keep_nothing(const std::string& problem);
  void remove_leftovers();
  void make_room() const;

  const trt_et_engine_request& request_;
  CacheFolder folder_;
  const std::string key_;   // everything that the engine depends on
  const std::string name_;  // of its files, without their endings
  std::string problem_;     // of the file that is there
  FileLock lock_, gpu_lock_;
};

// How long another build is waited for; then this one goes on beside it.
inline constexpr std::chrono::hours kBuildPatience{1};

// Asks the request's caller, while another build is waited for.
GoOn asking(const trt_et_engine_request& request);
Status wait_was_ended();

}  // namespace trt_et::tensorrt
