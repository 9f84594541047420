// One loaded partition of a method: an engine, its contexts, its arguments, and its stream.
#pragma once

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/span.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "arguments.h"
#include "contexts.h"
#include "cuda/cuda_api.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "run_stream.h"

namespace trt_et {

class EngineSource;

// Thread-safe: two threads that execute one delegate take turns. It owns no tensor.
class Delegate {
 public:
  // Loads the engine of `processed` onto the device that its blob (or the option) names.
  // `processed` is freed here when the engine does not need its bytes any more; otherwise its owner
  // must keep it.
  // `named_data` has the weights of networks.
  static Status create(executorch::runtime::FreeableBuffer* processed,
                       const executorch::runtime::NamedDataMap* named_data,
                       const LoadOptions& options, std::unique_ptr<Delegate>* delegate);
  ~Delegate();

  // Facts about every delegate that is loaded, as a JSON array; see trt_et_describe_engines.
  static std::string describe_all();

  // Queues one run on this thread's stream of the device. Waits only for what the host reads. Once
  // shapes repeat themselves it allocates nothing, and once addresses do it binds nothing.
  Status execute(executorch::runtime::Span<executorch::runtime::EValue*> values);

 private:
  Delegate(cuda::Api& api, int device)
      : api_(api),
        device_(device),
        stream_(api, device),
        arguments_(api, device, stream_),
        contexts_(api, device, arguments_.all(),
                  [this](cuda::Stream stream) { return queue(stream); }) {}

  Status load(const EngineSource& source, const LoadOptions& options);
  Status run(const WorkStream& stream, bool* wait);
  Status choose_and_place(cuda::Stream stream, bool* wait);
  Status queue(cuda::Stream stream);
  Status finish(Status status, bool wait);
  Status run_captured(const WorkStream& stream);
  void abandon() noexcept;
  std::string describe();

  // What describe_all() finds a delegate by: the delegate is not freed while the lock is held.
  struct Handle {
    std::mutex mutex;
    Delegate* delegate;
  };

  cuda::Api& api_;
  const int device_;
  std::mutex mutex_;
  const std::shared_ptr<Handle> handle_{new Handle{{}, this}};
  std::optional<executorch::runtime::FreeableBuffer> external_engine_;  // that engine_ keeps
  std::shared_ptr<Engine> engine_;
  RunStream stream_;
  Arguments arguments_;
  Contexts contexts_;
  DebugOutputs debug_outputs_;
};

}  // namespace trt_et
