#include "npy.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trt_et::runner {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = sizeof kMagic - 1;
constexpr size_t kMaxHeader = size_t{1} << 16;

bool read_exactly(FILE* file, void* to, size_t size) {
  return size == 0 || std::fread(to, 1, size, file) == size;
}

// The Python dictionary at the front of the file.
bool read_header(FILE* file, std::string* header) {
  uint8_t front[kMagicSize + 2] = {}, length[4] = {};
  if (!read_exactly(file, front, sizeof front) || std::memcmp(front, kMagic, kMagicSize) != 0) {
    return false;
  }
  const uint8_t version = front[kMagicSize];
  if (version < 1 || version > 3 || !read_exactly(file, length, version == 1 ? 2 : 4)) return false;
  size_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= static_cast<size_t>(length[i]) << 8 * i;
  if (size > kMaxHeader) return false;
  header->resize(size);
  return read_exactly(file, header->data(), size);
}

// The text between what follows the key and the next `end`; numpy writes the keys in one way.
bool find(const std::string& header, const char* key, char end, std::string* value) {
  const size_t at = header.find(key);
  if (at == header.npos) return false;
  const size_t begin = at + std::strlen(key), stop = header.find(end, begin);
  if (stop == header.npos) return false;
  *value = header.substr(begin, stop - begin);
  return true;
}

// "2, 8" or "2,", without the parentheses.
bool parse_shape(const std::string& text, std::vector<int32_t>* shape) {
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    errno = 0;
    const long long size = std::strtoll(at, &end, 10);
    if (end == at || errno != 0 || size < 0 || size > INT32_MAX) return false;
    shape->push_back(static_cast<int32_t>(size));
    at = end + std::strspn(end, " ");
    if (*at == ',') at += 1 + std::strspn(at + 1, " ");
  }
  return true;
}

}  // namespace

bool read_npy(const std::string& path, size_t limit, NpyArray* array, std::string* problem) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return *problem = std::strerror(errno), false;
  std::string header, order, shape;
  if (!read_header(file.get(), &header) || !find(header, "'descr': '", '\'', &array->descr) ||
      !find(header, "'fortran_order': ", ',', &order) || !find(header, "'shape': (", ')', &shape) ||
      !parse_shape(shape, &array->shape)) {
    return *problem = "is no .npy file of one array", false;
  }
  if (order != "False") {
    return *problem = "is in Fortran order: save numpy.ascontiguousarray(...)", false;
  }
  array->bytes.resize(limit + 1);
  array->bytes.resize(std::fread(array->bytes.data(), 1, limit + 1, file.get()));
  if (std::ferror(file.get()) != 0) return *problem = "cannot be read", false;
  return true;
}

}  // namespace trt_et::runner
