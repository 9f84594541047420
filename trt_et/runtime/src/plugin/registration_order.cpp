#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plugin.h"

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

// A program or a library, as the dynamic loader has it.
class Module {
 public:
  explicit Module(const link_map& map) : base_(map.l_addr), dynamic_(map.l_ld) {}

  // Whether it refers to one of the functions, which is defined in another module.
  bool refers_to_registration() const {
    return refers(DT_JMPREL, DT_PLTRELSZ) || refers(DT_RELA, DT_RELASZ);
  }

 private:
  uintptr_t value(ElfW(Sxword) tag) const {
    for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry) {
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
    return std::any_of(relocations + first, relocations + count, [&](const ElfW(Rela) & one) {
      const ElfW(Sym) & symbol = symbols[ELF64_R_SYM(one.r_info)];
      const std::string_view name = names + symbol.st_name;
      return symbol.st_shndx == SHN_UNDEF &&
             (name == kRegistrations[0] || name == kRegistrations[1]);
    });
  }

  const uintptr_t base_;
  const ElfW(Dyn) * dynamic_;
};

}  // namespace

// _DYNAMIC is this module's.
bool another_allocator_comes() {
  if (trt_et_cuda_allocator_of_executorch != nullptr) return true;
  const link_map* map = _r_debug.r_map;
  while (map != nullptr && (map->l_ld == _DYNAMIC || !Module(*map).refers_to_registration())) {
    map = map->l_next;
  }
  return map != nullptr;
}

}  // namespace trt_et
