#include "engine_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "blob/crc32c.h"

namespace trt_et::tensorrt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEngine = ".engine";
constexpr const char* kLock = ".lock";
constexpr const char* kPart = ".part-";
// Of a name: the model's, "-", and those of the key.
constexpr size_t kModelDigits = 32;
constexpr size_t kDigits = kModelDigits + 1 + 8;
constexpr uint64_t kLimit = uint64_t{20} << 30;  // bytes of all engines
// For another process, which may build for long; then this one builds, too.
constexpr std::chrono::hours kPatience{1};

// What a file begins with; behind it are the engine and its key.
struct Header {
  char magic[8];
  uint64_t size;  // of the engine
  uint32_t checksum;
  uint8_t zero[44];
};
static_assert(sizeof(Header) == 64);
constexpr char kMagic[8] = {'T', 'R', 'T', 'E', 'T', 'E', 'N', '2'};

Header header_of(const void* engine, size_t size) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.size = size;
  header.checksum = crc32c(0, static_cast<const uint8_t*>(engine), size);
  return header;
}

void warn(const std::string& text) { host().log(TRT_ET_LOG_NOTICE, text.c_str()); }

void add(std::string* text, const char* name, const std::string& value) {
  *text += std::string(name) + "=" + value + "\n";
}

std::string joined(const int64_t* sizes, int32_t rank) {
  std::string text;
  for (int32_t i = 0; i < rank; ++i) text += std::to_string(sizes[i]) + ",";
  return text;
}

// Everything that an engine depends on. TensorRT-RTX's run on every GPU of a capability.
std::string key_of(const trt_et_engine_request& request, const Library& library) {
  std::string text;
  add(&text, "model", request.sha256);
  add(&text, "network", request.network);
  for (size_t i = 0; i < request.binding_count; ++i) {
    const trt_et_binding& binding = request.bindings[i];
    add(&text, "binding", binding.name);
    add(&text, "min", joined(binding.min_dims, binding.rank));
    add(&text, "opt", joined(request.opt_dims[i], binding.rank));
    add(&text, "max", joined(binding.max_dims, binding.rank));
  }
  add(&text, kName, library.version.text() + "." + library.build);
  if (!kRtx) add(&text, "gpu", request.gpu);
  add(&text, "capability",
      std::to_string(request.gpu_major) + "." + std::to_string(request.gpu_minor));
  return text;
}

// The name of a file holds little of its key: the file itself has all of it.
std::string name_of(const trt_et_engine_request& request, const std::string& key) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", crc32c(0, key.data(), key.size()));
  return std::string(request.sha256).substr(0, kModelDigits) + "-" + digits;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    found.push_back(at->path());
  }
  return found;
}

}  // namespace

EngineStore::EngineStore(const trt_et_engine_request& request, const Library& library)
    : folder_(cache_folder(request.engine_folder, "engines")),
      key_(key_of(request, library)),
      name_(name_of(request, key_)) {
  if (*request.sha256 == '\0') folder_.clear();
  // A folder that is named is its user's choice.
  if (*request.engine_folder == '\0' && !folder_.empty() && is_others(folder_)) {
    warn("built engines are not kept, for other users may write to " + folder_.string());
    folder_.clear();
  }
}

std::string EngineStore::path(const char* ending) const { return folder_ / (name_ + ending); }

std::string EngineStore::temporary_prefix() const {
  if (!folder_.empty()) return path(kPart);
  std::error_code failed;
  const fs::path temporary = fs::temp_directory_path(failed);
  return failed ? "" : temporary / ("trt-et" + std::string(kPart));
}

bool EngineStore::find(BuiltEngine* found) {
  const auto file = std::make_shared<MappedFile>();
  if (folder_.empty() || !file->open(path(kEngine))) return false;
  bool intact = file->size() >= sizeof(Header) + key_.size();
  if (intact) {
    const unsigned char* const engine = file->data() + sizeof(Header);
    *found = {file, engine, file->size() - sizeof(Header) - key_.size()};
    const Header header = header_of(engine, found->size);
    const unsigned char* const key = engine + found->size;
    intact = std::memcmp(file->data(), &header, sizeof header) == 0 &&
             std::memcmp(key, key_.data(), key_.size()) == 0;
  }
  if (!intact) {
    warn("a built engine is damaged, and will be built again: " + path(kEngine));
    return false;
  }
  // The time of its last use.
  (void)utimensat(AT_FDCWD, path(kEngine).c_str(), nullptr, 0);
  return true;
}

void EngineStore::lock() {
  if (folder_.empty()) return;
  using std::chrono::milliseconds;
  bool taken = make_private(folder_) && lock_.take(path(kLock), milliseconds(0));
  if (!taken && errno == EWOULDBLOCK) {
    warn("waits for another process that builds the same engine");
    taken = lock_.take(path(kLock), kPatience);
  }
  if (taken) return remove_leftovers();
  warn("built engines are not kept: " + std::string(std::strerror(errno)) + ": " +
       folder_.string());
  folder_.clear();
}

// A part whose key nobody has locked is of a build that was killed.
void EngineStore::remove_leftovers() {
  for (const fs::path& file : entries(folder_)) {
    const std::string name = file.filename();
    const bool is_part = name.size() > kDigits && name.compare(kDigits, 6, kPart) == 0;
    if (!is_part && file.extension() != kLock) continue;
    const std::string key = name.substr(0, kDigits);
    FileLock other;
    if (key != name_ && !other.take(folder_ / (key + kLock), std::chrono::milliseconds(0)))
      continue;
    std::error_code ignored;
    if (is_part) fs::remove_all(file, ignored);
  }
}

bool EngineStore::keep(const void* engine, size_t size) {
  if (!lock_.is_held()) return false;
  const Header header = header_of(engine, size);
  const std::string_view front(reinterpret_cast<const char*>(&header), sizeof header);
  const std::string_view rest(static_cast<const char*>(engine), size);
  if (write_atomically(path(kEngine), path(kPart), {front, rest, key_})) {
    make_room();
    return true;
  }
  const std::string problem = std::strerror(errno);
  warn("the engine of " + std::to_string(size) + " bytes is not kept: " + problem + ": " +
       folder_.string());
  return false;
}

void EngineStore::make_room() const {
  struct Kept {
    fs::file_time_type used;
    uint64_t size;
    fs::path path;
  };
  std::vector<Kept> others;
  uint64_t all = 0;
  for (const fs::path& file : entries(folder_)) {
    std::error_code gone;
    if (file.extension() != kEngine) continue;
    const uint64_t size = fs::file_size(file, gone);
    if (gone) continue;
    all += size;
    const auto used = fs::last_write_time(file, gone);
    if (!gone && file != path(kEngine)) others.push_back({used, size, file});
  }
  std::sort(others.begin(), others.end(),
            [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& one : others) {
    if (all <= kLimit) return;
    std::error_code gone;
    if (fs::remove(one.path, gone)) all -= one.size;
  }
}

}  // namespace trt_et::tensorrt
