// Prompt-class products of planar weights: every ISA against the reference, bit for bit. Products of GGUF formats are
// in gemm_product_test.cc, tiles of planar weights in planar_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "quant/random_weights.h"
#include "sys/aligned_buffer.h"

namespace bellhop::kernels {
namespace {

using quant::MatrixSpec;
using quant::ScaleType;

sys::CpuCaps CapsOf(sys::Isa isa) {
  sys::CpuCaps caps;
  caps.isa = isa;
  return caps;
}

bool SameResult(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

sys::AlignedBuffer Buffer(int64_t bytes) {
  auto buffer = sys::AlignedBuffer::Create(static_cast<size_t>(bytes), MemoryTag::kWorkspace);
  EXPECT_TRUE(buffer.ok());
  std::memset(buffer->as<std::byte>().data(), 0xFF, static_cast<size_t>(bytes));  // NaN
  return std::move(*buffer);
}

// Matrices of more columns than a kernel may take at once, with every kind of scales and several sizes of a group.
std::vector<MatrixSpec> Specs(quant::WeightFormat format) {
  std::vector<MatrixSpec> specs;
  for (const int64_t cols : {544, 768}) {
    for (const ScaleType type :
         {ScaleType::kF16, ScaleType::kBF16, ScaleType::kF32, ScaleType::kE8M0, ScaleType::kE4M3}) {
      for (const int32_t group : {16, 32, 64, 96, 128, 2048}) {
        for (const bool zero_points : {false, true}) {
          const MatrixSpec spec{.format = format,
                                .rows = 32,
                                .cols = cols,
                                .scale_type = type,
                                .group = group,
                                .zero_points = zero_points};
          if (quant::CheckSpec(spec).ok()) specs.push_back(spec);
        }
      }
    }
  }
  return specs;
}

class GemmPlanarConformance : public ::testing::TestWithParam<GemmKernel> {};

// Two halves of a tile from distant rows, as gate and up are.
std::vector<float> FillMultiply(const GemmKernel& kernel, const quant::QuantView& w, MatView<const float> x) {
  const sys::AlignedBuffer tile = Buffer(GemmTileBytes(w.cols, 1)), packed = Buffer(GemmPackedBytes(x.rows, w.cols));
  const RowDecodeKernel* decode = SelectRowDecode(w.format, CapsOf(kernel.isa));
  kernel.pack(x, nullptr, {0, x.rows}, packed.as<std::byte>().data());
  const int64_t stride = GemmPaddedRows(x.rows), half = w.rows / 2;
  std::vector<float> yt(static_cast<size_t>(w.rows * stride));
  FillArgs parts[2] = {{.decode = decode, .weights = &w, .rows = {half, w.rows}},
                       {.decode = decode, .weights = &w, .rows = {0, half}, .first_row = half}};
  for (FillArgs& part : parts) part.tile = tile.as<std::byte>().data();
  kernel.fill_multiply(parts, 2,
                       {.tile = parts[0].tile,
                        .n = w.rows,
                        .packed = packed.as<std::byte>().data(),
                        .rows = x.rows,
                        .k = w.cols,
                        .yt = yt.data(),
                        .yt_stride = stride});
  std::vector<float> result;
  for (int64_t j = 0; j < w.rows; ++j) {
    result.insert(result.end(), yt.data() + j * stride, yt.data() + j * stride + x.rows);
  }
  return result;
}

TEST_P(GemmPlanarConformance, FillMultiplyEqualsTheReference) {
  const GemmKernel& kernel = GetParam();
  if (kernel.isa > sys::DetectCpu().isa) {
    GTEST_SKIP() << "this CPU lacks " << sys::IsaName(kernel.isa) << "; the kernel was not tested";
  }
  const GemmKernel& reference = *SelectGemm(CapsOf(sys::Isa::kReference));
  std::mt19937_64 random(21);
  std::normal_distribution<float> normal;
  int tested = 0;
  for (const quant::FormatTraits& t : quant::AllFormats()) {
    if (!t.planar) continue;
    for (const MatrixSpec& spec : Specs(t.format)) {
      const auto scales = tested % 4 == 3 ? quant::RandomScales::kAnyBits : quant::RandomScales::kModerate;
      const int64_t rows = std::vector<int64_t>{1, 17, 33}[static_cast<size_t>(tested++ % 3)];
      const quant::OwnedMatrix matrix = quant::RandomMatrix(spec, random(), scales);
      std::vector<float> x(static_cast<size_t>(rows * spec.cols));
      for (float& v : x) v = normal(random);
      const MatView<const float> view{x.data(), rows, spec.cols, spec.cols};
      const std::vector<float> got = FillMultiply(kernel, matrix.view, view);
      const std::vector<float> want = FillMultiply(reference, matrix.view, view);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(SameResult(got[i], want[i])) << fmt::format(
            "{} {} columns, group {}, scale type {}, zero points {}, element {}: {} instead of {}", t.name, spec.cols,
            spec.group, static_cast<int>(spec.scale_type), spec.zero_points, i, got[i], want[i]);
      }
    }
  }
  EXPECT_GT(tested, 60);
}

std::vector<GemmKernel> VectorKernels() {
  std::vector<GemmKernel> kernels;
  for (const GemmKernel& kernel : AllGemmKernels()) {
    if (kernel.isa != sys::Isa::kReference) kernels.push_back(kernel);
  }
  return kernels;
}
INSTANTIATE_TEST_SUITE_P(VectorKernels, GemmPlanarConformance, ::testing::ValuesIn(VectorKernels()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bellhop::kernels
