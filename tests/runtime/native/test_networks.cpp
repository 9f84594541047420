// Networks through the delegate, with the fake of TensorRT 11: named data, sharing, faults.
#include <executorch/runtime/core/named_data_map.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "blob/crc32c.h"
#include "provider_support.h"
#include "tests.h"

using namespace trt_et;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;
using executorch::runtime::Result;

namespace {

namespace fs = std::filesystem;

constexpr const char* kWeight = "some_weight";

class NamedData final : public NamedDataMap {
 public:
  std::map<std::string, std::string> bytes;
  mutable std::atomic<int> reads{0};

  Result<FreeableBuffer> get_data(std::string_view key) const override {
    const auto found = bytes.find(std::string(key));
    if (found == bytes.end()) return Error::NotFound;
    ++reads;
    auto* copy = new std::string(found->second);  // Gone as soon as it is freed.
    const auto free = [](void* owner, void*, size_t) { delete static_cast<std::string*>(owner); };
    return FreeableBuffer(copy->data(), copy->size(), free, copy);
  }
  Result<const executorch::runtime::TensorLayout> get_tensor_layout(
      std::string_view) const override {
    return Error::NotSupported;
  }
  Error load_data_into(std::string_view, void*, size_t) const override {
    return Error::NotSupported;
  }
  Result<uint32_t> get_num_keys() const override { return static_cast<uint32_t>(bytes.size()); }
  Result<const char*> get_key(uint32_t) const override { return kWeight; }
};

std::string of_floats(float value) {
  std::string bytes(1024, '\0');
  for (size_t at = 0; at < bytes.size(); at += sizeof value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  return bytes;
}

// A field of a protobuf message that is bytes.
std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>((size & 0x7F) | 0x80);
  return out + static_cast<char>(size) + bytes;
}

// An ONNX model with one initializer W, whose bytes are at `location`.
std::string model(const std::string& location, const std::string& more = "",
                  const std::string& shape = "2,8") {
  const std::string entry = field(1, "location") + field(2, location);
  const std::string initializer = field(8, "W") + field(13, entry) + std::string("\x70\x01");
  const std::string plan = "fake\nweights 4096\nscratch 512\ninput x float32 " + shape +
                           "\noutput y float32 " + shape + "\nscale_by y x W\n" + more + "end\n";
  return field(6, plan) + field(7, field(5, initializer));
}

Bytes network(const std::string& bytes, const std::string& weight = kWeight,
              const std::string& bindings = io("2,8")) {
  return make_blob(bindings, bytes, "", true, false, "{\"weights\":[\"" + weight + "\"]}");
}

LoadOptions kept_in(const std::string& folder) {
  LoadOptions options;
  options.engine_folder = folder;
  return options;
}

// A weight that does not have the checksum in its name is refused, and is not taken as it is the
// second time.
void test_damaged_weight(const std::string& folder) {
  NamedData data;
  const std::string weight = of_floats(3.0F);
  char name[32];
  std::snprintf(name, sizeof name, "weight_%08x", crc32c(0, weight.data(), weight.size()));
  const Bytes blob = network(model(name), name);
  std::unique_ptr<Delegate> delegate;
  data.bytes[name] = of_floats(4.0F);
  CHECK_FAILS(try_load(blob, &delegate, kept_in(folder), &data), "of 1024 bytes is damaged");
  CHECK(fs::is_empty(folder));
  data.bytes[name] = weight;
  CHECK_OK(try_load(blob, &delegate, kept_in(folder), &data));
  check_call(*delegate, 1.0F, 3.0F);
}

// Weights are read for the one build alone, which the others wait for and take from the folder.
void test_threads(const std::string& folder) {
  NamedData data;
  data.bytes[kWeight] = of_floats(5.0F);
  const Bytes blob = network(model(kWeight, "steps 1 50\n"));
  const LoadOptions options = kept_in(folder);
  std::unique_ptr<Delegate> delegates[4], last;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      CHECK_OK(try_load(blob, &delegates[i], options, &data));
      check_call(*delegates[i], 1.0F, 5.0F);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(data.reads == 1 && counter("engines") == 1);
  CHECK_OK(try_load(blob, &last, options, nullptr));
  check_call(*last, 1.0F, 5.0F);
}

void test_missing_named_data() {
  NamedData data;
  std::unique_ptr<Delegate> none;
  const Bytes blob = network(model(kWeight));
  CHECK_FAILS(try_load(blob, &none, kept_in("off"), nullptr), "the program has no named data");
  CHECK_FAILS(try_load(blob, &none, kept_in("off"), &data),
              "the program has no usable named data some_weight (error 0x20)");
  CHECK(none == nullptr && counter("engines") == 0);
}

// Every call of CUDA and of TensorRT fails once.
void test_faults() {
  NamedData data;
  data.bytes[kWeight] = of_floats(7.0F);
  const Bytes blob = network(model(kWeight));
  int failures = 0;
  for (uint64_t n = 1;; ++n) {
    std::unique_ptr<Delegate> delegate;
    (void)trt_et_sim_fail_after(n);
    const Status status = try_load(blob, &delegate, kept_in("off"), &data);
    (void)trt_et_sim_fail_after(0);
    if (status.ok()) break;
    CHECK(!status.text.empty() && delegate == nullptr && counter("engines") == 0);
    ++failures;
  }
  CHECK(failures >= 4);
}

// One network that was exported with other ranges, or for another typical size, has other engines:
// in a process as in the folder, whichever comes first.
void test_ranges(const std::string& folder) {
  NamedData data;
  data.bytes[kWeight] = of_floats(2.0F);
  const std::string bytes = model(kWeight, "", "-1,8");
  const auto of = [&](const char* best, const char* high) {
    return network(bytes, kWeight, io("-1,8", range("1,8", best, high)));
  };
  const Bytes blobs[] = {of("2,8", "4,8"), of("2,8", "8,8"), of("3,8", "4,8")};
  for (const std::string& where : {std::string("off"), folder}) {
    std::unique_ptr<Delegate> loaded[4];
    for (size_t i = 0; i < 4; ++i) {
      CHECK_OK(try_load(blobs[i % 3], &loaded[i], kept_in(where), &data));
    }
    CHECK(counter("engines") == 3);  // The last one is the first one's.
    std::vector<float> in(64, 1.0F), out(64);
    OwnedTensor x({8, 8}, in.data()), y({8, 8}, out.data());
    CHECK_OK(call(*loaded[1], {&x.value, &y.value}));
    CHECK(out[63] == 2.0F);
    CHECK_FAILS(call(*loaded[0], {&x.value, &y.value}), "expected [1, 8] to [4, 8]");
  }
}

std::string g_log;

// An engine of the folder, whole, that TensorRT refuses, or that has other inputs and outputs.
void test_refused_engine(const std::string& folder) {
  NamedData data;
  data.bytes[kWeight] = of_floats(6.0F);
  const Bytes blob = network(model(kWeight));
  LoadOptions options = kept_in(folder + "/refused");
  std::unique_ptr<Delegate> delegate;
  CHECK_OK(try_load(blob, &delegate, options, &data));
  delegate.reset();
  const std::string file = fs::directory_iterator(options.engine_folder)->path();
  const Bytes whole = read_bytes(file);
  const auto replace = [&](std::string engine) {
    constexpr size_t kHeader = 64, kSize = 8, kChecksum = 16;
    uint64_t size = 0;
    std::memcpy(&size, &whole[kSize], sizeof size);
    engine.resize(size);
    const uint32_t checksum = crc32c(0, engine.data(), engine.size());
    Bytes changed = whole;
    std::memcpy(&changed[kChecksum], &checksum, sizeof checksum);
    std::memcpy(&changed[kHeader], engine.data(), engine.size());
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(changed.data()),
               static_cast<std::streamsize>(changed.size()));
  };
  for (const char* engine : {"another", "fake\ninput a float32 2,8\noutput b float32 2,8\n"}) {
    replace(engine);
    options.build = false;
    const Status refused = try_load(blob, &delegate, options, nullptr);
    CHECK(!refused.ok() && refused.text.find(file) != std::string::npos);
    CHECK(fs::exists(file));
    options.build = true;
    g_log.clear();
    trt_et_set_log_function([](int, const char* text) { g_log += std::string(text) + "\n"; });
    CHECK_OK(try_load(blob, &delegate, options, &data));
    trt_et_set_log_function(nullptr);
    CHECK(g_log.find("the built engine " + file + " is refused, and will be") != g_log.npos);
    check_call(*delegate, 1.0F, 6.0F);
    delegate.reset();
    CHECK(read_bytes(file) == whole);
  }
  fs::remove_all(options.engine_folder);
}

