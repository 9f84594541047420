// How trt-et logs: outside of its locks, and without Python's help.
#pragma once

#include <exception>
#include <new>

#include "status.h"

namespace trt_et {

// What a load or a run does when all is well is debug, and is shown with TRT_ET_LOG=debug only.
enum class LogLevel { error, info, debug };  // the numbers of trt_et_log_function

// Writes one line to ExecuTorch's log. In a process with Python it goes to the standard error
// stream directly: ExecuTorch's bindings write the log to Python's sys.stderr, which lets another
// Python thread run in the middle of a call, and that thread swaps the streams under the first one.
void log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The same for information that a user waits for: it is written now, and so is what was kept back.
// Not while a lock is held.
void log_at_once(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Whether this process runs Python: a program may be linked to it and not use it.
bool has_python();

// See trt_et_set_log_function.
void set_log_function(void (*function)(int level, const char* text));

// From now on, an error that ExecuTorch logs is this thread's last error (status.h): its functions
// return a number only. Once, when the library is loaded.
void keep_reasons_of_executorch();

// Keeps the lines of this thread back until the outermost scope ends. Every entry into the library
// opens one before it takes a lock, so that no line is written while a lock is held.
class LogScope {
 public:
  LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
  ~LogScope();
};

// How ExecuTorch and C programs enter the library.
//
// Runs a function that gives a Status, which is reported. Nothing may throw into the callers:
// ExecuTorch is built without handlers.
template <typename F>
Error enter(F&& function) noexcept {
  const LogScope scope;
  try {
    return report(function());
  } catch (const std::bad_alloc& error) {
    remember_error(error.what());
    return Error::MemoryAllocationFailed;
  } catch (const std::exception& error) {
    remember_error(error.what());
    return Error::Internal;
  } catch (...) {
    remember_error("an exception of an unknown type");
    return Error::Internal;
  }
}

}  // namespace trt_et
