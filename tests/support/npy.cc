#include "support/npy.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace bellhop::test {

int64_t Npy::RowSize(size_t dims) const {
  int64_t size = 1;
  for (size_t i = dims; i < shape.size(); ++i) size *= shape[i];
  return size;
}

Npy ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < 10 || bytes.compare(1, 5, "NUMPY") != 0) throw std::runtime_error(path + ": not a .npy file");
  const size_t header_bytes = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const std::string header = bytes.substr(10, header_bytes);
  if (header.find("'<f4'") == std::string::npos || header.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error(path + ": not float32 in C order");
  }
  Npy npy;
  const char* at = header.c_str() + header.find("'shape': (") + 10;
  while (*at != ')') {
    char* end = nullptr;
    npy.shape.push_back(std::strtoll(at, &end, 10));
    at = end;
    while (*at == ',' || *at == ' ') ++at;
  }
  npy.values.resize(static_cast<size_t>(npy.RowSize(0)));
  if (bytes.size() - 10 - header_bytes != npy.values.size() * sizeof(float))
    throw std::runtime_error(path + ": wrong size");
  std::memcpy(npy.values.data(), bytes.data() + 10 + header_bytes, npy.values.size() * sizeof(float));
  return npy;
}

}  // namespace bellhop::test
