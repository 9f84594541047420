// Pinned memory that copies between pageable host memory and a GPU go through, where the user asked
// for it (option pinned_staging). A copy to the device then need not be waited for.
#pragma once

#include "cuda_api.h"

namespace trt_et {

// From now on streams get at least this much: the largest request counts.
void request_pinned_staging(size_t bytes);

// Of one stream, used by its thread. What is in it stays until reset(), when the stream has been
// waited for.
class PinnedStaging {
 public:
  PinnedStaging(cuda::Api& api, cuda::Stream stream) : api_(api), stream_(stream) {}
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  ~PinnedStaging();

  // Room for a copy; null where there is none. `may_wait`: nothing that is in it is needed by the
  // host, so it may wait for the stream to make room.
  void* take(size_t size, bool may_wait);
  void reset() { used_ = 0; }

 private:
  bool allocate();

  cuda::Api& api_;
  const cuda::Stream stream_;
  uint8_t* memory_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
  bool failed_ = false;
};

}  // namespace trt_et