// An engine that was built just now, and that TensorRT refuses, is not built again.
void test_an_engine_that_is_refused_at_once(const std::string& folder) {
  NamedData data;
  data.bytes[kWeight] = of_floats(6.0F);
  const std::string bytes = model(kWeight, "plugin missing_from_here\n");
  std::unique_ptr<Delegate> none;
  for (const std::string& where : {std::string("off"), folder + "/refused"}) {
    const int before = data.reads;
    CHECK(!try_load(network(bytes), &none, kept_in(where), &data).ok());
    CHECK(data.reads == before + 1);
  }
  fs::remove_all(folder + "/refused");
}

std::atomic<int> g_building{0}, g_most{0};
std::atomic<bool> g_give_up{false};

// Threads build one engine after another, and all of them can be ended.
void test_builds_take_turns() {
  NamedData data;
  data.bytes[kWeight] = of_floats(2.0F);
  trt_et_set_build_progress([](const char*, int32_t step, int32_t steps) {
    if (g_give_up) return 0;
    if (step == 0) g_most = std::max(g_most.load(), ++g_building);
    if (step == steps) --g_building;
    return 1;
  });
  for (const bool give_up : {false, true}) {
    g_give_up = give_up;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        const Bytes blob = network(model(kWeight, "steps 3 2" + std::to_string(i) + "\n"));
        std::unique_ptr<Delegate> delegate;
        const Status status = try_load(blob, &delegate, kept_in("off"), &data);
        CHECK(status.ok() == !give_up);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(g_most == 1);
  }
  trt_et_set_build_progress(nullptr);
}

