#include "memory.h"

#include <algorithm>
#include <cstdio>

namespace trt_et::runner {

using executorch::runtime::DeviceMemoryBuffer;
using executorch::runtime::Span;
using executorch::runtime::etensor::Device;

namespace {

// Zeros: state that a program keeps across calls begins with them.
HostMemory zeros(size_t bytes) {
  return HostMemory(static_cast<uint8_t*>(std::calloc(bytes + 1, 1)));
}

}  // namespace

void SharedArenas::reserve(const executorch::runtime::MethodMeta& meta) {
  for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
    const auto size = meta.memory_planned_buffer_size(i);
    const auto device = meta.memory_planned_buffer_device(i);
    if (!size.ok() || *size < 0 || !device.ok() || !is_shared(i, *device)) continue;
    sizes_[i] = std::max(sizes_[i], static_cast<size_t>(*size));
  }
}

uint8_t* SharedArenas::memory(size_t index) {
  HostMemory& memory = memory_[index];
  if (memory == nullptr) memory = zeros(sizes_[index]);
  return memory.get();
}

uint8_t* MethodMemory::host_memory(size_t index, size_t bytes, SharedArenas& shared) {
  uint8_t* memory = nullptr;
  if (SharedArenas::is_shared(index, devices_[index])) {
    memory = shared.memory(index);
  } else {
    host_.push_back(zeros(bytes));
    memory = host_.back().get();
  }
  if (memory == nullptr) {
    std::fprintf(stderr, "executor_runner: no memory for a planned buffer of %zu bytes\n", bytes);
  }
  return memory;
}

bool MethodMemory::plan(const executorch::runtime::MethodMeta& meta, SharedArenas& shared) {
  bool on_device = false;
  for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
    const auto size = meta.memory_planned_buffer_size(i);
    const auto device = meta.memory_planned_buffer_device(i);
    if (!size.ok() || *size < 0 || !device.ok()) {
      std::fprintf(stderr, "executor_runner: the program's memory plan is broken at buffer %zu\n",
                   i);
      return false;
    }
    const auto bytes = static_cast<size_t>(*size);
    devices_.push_back(*device);
    if (device->is_cpu()) {
      uint8_t* memory = host_memory(i, bytes, shared);
      if (memory == nullptr) return false;
      spans_.emplace_back(memory, bytes);
      continue;
    }
    on_device = true;
    auto buffer = DeviceMemoryBuffer::create(bytes, device->type(), device->index());
    if (!buffer.ok()) {
      std::fprintf(stderr, "executor_runner: no memory of %zu bytes on cuda:%d: %s\n", bytes,
                   device->index(), executorch::runtime::to_string(buffer.error()));
      return false;
    }
    spans_.push_back(buffer->as_span());
    device_.push_back(std::move(*buffer));
  }
  const Span<Span<uint8_t>> spans(spans_.data(), spans_.size());
  if (on_device) {
    planned_.emplace(spans, Span<const Device>(devices_.data(), devices_.size()));
  } else {
    planned_.emplace(spans);
  }
  manager_.emplace(&method_allocator_, &*planned_, &temp_allocator_);
  return true;
}

const Device* MethodMemory::device_of(const void* pointer) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (size_t i = 0; i < spans_.size(); ++i) {
    const auto base = reinterpret_cast<uintptr_t>(spans_[i].data());
    if (!devices_[i].is_cpu() && address >= base && address - base < spans_[i].size()) {
      return &devices_[i];
    }
  }
  return nullptr;
}

}  // namespace trt_et::runner
