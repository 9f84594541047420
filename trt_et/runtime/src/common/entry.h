// How ExecuTorch and C programs enter the library.
#pragma once

#include <exception>
#include <new>

#include "log.h"
#include "status.h"

namespace trt_et {

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
