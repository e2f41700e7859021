#include "model/gpu/device_layout.h"

#include <string_view>

#include "quant/format.h"

namespace bellhop::model {

Status CheckDeviceMatrix(const quant::QuantView& view) {
  const quant::FormatTraits& traits = quant::Traits(view.format);
  if (!traits.planar) return Status();
  const auto refuse = [&](std::string_view what) {
    return Unsupported("{} matrices {} have no GPU kernels; use --device cpu", traits.name, what);
  };
  if (kernels::PlanarBits(view.format) == 0) return refuse("of this layout");
  if (view.planes[quant::kZeroPointsPlane].data != nullptr) return refuse("with zero points");
  const bool fp4 = view.format == quant::WeightFormat::kMxfp4Planar;
  if (view.scale_type != (fp4 ? quant::ScaleType::kE8M0 : quant::ScaleType::kF16)) {
    return refuse("whose scales are not F16");
  }
  const int columns = kernels::TileScaleColumns(view.format);
  if (view.group % columns != 0) {
    return refuse(fmt::format("with a scale for {} columns, no multiple of {},", view.group, columns));
  }
  if (view.global_scale != 1 || view.first_group != 0) return refuse("with a global scale, or cut from wider ones,");
  return Status();
}

kernels::DeviceMatrix DescribeMatrix(const quant::QuantView& view) {
  kernels::DeviceMatrix matrix;
  matrix.format = kernels::TileFormatOf(view.format);
  matrix.rows = static_cast<int32_t>(view.rows);
  matrix.cols = static_cast<int32_t>(view.cols);
  matrix.row_bytes = view.planes[0].row_bytes;
  if (quant::Traits(view.format).planar) {
    matrix.planar = {
        .format = view.format, .group = view.group, .scale_row_bytes = view.planes[quant::kScalesPlane].row_bytes};
  }
  const kernels::TileGeometry tiles = kernels::Tiles(matrix.format);
  matrix.layout = tiles.chunk_cols == 0 ? kernels::MatrixLayout::kFile : kernels::MatrixLayout::kTiles;
  if (tiles.chunk_cols > 0) matrix.chunks = (matrix.cols + tiles.chunk_cols - 1) / tiles.chunk_cols;
  return matrix;
}

uint64_t DeviceBytes(const quant::QuantView& view) {
  return kernels::DeviceMatrixBytes(kernels::TileFormatOf(view.format), view.rows, view.cols, view.planes[0].row_bytes);
}

std::array<HostPlane, kHostPlanes> HostPlanes(const quant::QuantView& view) {
  std::array<HostPlane, kHostPlanes> planes;
  const auto rows = static_cast<uint64_t>(view.rows);
  for (size_t p = 0; p < kHostPlanes; ++p) {
    const quant::QuantPlane& plane = view.planes[p];
    if (plane.data != nullptr) planes[p] = {plane.data, rows * static_cast<uint64_t>(plane.row_bytes)};
  }
  return planes;
}

}  // namespace bellhop::model
