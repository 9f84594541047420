#include "log.h"

#include <dlfcn.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/platform.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "process.h"
#include "status.h"

namespace trt_et {
namespace {

struct Line {
  LogLevel level;
  std::string text;
};

// The lines that wait for the outermost scope of this thread. Both are plain, so that they outlive
// the thread's other objects.
thread_local int t_depth = 0;
thread_local std::vector<Line>* t_lines = nullptr;

std::atomic<void (*)(int, const char*)> g_function{nullptr};

// A plain array: errors are reported until the very end of the process.
thread_local char t_last_error[kMaxErrorText + 1] = "";

bool shows_debug() {
  static const char* const level = environment_variable("TRT_ET_LOG");
  return level != nullptr && std::strcmp(level, "debug") == 0;
}

thread_local bool t_is_own = false;  // the line that goes to ExecuTorch's log

void write_line(LogLevel level, const char* text) {
  const bool is_error = level == LogLevel::error;
  if (const auto function = g_function.load()) {
    function(static_cast<int>(level), text);
  } else if (has_python()) {
    char line[300];
    const int length = std::snprintf(line, sizeof line, "%c %s\n", is_error ? 'E' : 'I', text);
    if (length > 0) (void)!write(STDERR_FILENO, line, static_cast<size_t>(length));
  } else {
    t_is_own = true;
    if (is_error) ET_LOG(Error, "%s", text);
    if (!is_error) ET_LOG(Info, "%s", text);
    t_is_own = false;
  }
}

using PalTable =
    std::remove_cv_t<std::remove_pointer_t<decltype(executorch::runtime::get_pal_impl())>>;
using Emit = decltype(PalTable::emit_log_message);
std::atomic<Emit> g_emit{nullptr};  // ExecuTorch's, or the program's

// "Init failed for backend X: 0x20" passes on what was told before it.
bool ends_with_code(const char* message) {
  const char* code = std::strrchr(message, ' ');
  return code != nullptr && std::strncmp(code, " 0x", 3) == 0;
}

// A failure has several lines, from the inside out, in less time than this, and nobody asks for the
// reason in between.
constexpr std::chrono::milliseconds kOneFailure{1};
thread_local bool t_is_read = false;
// After a failure of ours, ExecuTorch logs what it means to the caller, which says less.
thread_local bool t_is_ours = false;

void keep_reason(et_timestamp_t time, et_pal_log_level_t level, const char* file,
                 const char* function, size_t line, const char* message, size_t length) {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point t_last{};
  const bool is_error = level == kError || level == kFatal;
  const bool follows =
      t_last_error[0] != '\0' && ((t_is_ours && !t_is_read) || ends_with_code(message));
  if (is_error && !t_is_own) t_is_ours = false;
  if (is_error && !t_is_own && !follows) {
    const bool goes_on =
        t_last_error[0] != '\0' && !t_is_read && Clock::now() - t_last < kOneFailure;
    t_is_read = false;
    const size_t used = goes_on ? std::strlen(t_last_error) : 0;
    std::snprintf(t_last_error + used, sizeof t_last_error - used, "%s%s", goes_on ? "; " : "",
                  message);
  }
  g_emit.load()(time, level, file, function, line, message, length);
  if (is_error) t_last = Clock::now();
}

// False where there is no memory to keep the line.
bool keep(LogLevel level, const char* text) {
  try {
    if (t_lines == nullptr) t_lines = new std::vector<Line>;
    t_lines->push_back({level, text});
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void write_kept() {
  const std::vector<Line>* lines = std::exchange(t_lines, nullptr);
  if (lines == nullptr) return;
  for (const Line& line : *lines) write_line(line.level, line.text.c_str());
  delete lines;
}

}  // namespace

bool has_python() {
  const auto is_initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return is_initialized != nullptr && is_initialized() != 0;
}

void log(LogLevel level, const char* format, ...) {
  if (level == LogLevel::debug && !shows_debug()) return;
  char text[256];  // As much as ExecuTorch's log takes.
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (t_depth == 0 || !keep(level, text)) write_line(level, text);
}

void log_at_once(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  write_kept();
  write_line(LogLevel::info, text);
}

void set_log_function(void (*function)(int, const char*)) { g_function = function; }

// Not by register_pal(), which logs an error if anybody calls it a second time: programs may.
void keep_reasons_of_executorch() {
  Emit& emit = const_cast<PalTable*>(executorch::runtime::get_pal_impl())->emit_log_message;
  if (emit == keep_reason) return;
  g_emit = emit;
  emit = keep_reason;
}

LogScope::LogScope() { ++t_depth; }

LogScope::~LogScope() {
  if (--t_depth == 0) write_kept();
}

Error report(const Status& status) {
  if (status.ok()) return Error::Ok;
  log(LogLevel::error, "TensorRTBackend: %s", status.text.c_str());
  remember_error(status.text.c_str());
  return status.error;
}

void remember_error(const char* text) {
  t_is_ours = true;
  t_is_read = false;
  std::snprintf(t_last_error, sizeof t_last_error, "%s", text);
}

const char* last_error_text() {
  t_is_read = true;
  return t_last_error;
}
void clear_last_error() { t_last_error[0] = '\0'; }

}  // namespace trt_et
