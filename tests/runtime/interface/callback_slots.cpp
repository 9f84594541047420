// Whether the classes of callbacks.h have their methods where slots.def says: the exit status.
#include <cstring>

#include "tensorrt/version.h"

namespace {

// The Itanium C++ ABI: a pointer to a virtual method is one more than its offset in the table.
template <class Method>
long slot_of(Method method) {
  ptrdiff_t offset = 0;
  std::memcpy(&offset, &method, sizeof offset);
  return (offset - 1) / static_cast<long>(sizeof(void*));
}

constexpr long expected(long of_10, long of_11, long of_rtx) {
  return trt_et::tensorrt::kRtx ? of_rtx : TRT_ET_INTERFACE == 10 ? of_10 : of_11;
}

}  // namespace

int main() {
  int wrong = 0;
#define TRT_ET_SLOT(...)
#define TRT_ET_RTX_SLOT(...)
#define TRT_ET_CALLBACK(table, method, of_10, of_11, of_rtx) \
  wrong += slot_of(&trt_et::nvinfer::I##table::method) != expected(of_10, of_11, of_rtx);
#include "tensorrt/interface/slots.def"
  return wrong;
}
