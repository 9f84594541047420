// The streams that a delegate's runs are queued on: in which order, and who waits.
#pragma once

#include "cuda/cuda_api.h"
#include "cuda/streams.h"

namespace trt_et {

// Used under the lock of its delegate, with the device current.
class RunStream {
 public:
  RunStream(cuda::Api& api, int device) : api_(api), device_(device) {}
  RunStream(const RunStream&) = delete;
  RunStream& operator=(const RunStream&) = delete;

  // Frees its events; nothing may be running.
  void clear();

  // `blocking_waits`: the thread that waits sleeps.
  Status create(bool blocking_waits);

  // What is queued on `stream` from now on comes after the last run, which may have been queued on
  // another stream, and after other libraries' work on the same memory.
  Status join(const WorkStream& stream);
  // Leaves the run queued: an event marks its end.
  Status leave();
  // Waits for all that is queued on the stream.
  Status drain();
  // Waits for the last run, wherever it was queued.
  Status wait_for_last();

  cuda::Stream handle() const { return stream_.handle; }
  // Whether a run that may still be going on was queued on another stream. A handle may be that of
  // another stream by now; of a CallerStreamGuard's nothing else is known.
  bool is_busy_elsewhere(const WorkStream& stream) const {
    const bool known = stream.identity != 0 && stream_.identity != 0;
    return in_flight_ && (known ? !stream.is(stream_) : stream.handle != stream_.handle);
  }
  // The stream of another GPU that uses this thread's memory there.
  Status find_on(int device, cuda::Stream* stream) const;

 private:
  cuda::Api& api_;
  const int device_;
  WorkStream stream_;  // of the last run
  // Marks the end of the last run, unless it has been waited for: for the next run on another
  // thread's stream, and for the destructor.
  cuda::Event done_ = nullptr;
  bool in_flight_ = false;
  bool blocking_waits_ = false;
  // Marks what the legacy stream, and with it every blocking stream, has got before a run. Null
  // unless other libraries' streams may use the same memory.
  cuda::Event before_ = nullptr;
  bool beside_cuda_backend_ = false;
  bool fenced_ = false;  // this run
};

}  // namespace trt_et
