#include "model/gpu/device_layout.h"

#include <gtest/gtest.h>

#include <string>

#include "quant/format.h"
#include "quant/planar.h"

namespace bellhop::model {
namespace {

using quant::MatrixSpec;
using quant::ScaleType;
using quant::WeightFormat;

quant::QuantView View(const MatrixSpec& spec, const std::byte* at) {
  EXPECT_TRUE(quant::CheckSpec(spec).ok()) << quant::CheckSpec(spec).ToString();
  return quant::PlaceMatrix(spec, at);
}
MatrixSpec Planar(WeightFormat format, int32_t group, int64_t rows = 40, int64_t cols = 640) {
  return {.format = format, .rows = rows, .cols = cols, .scale_type = ScaleType::kF16, .group = group};
}

TEST(DeviceLayoutTest, PlanarMatricesBecomeTilesOfTheSameValues) {
  const std::byte memory{};
  struct Case {
    MatrixSpec spec;
    WeightFormat tiles;
    int32_t chunks;
    uint64_t bytes;
  };
  // 40 rows are three tiles.
  const Case cases[] = {{Planar(WeightFormat::kInt4, 32), WeightFormat::kQ4_0, 5, 3 * 5 * 1152},
                        {Planar(WeightFormat::kInt8, 32), WeightFormat::kQ8_0, 10, 3 * 10 * 1088},
                        {Planar(WeightFormat::kInt3, 64), WeightFormat::kInt3, 5, 3 * 5 * 832}};
  for (const Case& c : cases) {
    const quant::QuantView view = View(c.spec, &memory);
    SCOPED_TRACE(quant::Traits(view.format).name);
    EXPECT_TRUE(CheckDeviceMatrix(view).ok()) << CheckDeviceMatrix(view).ToString();
    const kernels::DeviceMatrix matrix = DescribeMatrix(view);
    EXPECT_EQ(matrix.format, c.tiles);
    EXPECT_EQ(matrix.layout, kernels::MatrixLayout::kTiles);
    EXPECT_EQ(matrix.chunks, c.chunks);
    EXPECT_EQ(matrix.planar.format, view.format);
    EXPECT_EQ(matrix.planar.group, view.group);
    EXPECT_EQ(DeviceBytes(view), c.bytes);
    const auto planes = HostPlanes(view);
    EXPECT_EQ(planes[0].data, view.planes[quant::kCodesPlane].data);
    EXPECT_EQ(planes[1].data, view.planes[quant::kScalesPlane].data);
    EXPECT_EQ(planes[0].bytes + planes[1].bytes, quant::ViewBytes(view));
  }
  // The tiles of these hold what the matrix holds, and nothing else: 3.25 bits a weight.
  EXPECT_EQ(DeviceBytes(View(Planar(WeightFormat::kInt3, 64, 64), &memory)), 64u * 640 * 13 / 32);
}

TEST(DeviceLayoutTest, FileRowsAreOnePlane) {
  const std::byte memory{};
  for (const WeightFormat format : {WeightFormat::kQ4_0, WeightFormat::kQ5K}) {
    const quant::QuantView view = View({.format = format, .rows = 16, .cols = 512}, &memory);
    EXPECT_TRUE(CheckDeviceMatrix(view).ok());
    EXPECT_EQ(DescribeMatrix(view).planar.group, 0);
    EXPECT_EQ(DescribeMatrix(view).layout == kernels::MatrixLayout::kTiles, format == WeightFormat::kQ4_0);
    EXPECT_EQ(HostPlanes(view)[0].bytes, quant::ViewBytes(view));
    EXPECT_EQ(HostPlanes(view)[1].bytes, 0u);
  }
}

TEST(DeviceLayoutTest, WhatNoKernelReadsIsRefusedWithARemedy) {
  const std::byte memory{};
  auto refused = [&](const MatrixSpec& spec) {
    const Status status = CheckDeviceMatrix(View(spec, &memory));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("--device cpu"), std::string::npos) << status.message();
    return std::string(status.message());
  };
  EXPECT_NE(refused(Planar(WeightFormat::kInt3, 32)).find("a scale for 32 columns"), std::string::npos);
  EXPECT_NE(refused(Planar(WeightFormat::kInt4, 16)).find("a scale for 16 columns"), std::string::npos);
  EXPECT_NE(refused(Planar(WeightFormat::kInt4Sm80, 64)).find("layout"), std::string::npos);
  MatrixSpec spec = Planar(WeightFormat::kInt4, 32);
  spec.zero_points = true;
  EXPECT_NE(refused(spec).find("zero points"), std::string::npos);
  spec = Planar(WeightFormat::kInt8, 32);
  spec.scale_type = ScaleType::kBF16;
  EXPECT_NE(refused(spec).find("F16"), std::string::npos);
  spec = Planar(WeightFormat::kInt4, 32);
  spec.global_scale = 2;
  EXPECT_NE(refused(spec).find("global scale"), std::string::npos);
}

}  // namespace
}  // namespace bellhop::model
