#include "frontends/cli/npy.h"

#include <fmt/format.h>

#include <bit>

namespace bellhop::cli {

static_assert(std::endian::native == std::endian::little, "'<f4' is the memory's own order");

std::string NpyFile(HostSpan<const float> values, int64_t rows, int64_t columns) {
  // The format wants magic, version, length and header to fill whole blocks of 64 bytes, and a line feed last.
  constexpr size_t kBlock = 64, kPrefix = 10;
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  header.append(kBlock - (kPrefix + header.size() + 1) % kBlock, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return file;
}

}  // namespace bellhop::cli
