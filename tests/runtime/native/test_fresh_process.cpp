// What only a process that has just started shows: ExecuTorch's own CUDA allocator, registered
// before ours, a line that is logged once in a process, and ExecuTorch's log.
#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/platform/platform.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "backend_calls.h"
#include "common/log.h"
#include "cuda/device_allocator.h"
#include "tests.h"

using namespace trt_et;

namespace {

constexpr const char* kFresh = "TRT_ET_TEST_FRESH_PROCESS";

// Before ours, which a static object registers.
__attribute__((constructor(101))) void register_stock_allocator() {
  if (std::getenv(kFresh) == nullptr) return;
  executorch::runtime::register_device_allocator(new StockAllocator);
}

// The stock allocator does not know of trt_et_use_stream: its copies and the runs are ordered.
void test_runs_on_a_given_stream_and_stock_copies_keep_their_order() {
  cuda::Stream stream = nullptr;
  CHECK_OK(api().create_stream(cuda::StreamKind::non_blocking, &stream));
  CHECK(trt_et_use_stream(0, stream) == 0);
  {
    Scaling scaling;
    for (int i = 1; i <= 6; ++i) {
      const auto value = static_cast<float>(i);
      scaling.in.fill(value);
      CHECK_OK(scaling.run());
      scaling.in.fill(-1.0F);  // Must not overtake the run.
      CHECK(scaling.out.read(5) == 2 * value);
    }
  }
  CHECK(trt_et_use_stream(0, nullptr) == 0);
  CHECK_OK(api().destroy_stream(stream));
}

void test_state_in_stock_memory_begins_at_zero() {
  char index[] = "1";
  BackendDelegate delegate;
  CHECK(delegate.init(sum_blob(), {CompileSpec{"state_inputs", {index, 1}}}) == Error::Ok);
  Device one(8, 0, 1.0F), state(8, 0, 7.0F);
  OwnedTensor x({8}, one.data), y({8}, state.data);
  for (int i = 1; i <= 4; ++i) {
    CHECK(delegate.execute({&x.value, &y.value, &y.value}) == Error::Ok);
    CHECK(state.read(5) == static_cast<float>(i));
  }
}

int g_staging_lines = 0;

void count_staging_lines(et_timestamp_t, et_pal_log_level_t, const char*, const char*, size_t,
                         const char* message, size_t) {
  if (std::strstr(message, "is in host memory, which is copied at every run")) ++g_staging_lines;
}

void test_staging_of_host_tensors_is_logged_once() {
  using executorch::runtime::PalImpl;
  CHECK(executorch::runtime::register_pal(PalImpl::create(count_staging_lines, __FILE__)));
  float in[8] = {}, out[8] = {};
  OwnedTensor x({8}, in), y({8}, out);
  for (int load = 0; load < 2; ++load) {
    BackendDelegate delegate;
    CHECK(delegate.init(scale_blob("8")) == Error::Ok);
    for (int i = 0; i < 3; ++i) {
      CHECK(delegate.execute({&x.value, &y.value}) == Error::Ok);
      CHECK(g_staging_lines == 1);
    }
  }
}

// ExecuTorch's functions return a number, and give the reason to the log only.
void test_an_error_that_executorch_logs_is_the_last_error() {
  const auto emit = [](et_pal_log_level_t level, const char* text) {
    executorch::runtime::pal_emit_log_message(0, level, "method.cpp", "f", 1, text, 1);
  };
  const auto last = [] { return std::string(trt_et_last_error()); };
  keep_reasons_of_executorch();
  (void)trt_et_choose_cuda("simulated:2");
  CHECK(last().empty());
  emit(kInfo, "nothing is wrong");
  CHECK(last().empty());
  emit(kError, "the rank is 3");
  emit(kError, "Error resizing tensor at input 0");
  CHECK(last() == "the rank is 3; Error resizing tensor at input 0");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  emit(kError, "there is no such file");  // Another failure.
  CHECK(last() == "there is no such file");
  std::thread([&] { CHECK(last().empty()); }).join();
  // What only passes an error on says less than our own reason.
  CHECK(trt_et_choose_cuda("nonsense") == -1);
  emit(kError, "Backend TensorRTBackend is not available.");
  const std::string own = last();
  CHECK(own.find("TRT_ET_CUDA is 'nonsense'") == 0);
  emit(kError, "Init failed for backend TensorRTBackend: 0x12");
  CHECK(!own.empty() && last() == own);
  const std::string longer(400, 'x');
  emit(kError, longer.c_str());
  emit(kError, longer.c_str());
  CHECK(last().size() <= kMaxErrorText);
  CHECK(trt_et_choose_cuda("simulated:2") == 0 && last().empty());
}

// Memory that was planned before the user moved programs to another GPU stays where it is.
void test_memory_planned_before_a_move_is_copied_where_it_is() {
  const auto memory = cuda_allocator().allocate(32, 0, 16);
  CHECK(memory.ok());
  set_device_redirection([](int* device) {
    *device = 1;
    return Status{};
  });
  const std::vector<float> there(8, 2.0F);
  std::vector<float> back(8);
  CHECK(cuda_allocator().copy_host_to_device(memory.get(), there.data(), 32, 0) == Error::Ok);
  CHECK(cuda_allocator().copy_device_to_host(back.data(), memory.get(), 32, 0) == Error::Ok);
  CHECK(back == there);
  cuda_allocator().deallocate(memory.get(), 0);
}

}  // namespace

void test_fresh_process(const std::string& blob_file) {
  if (std::getenv(kFresh) == nullptr) {
    CHECK(succeeds_alone("fresh_process", blob_file, kFresh, "1"));
    return;
  }
  use_fake_tensorrt();
  CHECK_OK(cuda::choose("simulated:2"));
  CHECK(!cuda_allocator_is_registered());
  test_runs_on_a_given_stream_and_stock_copies_keep_their_order();
  test_state_in_stock_memory_begins_at_zero();
  test_staging_of_host_tensors_is_logged_once();
  test_an_error_that_executorch_logs_is_the_last_error();
  test_memory_planned_before_a_move_is_copied_where_it_is();
}
