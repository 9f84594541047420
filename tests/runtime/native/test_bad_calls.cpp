// A table of calls that a delegate must refuse, each with its reason; after each, the same engine
// runs as before.
#include <functional>
#include <stdexcept>

#include "backend_calls.h"
#include "common/log.h"
#include "cuda/device_allocator.h"
#include "tests.h"
#include "trt_et/options.h"

using namespace trt_et;

namespace {

// What the calls are made with: an engine of [2, 8], one of [1 to 4, 8], one of int64, one of [1],
// one of two inputs, one in the order of channels last, and memory on the host and on two GPUs.
struct Parts {
  Parts() {
    CHECK(fixed.init(scale_blob()) == Error::Ok);
    CHECK(dynamic.init(unary_blob(
              "-1,8", "profile\nrange x 1,8 1,8 1,8\nprofile\nrange x 3,8 3,8 4,8\nscale y x 2\n",
              range("1,8", "2,8", "4,8"))) == Error::Ok);
    CHECK(two.init(plan_blob("fake\ninput x float32 2,8\ninput z float32 4\n"
                             "output y float32 2,8\nscale y x 2\n")) == Error::Ok);
    CHECK(turned.init(unary_blob("1,4,4,3", "scale y x 2\n", ",\"dim_order\":[0,2,3,1]")) ==
          Error::Ok);
    freed = std::make_unique<Device>(16, 0, 1.0F);
    stale = freed->data;
    freed.reset();
  }

  void check_fine() {
    host.assign(64, 3.0F);
    out.assign(64, 0.0F);
    OwnedTensor x({2, 8}, host.data()), y({2, 8}, out.data()), z({4}, host.data());
    CHECK(fixed.execute({&x.value, &y.value}) == Error::Ok && out[15] == 6.0F);
    out[15] = 0.0F;
    CHECK(two.execute({&x.value, &z.value, &y.value}) == Error::Ok && out[15] == 6.0F);
    OwnedTensor one({1, 8}, host.data()), large({4, 8}, out.data());
    CHECK(dynamic.execute({&one.value, &large.value}) == Error::Ok && out[7] == 6.0F);
    CHECK(large.value.toTensor().size(0) == 1);
  }