int g_told = 0;

void test_progress() {
  NamedData data;
  data.bytes[kWeight] = of_floats(2.0F);
  std::unique_ptr<Delegate> delegate;
  trt_et_set_build_progress([](const char*, int32_t, int32_t steps) {
    CHECK(steps == 9);
    return ++g_told < 4 ? 1 : 0;
  });
  CHECK_FAILS(try_load(network(model(kWeight, "steps 9 0\n")), &delegate, kept_in("off"), &data),
              "ended by the caller's progress function");
  trt_et_set_build_progress(nullptr);
  CHECK(g_told == 4);
}

// As Torch-TensorRT writes it: the engine alone.
void test_engine_beside_the_program() {
  const std::string plan = kDoublingPlan;
  const std::string bindings = foreign("x", true) + "," + foreign("y", false);
  const Bytes blob = make_blob(bindings, "", R"(,"engine_key":"key")", /*ours=*/false);
  std::unique_ptr<Delegate> delegate;
  NamedData data;
  const char* const missing = "is in a file of its own beside the program (.ptd): load the program";
  CHECK_FAILS(try_load(blob, &delegate), missing);
  CHECK_FAILS(try_load(blob, &delegate, {}, &data), missing);
  data.bytes["key"] = plan + "scale y x 3\n";
  CHECK_OK(try_load(blob, &delegate, {}, &data));
  check_call(*delegate, 1.0F, 3.0F);
  data.bytes["key"] = plan;
  CHECK_OK(try_load(blob, &delegate, {}, &data));
  data.bytes.clear();
  check_call(*delegate, 1.0F, 2.0F);
}

// Puts a blob's engine and what comes before it into a file of ours.
void put_beside(const Bytes& blob, NamedData* data) {
  Blob parsed;
  CHECK_OK(parse_blob(blob.data(), blob.size(), &parsed));
  const char* const bytes = reinterpret_cast<const char*>(blob.data());
  data->bytes["key_front"].assign(bytes, parsed.engine_offset);
  data->bytes["key"].assign(bytes + parsed.engine_offset, parsed.engine_size);
}

