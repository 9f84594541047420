#include "registration_order.h"

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// CudaAllocator::instance() of ExecuTorch's CUDA backend; null unless this program or library
// contains that backend. Such a reference is in no table of the dynamic loader.
extern "C" __attribute__((weak)) void trt_et_cuda_allocator_of_executorch(void) __asm__(
    "_ZN10executorch8backends4cuda13CudaAllocator8instanceEv");

namespace trt_et {
namespace {

static_assert(sizeof(void*) == 8, "relocations are read as 64-bit ELF has them");

// ExecuTorch's register_device_allocator(), and the member function that it calls.
constexpr const char* kRegistrations[] = {
    "_ZN10executorch7runtime25register_device_allocatorEPNS0_15DeviceAllocatorE",
    "_ZN10executorch7runtime23DeviceAllocatorRegistry18register_allocatorEPNS0_"
    "15DeviceAllocatorE"};

// What the dynamic loader knows of one module, by tag.
class Module {
 public:
  explicit Module(const dl_phdr_info& info) : base_(info.dlpi_addr) {
    for (size_t i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr) & header = info.dlpi_phdr[i];
      if (header.p_type == PT_LOAD) add_range(header);
      if (header.p_type != PT_DYNAMIC) continue;
      dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(base_ + header.p_vaddr);
    }
  }

  bool holds(const void* pointer) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return address >= begin_ && address < end_;
  }

  // Whether it refers to one of the functions, which is defined in another module.
  bool refers_to_registration() const {
    return refers(DT_JMPREL, DT_PLTRELSZ) || refers(DT_RELA, DT_RELASZ);
  }

 private:
  void add_range(const ElfW(Phdr) & header) {
    const uintptr_t begin = base_ + header.p_vaddr, end = begin + header.p_memsz;
    if (begin < begin_) begin_ = begin;
    if (end > end_) end_ = end;
  }

  uintptr_t value(ElfW(Sxword) tag) const {
    const ElfW(Dyn)* entry = dynamic_;
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == tag) return entry->d_un.d_val;
    }
    return 0;
  }

  // glibc relocates the addresses in this table, other C libraries do not.
  template <typename T>
  const T* at(ElfW(Sxword) tag) const {
    const uintptr_t address = value(tag);
    if (address == 0) return nullptr;
    return reinterpret_cast<const T*>(address < base_ ? base_ + address : address);
  }

  bool refers(ElfW(Sxword) table_tag, ElfW(Sxword) size_tag) const {
    const auto* relocations = at<ElfW(Rela)>(table_tag);
    const auto* symbols = at<ElfW(Sym)>(DT_SYMTAB);
    const auto* names = at<char>(DT_STRTAB);
    if (relocations == nullptr || symbols == nullptr || names == nullptr) return false;
    const size_t count = value(size_tag) / sizeof(ElfW(Rela));
    // Those without a symbol come first.
    const size_t first = table_tag == DT_RELA ? value(DT_RELACOUNT) : 0;
    for (size_t i = first; i < count; ++i) {
      const ElfW(Sym) & symbol = symbols[ELF64_R_SYM(relocations[i].r_info)];
      if (symbol.st_shndx != SHN_UNDEF) continue;
      for (const char* name : kRegistrations) {
        if (std::strcmp(names + symbol.st_name, name) == 0) return true;
      }
    }
    return false;
  }

  const uintptr_t base_;
  uintptr_t begin_ = UINTPTR_MAX, end_ = 0;
  const ElfW(Dyn) * dynamic_ = nullptr;
};

int look_at(dl_phdr_info* info, size_t, void*) {
  const Module module(*info);
  const bool ours = module.holds(reinterpret_cast<const void*>(&look_at));
  return !ours && module.refers_to_registration() ? 1 : 0;
}

}  // namespace

bool another_allocator_comes() {
  return trt_et_cuda_allocator_of_executorch != nullptr || dl_iterate_phdr(look_at, nullptr) != 0;
}

}  // namespace trt_et
