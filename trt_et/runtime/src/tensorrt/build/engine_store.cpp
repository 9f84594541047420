#include "engine_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "blob/crc32c.h"
#include "common/engine_identity.h"

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

// Everything that an engine depends on. TensorRT-RTX's run on every GPU of a capability.
std::string key_of(const trt_et_engine_request& request, const Library& library) {
  std::string text = identity_of(request);
  add_fact(&text, kName, library.version.text() + "." + library.build);
  if (!kRtx) add_fact(&text, "gpu", request.gpu);
  add_fact(&text, "capability",
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

GoOn asking(const trt_et_engine_request& request) {
  if (request.report_build == nullptr) return {};
  return [ask = request.report_build] { return ask("waits for another build", 0, 0) != 0; };
}

Status wait_was_ended() {
  return fail(Error::InvalidState,
              "the wait for another build was ended by the caller's progress function");
}

EngineStore::EngineStore(const trt_et_engine_request& request, const Library& library)
    : request_(request),
      folder_(cache_folder(request.engine_folder, "engines")),
      key_(key_of(request, library)),
      name_(name_of(request, key_)) {
  if (*request.sha256 == '\0') folder_ = {{}, "the network has no SHA-256"};
}

std::string EngineStore::path(const char* ending) const { return folder_.path / (name_ + ending); }

std::string EngineStore::temporary_prefix() const {
  if (!folder_.path.empty()) return path(kPart);
  std::error_code failed;
  const fs::path temporary = fs::temp_directory_path(failed);
  return failed ? "" : temporary / ("trt-et" + std::string(kPart));
}

bool EngineStore::find(BuiltEngine* found) {
  if (folder_.path.empty()) return false;
  const std::string name = path(kEngine);
  const auto* refused = static_cast<const BuiltEngine*>(request_.refused);
  if (refused != nullptr) {
    const auto* file = static_cast<const FileInMemory*>(refused->owner.get());
    if (file->is_at(name) && unlink(name.c_str()) != 0) return false;
  }
  const auto file = std::make_shared<FileInMemory>();
  std::string problem;
  if (!file->open(name)) {
    if (errno != ENOENT) problem = std::string("cannot be read: ") + std::strerror(errno);
  } else {
    bool intact = file->size() >= sizeof(Header) + key_.size();
    if (intact) {
      const unsigned char* const engine = file->data() + sizeof(Header);
      *found = {file, engine, file->size() - sizeof(Header) - key_.size(), name};
      const Header header = header_of(engine, found->size);
      const unsigned char* const key = engine + found->size;
      intact = std::memcmp(file->data(), &header, sizeof header) == 0 &&
               std::memcmp(key, key_.data(), key_.size()) == 0;
    }
    if (intact) {
      // The time of its last use.
      (void)utimensat(AT_FDCWD, name.c_str(), nullptr, 0);
      return true;
    }
    *found = {};
    problem = "is damaged";
  }
  const bool is_news = !problem.empty() && problem != problem_;
  problem_ = problem;
  if (is_news && request_.build != 0) {
    warn("a built engine " + problem + ", and will be built again: " + name);
  }
  return false;
}

std::string EngineStore::lack() const {
  if (!folder_.problem.empty()) return "there is no folder for engines (" + folder_.problem + ")";
  if (folder_.path.empty()) return "engine_folder is off";
  if (!problem_.empty()) return "the engine " + problem_ + ": " + path(kEngine);
  return folder_.path.string() + " has no engine of this network";
}

void EngineStore::keep_nothing(const std::string& problem) {
  warn("built engines are not kept: " + problem);
  folder_.path.clear();
}

// A file system without locks builds an engine more often, and keeps each.
Status EngineStore::wait_for(FileLock* lock, const fs::path& file, const char* builder) {
  constexpr std::chrono::milliseconds kUntold{100};  // for who removes leftovers
  if (lock->take(file, kUntold, asking(request_), folder_.file_mode())) return {};
  if (errno == EWOULDBLOCK) {
    warn(std::string("waits for another process that ") + builder);
    (void)lock->take(file, kBuildPatience, asking(request_), folder_.file_mode());
  }
  return lock->is_held() || errno != ECANCELED ? Status{} : wait_was_ended();
}

Status EngineStore::lock() {
  if (folder_.path.empty()) {
    if (!folder_.problem.empty()) {
      keep_nothing("there is no folder for engines (" + folder_.problem + ")");
    }
    return {};
  }
  if (folder_.make()) TRT_ET_TRY(wait_for(&lock_, path(kLock), "builds the same engine"));
  if (lock_.is_held()) {
    remove_leftovers();
  } else if (errno == ENOLCK) {
    remove_old_parts(path(kPart));
  } else {
    keep_nothing(std::string(std::strerror(errno)) + ": " + folder_.path.string());
  }
  return {};
}

Status EngineStore::lock_gpu() {
  if (folder_.path.empty()) return {};
  std::string gpu = request_.gpu;
  for (char& c : gpu) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return wait_for(&gpu_lock_, folder_.path / ("gpu-" + gpu + kLock), "builds on this GPU");
}

// A part whose key nobody has locked is of a build that was killed.
void EngineStore::remove_leftovers() {
  for (const fs::path& file : entries(folder_.path)) {
    const std::string name = file.filename();
    const bool is_part = name.size() > kDigits && name.compare(kDigits, 6, kPart) == 0;
    if (!is_part && file.extension() != kLock) continue;
    const std::string lock = is_part ? name.substr(0, kDigits) + kLock : name;
    FileLock other;
    if (lock != name_ + kLock && !other.take(folder_.path / lock, std::chrono::seconds(0)))
      continue;
    std::error_code ignored;
    if (is_part) fs::remove_all(file, ignored);
  }
}

bool EngineStore::keep(const void* engine, size_t size) {
  if (folder_.path.empty()) return false;
  const Header header = header_of(engine, size);
  const std::string_view front(reinterpret_cast<const char*>(&header), sizeof header);
  const std::string_view rest(static_cast<const char*>(engine), size);
  if (write_atomically(path(kEngine), path(kPart), {front, rest, key_}, folder_.file_mode())) {
    make_room();
    return true;
  }
  const std::string problem = std::strerror(errno);
  warn("the engine of " + std::to_string(size) + " bytes is not kept: " + problem + ": " +
       folder_.path.string());
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
  for (const fs::path& file : entries(folder_.path)) {
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
