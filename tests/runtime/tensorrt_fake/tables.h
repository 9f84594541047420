// Objects as TensorRT hands them out, by trt_et/runtime/src/tensorrt/interface/slots.def: the
// methods of the fake's classes in tables of the length that a version of TensorRT has.
#pragma once

#include <NvInferRuntime.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace fake {

// What this library says that it is: TRT_ET_FAKE_VERSION, or the newest.
inline const trt_et::tensorrt::Version& version() {
  static const auto known = [] {
    trt_et::tensorrt::Version newest{trt_et::tensorrt::kMajor, trt_et::tensorrt::kLastMinor + 3, 3};
    const char* named = std::getenv("TRT_ET_FAKE_VERSION");
    if (named != nullptr) (void)trt_et::tensorrt::Version::parse(named, &newest);
    return newest;
  }();
  return known;
}

using Table = std::array<void*, 80>;

[[noreturn]] inline void missing_slot(void*) {
  std::fprintf(stderr, "fake TensorRT: a call of a slot that it does not have\n");
  std::abort();
}

// The library's allocations are not the delegate's: see trt_et_sim_services.inside.
inline void (*g_inside)(int) = nullptr;
struct Inside {
  Inside() {
    if (g_inside != nullptr) g_inside(1);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (g_inside != nullptr) g_inside(-1);
  }
};

template <auto method>
struct Thunk;

template <class T, class R, class... A, R (T::*method)(A...) noexcept>
struct Thunk<method> {
  static R call(void* self, A... arguments) {
    const Inside inside;
    return (static_cast<T*>(self)->*method)(arguments...);
  }
};

template <class Slot, auto method>
void put(Table& table) {
  const typename Slot::Function function = &Thunk<method>::call;
  if (trt_et::tensorrt::has<Slot>(version())) {
    table[Slot::kNumber] = reinterpret_cast<void*>(function);
  }
}

template <class Implementation>
Table& table_of() {
  static Table table = [] {
    Table all;
    all.fill(reinterpret_cast<void*>(&missing_slot));
    return all;
  }();
  return table;
}

// What the implementation of an object begins with.
template <class Implementation>
struct Tabled {
  const void* table = table_of<Implementation>().data();
};

// The object around an implementation.
template <class Interface, class Implementation>
class Handle final : public Interface {
 public:
  template <class... Arguments>
  explicit Handle(Arguments&&... arguments) : inside(std::forward<Arguments>(arguments)...) {
    this->implementation_ = &inside;
  }

  Implementation inside;
};

}  // namespace fake
