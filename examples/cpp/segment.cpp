// Segments an image: reads a PPM, writes the class of each pixel as a grey image (PGM).
//
//   TRT_ET_CUDA=simulated:1 segment model.pte image.ppm mask.pgm
//
// The program takes the image as uint8 [1, height, width, 3] and returns the classes as uint8
// [1, height, width] (docs/guides/vision.md).
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>
#include <trt_et/runtime.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using executorch::aten::ScalarType;
using executorch::extension::from_blob;

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: segment model.pte image.ppm mask.pgm\n"), 2;
  executorch::runtime::runtime_init();

  std::ifstream file(argv[2], std::ios::binary);
  std::string magic;
  int32_t width = 0, height = 0, largest = 0;
  file >> magic >> std::ws;
  while (file.peek() == '#') file.ignore(PTRDIFF_MAX, '\n') >> std::ws;  // GIMP's comment.
  file >> width >> height >> largest;
  file.get();  // One white space is between the header and the pixels.
  std::vector<char> pixels{std::istreambuf_iterator<char>(file), {}};
  if (magic != "P6" || largest != 255 || width < 1 || height < 1 ||
      pixels.size() / 3 / static_cast<size_t>(width) != static_cast<size_t>(height)) {
    return std::fprintf(stderr, "%s: no PPM (P6) of 8 bits, or a part of one\n", argv[2]), 1;
  }

  executorch::extension::Module module(argv[1]);
  const auto outputs =
      module.forward(from_blob(pixels.data(), {1, height, width, 3}, ScalarType::Byte));
  if (!outputs.ok()) {
    std::fprintf(stderr, "%s: %s %s\n", argv[1], executorch::runtime::to_string(outputs.error()),
                 trt_et_last_error());
    return 1;
  }
  const auto mask = outputs->at(0).tryToTensor();
  if (!mask.ok() || mask->scalar_type() != ScalarType::Byte ||
      mask->numel() != ssize_t{width} * height) {
    return std::fprintf(stderr, "%s returns no uint8 [1, height, width]\n", argv[1]), 1;
  }
  std::ofstream written(argv[3], std::ios::binary);
  written << "P5\n" << width << ' ' << height << "\n255\n";
  written.write(mask->const_data_ptr<char>(), mask->numel());
  return written.flush() ? 0 : (std::fprintf(stderr, "%s was not written\n", argv[3]), 1);
}