void test_replaced_engines() {
  const Bytes blob = make_blob(io("2,8"), "", R"(,"engine_key":"key")");
  std::unique_ptr<Delegate> first, second, third, none;
  NamedData data, newer;
  put_beside(doubling_blob(), &data);
  put_beside(unary_blob("2,8", "scale y x 3\n"), &newer);
  CHECK_OK(try_load(blob, &first, {}, &data));
  CHECK_OK(try_load(blob, &second, {}, &data));
  CHECK(counter("engines") == 1);
  // Another file beside an equal program, while the first one's engine is in use.
  CHECK_OK(try_load(blob, &third, {}, &newer));
  check_call(*first, 1.0F, 2.0F);
  check_call(*third, 1.0F, 3.0F);
  std::swap(data.bytes["key"], newer.bytes["key"]);
  CHECK_FAILS(try_load(blob, &none, {}, &data), "the engine 'key' in the .ptd file: engine blob");
  std::swap(data.bytes["key"], newer.bytes["key"]);
  data.bytes["key"][3] ^= 1;
  CHECK_FAILS(try_load(blob, &none, {}, &data), "engine blob is corrupt: checksum");
  data.bytes["key"][3] ^= 1;
  data.bytes["key_front"].pop_back();
  CHECK_FAILS(try_load(blob, &none, {}, &data), "the engine 'key' in the .ptd file: engine blob");
  // Memory is planned for the program's GPU, whatever the file was exported for.
  Bytes elsewhere = doubling_blob();
  const std::string device = "\"device_id\":0";
  *(std::search(elsewhere.begin(), elsewhere.end(), device.begin(), device.end()) +
    static_cast<std::ptrdiff_t>(device.size()) - 1) = '1';
  seal(elsewhere);
  put_beside(elsewhere, &data);
  CHECK_OK(try_load(blob, &none, {}, &data));
  CHECK(counter("live_bytes:1") == 0);
  none.reset();
  put_beside(unary_blob("2,9", "scale y x 3\n"), &data);
  CHECK_FAILS(try_load(blob, &none, {}, &data), "has other inputs or outputs than the program");
  data.bytes["key"].clear();
  CHECK_FAILS(try_load(blob, &none, {}, &data), "the engine 'key' in the .ptd file: engine blob");
  data.bytes.erase("key_front");
  CHECK_FAILS(try_load(blob, &none, {}, &data),
              "the engine 'key' in the .ptd file has no checksum");
}

// A reference engine works in its bytes, which stay as long as it does.
void test_an_engine_that_keeps_its_bytes(const std::string& blob_file) {
  const Bytes whole = read_bytes(blob_file);
  uint32_t range[2];  // of the metadata: offset and size
  std::memcpy(range, &whole[4], sizeof range);
  std::string metadata(reinterpret_cast<const char*>(&whole[range[0]]), range[1]);
  metadata.insert(1, R"("engine_key":"key",)");
  NamedData data;
  put_beside(whole, &data);
  std::unique_ptr<Delegate> delegate;
  CHECK_OK(try_load(pack("TRRF", metadata, "", true), &delegate, {}, &data));
  float in[16] = {}, out[8] = {};
  OwnedTensor x({2, 8}, in), y({2, 4}, out);
  for (int i = 0; i < 3; ++i) CHECK_OK(call(*delegate, {&x.value, &y.value}));
}

}  // namespace

void test_networks(const std::string& blob_file) {
  std::string folder = (fs::temp_directory_path() / "trt-et-networks-XXXXXX").string();
  CHECK(mkdtemp(folder.data()) != nullptr);
  test_missing_named_data();
  test_damaged_weight(folder);
  test_threads(folder);
  test_ranges(folder);
  test_refused_engine(folder);
  test_an_engine_that_is_refused_at_once(folder);
  test_builds_take_turns();
  test_faults();
  test_progress();
  test_engine_beside_the_program();
  test_replaced_engines();
  test_an_engine_that_keeps_its_bytes(blob_file);
  CHECK(fs::remove_all(folder) == 5 + 1);  // Five engines.
}
