// Reads float32 .npy files (C order, version 1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bellhop::test {

struct Npy {
  std::vector<int64_t> shape;
  std::vector<float> values;
  // Elements after the first `dims` dimensions.
  int64_t RowSize(size_t dims) const;
};

// Fails the running test when the file is missing or not of this kind.
Npy ReadNpy(const std::string& path);

}  // namespace bellhop::test
