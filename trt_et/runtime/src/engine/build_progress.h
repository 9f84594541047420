// Who is asked, while an engine is built or another build is waited for, whether that goes on.
#pragma once

#include "trt_et/runtime.h"

namespace trt_et {

// See trt_et_set_build_progress: of requests that are made from now on.
void set_build_progress(trt_et_build_progress progress);

// For a request's report_build: asks the caller's function, and in Python the handlers of signals.
// Null if there is neither.
trt_et_build_progress build_progress();

// Whether the handler of a signal has raised an exception meanwhile, on this thread. Python raises
// it as soon as it goes on, unless the call that it has made fails with an exception of its own.
bool is_interrupted();

}  // namespace trt_et