  BackendDelegate fixed, dynamic, two, turned, none;
  std::vector<float> host = std::vector<float>(64, 3.0F), out = std::vector<float>(64);
  Device here{64, 0, 1.0F}, there{64, 1, 1.0F};
  std::unique_ptr<Device> freed;
  void* stale = nullptr;
};

using Call = std::function<Error(Parts&)>;

struct Case {
  Error error;
  const char* reason;
  Call call;
};

// A call of the engine of [2, 8] with memory from these, and with another input or output.
Call memory(std::function<void*(Parts&)> from, std::function<void*(Parts&)> to,
            std::vector<int32_t> in = {2, 8}, ScalarType in_dtype = ScalarType::Float,
            std::vector<int32_t> out = {2, 8}, ScalarType out_dtype = ScalarType::Float) {
  return [=](Parts& parts) {
    OwnedTensor x(in, from(parts), in_dtype), y(out, to(parts), out_dtype);
    return parts.fixed.execute({&x.value, &y.value});
  };
}

void* on_host(Parts& parts) { return parts.host.data(); }
void* to_host(Parts& parts) { return parts.out.data(); }
void* nowhere(Parts&) { return nullptr; }
void* freed(Parts& parts) { return parts.stale; }

Call input(std::vector<int32_t> shape, ScalarType dtype = ScalarType::Float) {
  return memory(on_host, to_host, shape, dtype);
}

Call output(std::vector<int32_t> shape, ScalarType dtype = ScalarType::Float) {
  return memory(on_host, to_host, {2, 8}, ScalarType::Float, shape, dtype);
}

Call dynamic_input(std::vector<int32_t> shape) {
  return [=](Parts& parts) {
    OwnedTensor x(shape, parts.host.data()), y({4, 8}, parts.out.data());
    return parts.dynamic.execute({&x.value, &y.value});
  };
}

// A list of values of which some are no tensors: "t" is the input, "y" the output, "i" an integer,
// "b" a boolean, "n" no value at all, "e" an empty one.
Call values(const char* kinds) {
  return [=](Parts& parts) {
    OwnedTensor x({2, 8}, parts.host.data()), y({2, 8}, parts.out.data());
    EValue number(int64_t{8}), flag(true), empty;
    std::vector<EValue*> list;
    for (const char* kind = kinds; *kind != '\0'; ++kind) {
      list.push_back(*kind == 't'   ? &x.value
                     : *kind == 'y' ? &y.value
                     : *kind == 'i' ? &number
                     : *kind == 'b' ? &flag
                     : *kind == 'e' ? &empty
                                    : nullptr);
    }
    return parts.fixed.execute(list);
  };
}

Call layout(std::vector<uint8_t> order) {
  return [=](Parts& parts) {
    OwnedTensor x({2, 8}, parts.host.data()), y({2, 8}, parts.out.data());
    x.order = order;
    x.impl = std::make_unique<OwnedTensor::TensorImpl>(
        ScalarType::Float, 2, x.sizes.data(), parts.host.data(), x.order.data(), x.strides.data());
    x.value = EValue(OwnedTensor::Tensor(x.impl.get()));
    return parts.fixed.execute({&x.value, &y.value});
  };
}

Call other_layout_than_channels_last(int wrong) {
  return [=](Parts& parts) {
    OwnedTensor x({1, 3, 4, 4}, parts.host.data()), y({1, 3, 4, 4}, parts.out.data());
    if (wrong == 1) std::swap(x.order[1], x.order[3]);
    return parts.turned.execute({&x.value, &y.value});
  };
}

Call init(std::function<Bytes()> blob) {
  return [=](Parts& parts) { return parts.none.init(blob()); };
}

Call spec(const char* key, const char* text) {
  return [=](Parts& parts) {
    std::string value(text);
    CompileSpec given{key, {value.data(), value.size()}};
    return parts.none.init(scale_blob(), {given});
  };
}

// More indices than there can be tensors.
Call endless_spec(const char* key) {
  return [=](Parts& parts) {
    std::string value = "0";
    for (int i = 0; i < 1 << 20; ++i) value += ",0";
    return parts.none.init(scale_blob(), {{key, {value.data(), value.size()}}});
  };
}

Call option(const char* key, const char* text) {
  return [=](Parts&) { return set_option(key, text); };
}

Bytes edited(size_t at, uint8_t change) {
  Bytes blob = scale_blob();
  blob[at] ^= change;
  return blob;
}

Bytes cut(size_t size) {
  Bytes blob = scale_blob();
  blob.resize(size);
  return blob;
}

std::vector<Case> calls_with_wrong_values() {
  constexpr Error kWrong = Error::InvalidArgument;
  return {
      {kWrong, "got 0 tensors", values("")},
      {kWrong, "got 1 tensors", values("t")},
      {kWrong, "got 3 tensors", values("tyy")},
      {kWrong, "got 0 tensors", values("iiii")},
      {kWrong, "got 1 tensors", values("ti")},
      {kWrong, "got 1 tensors", values("iy")},
      {kWrong, "is not a tensor", values("by")},
      {kWrong, "is not a tensor", values("tb")},
      {kWrong, "is not a tensor", values("ny")},
      {kWrong, "is not a tensor", values("tn")},
      {kWrong, "is not a tensor", values("ey")},
      {kWrong, "is not a tensor", values("te")},
      {kWrong, "has dtype int32, expected float32", input({2, 8}, ScalarType::Int)},
      {kWrong, "has dtype int64, expected float32", input({2, 8}, ScalarType::Long)},
      {kWrong, "has dtype bool, expected float32", input({2, 8}, ScalarType::Bool)},
      {kWrong, "has dtype unsupported, expected float32", input({2, 8}, ScalarType::ComplexFloat)},
      {kWrong, "has dtype int32, expected float32", output({2, 8}, ScalarType::Int)},
      {kWrong, "has dtype float64, expected float32", output({2, 8}, ScalarType::Double)},
      {kWrong, "has rank 1, expected [2, 8]", input({16})},
      {kWrong, "has rank 3, expected [2, 8]", input({1, 2, 8})},
      {kWrong, "has rank 17, expected [2, 8]", input(std::vector<int32_t>(17, 1))},
      {kWrong, "has rank 1, expected [2, 8]", output({16})},
      {kWrong, "has shape [2, 9], expected [2, 8]", input({2, 9})},
      {kWrong, "has shape [1, 8], expected [2, 8]", input({1, 8})},
      {kWrong, "sizes of an engine begin at 1", input({0, 8})},
      {kWrong, "no room for shape [2, 8]", output({2, 7})},
      {kWrong, "no room for shape [2, 8]", output({0, 8})},
      {kWrong, "another memory layout", layout({1, 0})},
      {kWrong, "another memory layout than the expected dim order",
       other_layout_than_channels_last(0)},
      {kWrong, "another memory layout than the expected dim order",
       other_layout_than_channels_last(1)},
      {kWrong, "[5, 8], expected [1, 8] to [4, 8]", dynamic_input({5, 8})},
      {kWrong, "[1, 9], expected [1, 8] to [4, 8]", dynamic_input({1, 9})},
      {kWrong, "sizes of an engine begin at 1", dynamic_input({0, 8})},
      {kWrong, "optimization profiles takes x[2, 8]", dynamic_input({2, 8})},
      {kWrong, "has rank 1", dynamic_input({8})},
      {kWrong, "data is null", memory(nowhere, on_host)},
      {kWrong, "data is null", memory(on_host, nowhere)},
      {kWrong, "data is null", memory(nowhere, nowhere)},
      {Error::InvalidArgument, "use after free", memory(freed, on_host)},
      {Error::InvalidArgument, "use after free", memory(on_host, freed)},
  };
}

std::vector<Case> calls_out_of_order() {
  constexpr Error kWrong = Error::InvalidArgument;
  constexpr Error kBroken = Error::InvalidProgram;
  return {
      {Error::DelegateInvalidHandle, "", [](Parts& parts) { return parts.none.execute({}); }},
      {kBroken, "its header alone needs 32", init([] { return Bytes(); })},
      {kBroken, "its header alone needs 32", init([] { return cut(31); })},
      {kBroken, "lies outside", init([] { return cut(100); })},
      {kBroken, "lies outside", init([] { return cut(scale_blob().size() - 1); })},
      {kBroken, "not an engine blob", init([] { return edited(0, 1); })},
      {kBroken, "corrupt: checksum", init([] { return edited(28, 1); })},
      {kBroken, "corrupt: checksum", init([] { return edited(60, 4); })},
      {kBroken, "", init([] { return Bytes(64, 0); })},
      {Error::NotFound, "cuda:99 but this machine has 2 GPU(s)", spec("device", "99")},
      {kWrong, "option device", spec("device", "-1")},
      {kWrong, "option device", spec("device", "cuda:")},
      {kWrong, "option cuda_graphs", spec("cuda_graphs", "maybe")},
      {kWrong, "option execution_contexts", spec("execution_contexts", "1e9")},
      {kWrong, "option weight_streaming_budget", spec("weight_streaming_budget", "-2")},
      {Error::InvalidProgram, "expected indices of tensors", endless_spec("state_inputs")},
      {Error::InvalidProgram, "expected indices of tensors", endless_spec("device_state")},
      {kBroken, "state_inputs", spec("state_inputs", "")},
      {kBroken, "state_inputs", spec("state_inputs", "0,")},
      {kBroken, "state_inputs", spec("state_inputs", "99999999999999999999")},
      {kBroken, "device_state names tensor 2 of 2", spec("device_state", "2")},
      {Error::NotFound, "no option 'nonsense'", option("nonsense", "1")},
      {kWrong, "option device", option("device", "cuda:128")},
      {kWrong, "option runtime_cache", option("runtime_cache", "relative/folder")},
      {kWrong, "option plugin_libraries", option("plugin_libraries", "/a.so:b.so")},
      {kWrong, "option dla_core", option("dla_core", "-1")},
      {kWrong, "option engine_host_code", option("engine_host_code", "yes")},
      {kWrong, "option build (TRT_ET_BUILD)", spec("build", "no")},
      {kWrong, "option engine_folder", option("engine_folder", "relative/folder")},
      {kWrong, "option dla_core",
       [](Parts&) { return Options().engine_host_code(false).dla_core(-1).set(); }},
      {kWrong, "option plugin_libraries",
       [](Parts&) { return Options().plugin_libraries("plugins.so").set(); }},
  };
}

// Nothing may throw into ExecuTorch, whatever it is.
template <typename T>
Case thrown(Error error, const char* reason, const T& exception) {
  return {error, reason,
          [exception](Parts&) { return enter([&]() -> Status { throw exception; }); }};
}

size_t check(Parts& parts, const std::vector<Case>& cases) {
  int wrong = 0;
  for (const Case& one : cases) {
    const Error error = one.call(parts);
    const std::string reason = trt_et_last_error();
    if (error != one.error || reason.find(one.reason) == std::string::npos) {
      std::fprintf(stderr, "bad call %td: error %d with '%s', expected %d with '%s'\n",
                   &one - cases.data(), static_cast<int>(error), reason.c_str(),
                   static_cast<int>(one.error), one.reason);
      ++wrong;
    }
    parts.check_fine();
  }
  CHECK(wrong == 0);
  return cases.size();
}

}  // namespace

void test_bad_calls(const std::string&) {
  size_t count = 0;
  {
    Parts parts;
    parts.check_fine();
    count += check(parts, calls_with_wrong_values()) + check(parts, calls_out_of_order());
    check(parts, {thrown(Error::MemoryAllocationFailed, "bad_alloc", std::bad_alloc()),
                  thrown(Error::Internal, "reason", std::runtime_error("reason")),
                  thrown(Error::Internal, "an exception of an unknown type", 7)});
    parts.fixed.destroy();
    parts.fixed.destroy();  // Of nothing.
  }
  CHECK(counter("engines") == 0);
  std::printf("R10 %zu bad calls refused, every engine usable afterwards\n", count);
}
