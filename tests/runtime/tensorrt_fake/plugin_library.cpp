// A library of plugins that TensorRT's registry loads.
#define EXPORT __attribute__((visibility("default")))

extern "C" {
EXPORT extern const char fake_plugin[];
const char fake_plugin[] = "Swirl";

EXPORT void* getCreators(int* count) {
  *count = 0;
  return nullptr;
}
}
