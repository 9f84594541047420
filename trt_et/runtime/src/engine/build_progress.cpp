#include "build_progress.h"

#include <dlfcn.h>

#include <atomic>

#include "common/log.h"

namespace trt_et {
namespace {

std::atomic<trt_et_build_progress> g_function{nullptr};
thread_local bool t_interrupted = false;

// Of the process's Python. Null: it has none.
template <typename F>
F* python(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

// What a handler has raised; used with the interpreter's lock.
struct Raised {
  void *type, *value, *traceback;
} g_raised;

int raise_again(void*) {
  python<void(void*, void*, void*)>("PyErr_Restore")(g_raised.type, g_raised.value,
                                                     g_raised.traceback);
  t_interrupted = false;
  return -1;
}

// Runs the handlers of signals that have come. Only on a thread that has the interpreter's lock,
// which ExecuTorch's bindings keep during a load: to wait for the lock here could be for ever.
// False: one of them has raised an exception.
bool run_signal_handlers() {
  const auto has_lock = python<int()>("PyGILState_Check");
  if (!has_python() || has_lock == nullptr || has_lock() == 0) return true;
  if (python<int()>("PyErr_CheckSignals")() == 0) return true;
  python<void(void**, void**, void**)>("PyErr_Fetch")(&g_raised.type, &g_raised.value,
                                                      &g_raised.traceback);
  t_interrupted = true;
  const auto call_later = python<int(int (*)(void*), void*)>("Py_AddPendingCall");
  if (call_later(raise_again, nullptr) != 0) (void)raise_again(nullptr);
  return false;
}

int report_progress(const char* phase, int32_t step, int32_t steps) {
  const trt_et_build_progress function = g_function;
  const bool is_told = function != nullptr && phase != nullptr;
  if (is_told && function(phase, step, steps) == 0) return 0;
  return !t_interrupted && run_signal_handlers() ? 1 : 0;
}

}  // namespace

void set_build_progress(trt_et_build_progress progress) { g_function = progress; }

trt_et_build_progress build_progress() {
  return g_function != nullptr || has_python() ? report_progress : nullptr;
}

bool is_interrupted() { return t_interrupted; }

}  // namespace trt_et
