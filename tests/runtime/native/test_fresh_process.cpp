// What only a process that has just started shows: ExecuTorch's own CUDA allocator, registered
// before ours, a line that is logged once in a process, and ExecuTorch's log.
#include <executorch/runtime/core/device_allocator.h>
#include <executorch/runtime/platform/platform.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "backend_calls.h"
#include "common/quiet_log.h"
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

using LogFunction = decltype(&count_staging_lines);
LogFunction g_wrapped_log = nullptr;
int g_passed_on = 0;

void count_and_pass_on(et_timestamp_t time, et_pal_log_level_t level, const char* file,
                       const char* function, size_t line, const char* message, size_t length) {
  ++g_passed_on;
  g_wrapped_log(time, level, file, function, line, message, length);
}

void test_lines_of_the_thread_pool_are_dropped_also_where_the_logs_function_is_wrapped() {
  using executorch::runtime::PalImpl;
  drop_cpuinfo_lines();
  g_wrapped_log = executorch::runtime::get_pal_impl()->emit_log_message;
  CHECK(executorch::runtime::register_pal(PalImpl::create(count_and_pass_on, __FILE__)));
  drop_cpuinfo_lines();  // Each now calls the other.
  g_passed_on = 0;
  const auto emit = [](et_pal_log_level_t level, const char* file) {
    executorch::runtime::pal_emit_log_message(0, level, file, "f", 1, "a line of a test", 16);
  };
  emit(kInfo, "cpuinfo_utils.cpp");
  emit(kInfo, "/a/folder/cpuinfo_utils.cpp");
  CHECK(g_passed_on == 0);
  emit(kError, "cpuinfo_utils.cpp");
  emit(kInfo, "method.cpp");
  CHECK(g_passed_on == 2);
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
  test_lines_of_the_thread_pool_are_dropped_also_where_the_logs_function_is_wrapped();
  test_memory_planned_before_a_move_is_copied_where_it_is();
}
