#include "parser.h"

#include <dlfcn.h>

namespace trt_et::tensorrt {
namespace {

std::string parser_name() {
  return kRtx ? "libtensorrt_onnxparser_rtx.so.1" : "libnvonnxparser.so." + std::to_string(kMajor);
}

Status find_parser(const Library& library, ParserLibrary* parser) {
  const std::string name =
      std::string(kRtx ? "TensorRT-RTX " : "TensorRT ") + library.version.text();
  if (library.create_builder == nullptr) {
    return fail(Error::NotSupported, "%s here only runs engines: it has no builder (%.100s)",
                name.c_str(), library.path.c_str());
  }
  void* handle = nullptr;
  for (const std::string& folder : library_folders(library)) {
    handle = dlopen((folder + parser_name()).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  using VersionFunction = int32_t (*)();
  const auto version = reinterpret_cast<VersionFunction>(
      handle == nullptr ? nullptr : dlsym(handle, "getNvOnnxParserVersion"));
  if (handle != nullptr) {
    parser->create =
        reinterpret_cast<decltype(parser->create)>(dlsym(handle, "createNvOnnxParser_INTERNAL"));
  }
  if (version == nullptr || parser->create == nullptr) {
    return fail(Error::NotSupported, "%s here has no ONNX parser: install %s beside %.80s",
                name.c_str(), parser_name().c_str(), library.path.c_str());
  }
  parser->version = version();
  return {};
}

}  // namespace

Status open_parser(const Library& library, const ParserLibrary** parser) {
  struct Opened {
    explicit Opened(const Library& library) : result(find_parser(library, &parser)) {}
    ParserLibrary parser;
    const Status result;
  };
  static const auto* opened = new Opened(library);
  *parser = &opened->parser;
  return opened->result;
}

}  // namespace trt_et::tensorrt
