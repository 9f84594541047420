// A library of plugins that is linked to TensorRT, as libnvinfer_plugin is.
#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void fake_register_plugin(const char* name);

EXPORT bool initLibNvInferPlugins(void*, const char*) {
  fake_register_plugin("Twirl");
  return true;
}
