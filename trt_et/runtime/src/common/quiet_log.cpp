#include "quiet_log.h"

#include <executorch/runtime/platform/platform.h>

#include <atomic>
#include <string_view>
#include <type_traits>

namespace trt_et {
namespace {

using Table =
    std::remove_cv_t<std::remove_pointer_t<decltype(executorch::runtime::get_pal_impl())>>;
using Emit = decltype(Table::emit_log_message);

std::atomic<Emit> g_first{nullptr};  // what was replaced when this library was loaded
std::atomic<Emit> g_next{nullptr};   // what was replaced last

bool is_cpuinfo_line(et_pal_log_level_t level, const char* file) {
  constexpr std::string_view kFile = "cpuinfo_utils.cpp";
  const std::string_view name = file == nullptr ? "" : file;
  return level == kInfo && name.size() >= kFile.size() &&
         name.substr(name.size() - kFile.size()) == kFile;
}

// The next function may call this one, if it adds to what it has replaced.
void filter(et_timestamp_t time, et_pal_log_level_t level, const char* file, const char* function,
            size_t line, const char* message, size_t length) {
  if (is_cpuinfo_line(level, file)) return;
  thread_local int t_depth = 0;
  const Emit next = ++t_depth == 1 ? g_next : g_first;
  next(time, level, file, function, line, message, length);
  --t_depth;
}

}  // namespace

// Not by register_pal(), which logs an error if anybody calls it a second time: the bindings do,
// and programs may.
void drop_cpuinfo_lines() {
  Emit& emit = const_cast<Table*>(executorch::runtime::get_pal_impl())->emit_log_message;
  const Emit found = __atomic_load_n(&emit, __ATOMIC_RELAXED);
  if (found == filter) return;
  Emit none = nullptr;
  g_first.compare_exchange_strong(none, found);
  g_next = found;
  __atomic_store_n(&emit, &filter, __ATOMIC_RELEASE);
}

}  // namespace trt_et
