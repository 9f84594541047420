#include <cstdio>

#include "log.h"
#include "status.h"

namespace trt_et {
namespace {

// A plain array: errors are reported until the very end of the process.
thread_local char t_last_error[kMaxErrorText + 1] = "";

}  // namespace

Error report(const Status& status) {
  if (status.ok()) return Error::Ok;
  log(LogLevel::error, "TensorRTBackend: %s", status.text.c_str());
  remember_error(status.text.c_str());
  return status.error;
}

void remember_error(const char* text) {
  std::snprintf(t_last_error, sizeof t_last_error, "%s", text);
}

const char* last_error_text() { return t_last_error; }
void clear_last_error() { t_last_error[0] = '\0'; }

}  // namespace trt_et
