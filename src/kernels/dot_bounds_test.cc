// Dot products with every buffer beside a page that nothing may touch.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dot.h"
#include "kernels/guarded_buffer_for_test.h"
#include "kernels/random_weights_for_test.h"

namespace bellhop::kernels {
namespace {

using Touches = GuardedBuffer::Touches;

std::vector<DotKernel> KernelsOfThisCpu() {
  std::vector<DotKernel> kernels;
  for (const DotKernel& kernel : AllDotKernels()) {
    if (!quant::Traits(kernel.format).planar && CanRun(kernel, sys::DetectCpu())) kernels.push_back(kernel);
  }
  return kernels;
}

class DotBounds : public ::testing::TestWithParam<DotKernel> {};

TEST_P(DotBounds, NothingBesideTheBuffersIsTouched) {
  const DotKernel& kernel = GetParam();
  const int64_t block = quant::Traits(kernel.format).block_elems;
  std::mt19937_64 random(59);
  std::normal_distribution<float> normal;
  for (const int64_t cols : {block == 1 ? 75 : block, block == 1 ? 333 : (256 + block - 1) / block * block,
                             block == 1 ? 512 : (768 + block - 1) / block * block}) {
    const auto row_bytes = static_cast<int64_t>(quant::RowBytes(kernel.format, cols).value());
    for (const int64_t rows : {1, 3, 4, 5}) {
      std::vector<std::byte> weights(static_cast<size_t>(rows * row_bytes));
      for (int64_t r = 0; r < rows; ++r) {
        FillRandomWeights(kernel.format, cols, ScaleRange::kModerate, random, weights.data() + r * row_bytes);
      }
      for (const int64_t x_rows : {1, 2, 4, 5, 9}) {
        std::vector<float> x(static_cast<size_t>(x_rows * cols));
        std::generate(x.begin(), x.end(), [&] { return normal(random); });
        const std::vector<float> poison(static_cast<size_t>(x_rows * rows), -12345.5f);
        std::vector<float> want = poison;
        const auto run = [&](const std::byte* w, const float* from, float* y) {
          kernel.fn({.weights = {.format = kernel.format, .rows = rows, .cols = cols, .planes = {{w, row_bytes}}},
                     .x = {from, x_rows, cols, cols},
                     .y = {y, x_rows, rows, rows},
                     .range = {0, rows}});
        };
        run(weights.data(), x.data(), want.data());
        for (const Touches touches : {Touches::kPageBefore, Touches::kPageAfter}) {
          const GuardedBuffer w(std::as_bytes(std::span(weights)), touches);
          const GuardedBuffer from(std::as_bytes(std::span(x)), touches);
          const GuardedBuffer y(std::as_bytes(std::span(poison)), touches);
          run(w.data(), from.floats(), y.floats());
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(y.floats()[i]), std::bit_cast<uint32_t>(want[i]))
                << cols << " columns, " << rows << " rows, " << x_rows << " x rows, index " << i;
            ASSERT_NE(want[i], poison[i]);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, DotBounds, ::testing::ValuesIn(KernelsOfThisCpu()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bellhop::kernels
