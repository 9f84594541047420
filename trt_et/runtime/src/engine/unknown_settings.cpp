#include "unknown_settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>

#include "common/log.h"

namespace trt_et {
namespace {

// Of docs/reference/environment.md, those that are no options.
constexpr const char* kVariables[] = {"TRT_ET_CACHE",
                                      "TRT_ET_CACHE_SIZE",
                                      "TRT_ET_BUILDER",
                                      "TRT_ET_PRECISION",
                                      "TRT_ET_CUDA",
                                      "TRT_ET_CUDART_LIBRARY",
                                      "TRT_ET_TENSORRT_LIBRARY",
                                      "TRT_ET_ONNXRUNTIME_LIBRARY",
                                      "TRT_ET_ANY_GPU",
                                      "TRT_ET_ANY_KERNEL",
                                      "TRT_ET_ANY_TENSORRT",
                                      "TRT_ET_PLUGIN",
                                      "TRT_ET_RUNNER",
                                      "TRT_ET_CMAKE_CONFIG",
                                      "TRT_ET_LOG",
                                      "TRT_ET_SIM_FAIL_AFTER"};

// How many characters are added, left out or exchanged.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, corner + (a[i] == b[j] ? 0 : 1)});
      corner = above;
    }
  }
  return row.back();
}

bool is_new(const std::string& text) {
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  return told->insert(text).second;
}

}  // namespace

void report_unknown(const char* kind, const std::string& name,
                    const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end() || known.empty()) return;
  if (!is_new(kind + name)) return;
  const auto nearest = std::min_element(
      known.begin(), known.end(),
      [&](const auto& a, const auto& b) { return distance(name, a) < distance(name, b); });
  log(LogLevel::info, "TensorRTBackend: unknown %s '%.60s' is ignored; the nearest is %.60s", kind,
      name.c_str(), nearest->c_str());
}

void report_unknown_variables(const std::vector<std::string>& options) {
  constexpr const char* kPrefix = "TRT_ET_";
  std::vector<std::string> known(std::begin(kVariables), std::end(kVariables));
  known.insert(known.end(), options.begin(), options.end());
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (name.rfind(kPrefix, 0) == 0) report_unknown("environment variable", name, known);
  }
  const char* level = std::getenv("TRT_ET_LOG");
  if (level != nullptr && *level != '\0' && std::strcmp(level, "debug") != 0 && is_new(level)) {
    log(LogLevel::info, "TensorRTBackend: TRT_ET_LOG is '%.40s'; expected debug", level);
  }
}

}  // namespace trt_et
