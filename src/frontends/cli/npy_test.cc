#include "frontends/cli/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace bellhop::cli {
namespace {

TEST(NpyFileTest, HasTheDocumentedLayout) {
  const std::vector<float> values{1, 2, 3, 4, 5, -6.5f};
  const std::string file = NpyFile(values, 2, 3);
  EXPECT_EQ(file.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length = static_cast<unsigned char>(file[8]) + 256u * static_cast<unsigned char>(file[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  const std::string header = file.substr(10, length);
  EXPECT_EQ(header.substr(0, header.find_last_not_of(" \n") + 1),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  EXPECT_EQ(header.back(), '\n');
  ASSERT_EQ(file.size(), 10 + length + values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(file.data() + 10 + length, values.data(), values.size() * sizeof(float)), 0);
}

TEST(NpyFileTest, EveryHeaderLengthIsAligned) {
  for (int64_t rows = 1; rows < 1'000'000'000'000; rows *= 10) {
    const std::string file = NpyFile({}, rows, 1);
    EXPECT_EQ(file.size() % 64, 0u) << rows;
    EXPECT_EQ(file.back(), '\n');
  }
}

}  // namespace
}  // namespace bellhop::cli
