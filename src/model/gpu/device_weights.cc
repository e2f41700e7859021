#include "model/gpu/device_weights.h"

#include <algorithm>
#include <cstring>

#include "cuda/cuda_try.h"
#include "kernels/cuda/tile_pack.h"
#include "quant/codebooks.h"
#include "quant/codec.h"
#include "store/tensor_view.h"

namespace bellhop::model {
namespace {

constexpr uint64_t kStagingBytes = 64 << 20;
constexpr uint64_t kPinnedBytes = 8 << 20;

}  // namespace

uint64_t WeightUploader::StagingBytes() { return kStagingBytes; }

Result<WeightUploader> WeightUploader::Create(cuda::Device* device, const cuda::Stream* stream) {
  BELLHOP_TRY_ASSIGN(cuda::DeviceBuffer staging,
                     cuda::DeviceBuffer::Create(device, kStagingBytes, MemoryTag::kStaging));
  BELLHOP_TRY_ASSIGN(cuda::PinnedBuffer pinned,
                     cuda::PinnedBuffer::Create(device, kHalves * kPinnedBytes, MemoryTag::kStaging));
  std::vector<cuda::Event> copied;
  for (int i = 0; i < kHalves; ++i) {
    BELLHOP_TRY_ASSIGN(cuda::Event event, cuda::Event::Create(device));
    copied.push_back(std::move(event));
  }
  return WeightUploader(stream, std::move(staging), std::move(pinned), std::move(copied));
}

Status WeightUploader::Bytes(const void* from, uint64_t bytes, void* to) {
  for (uint64_t at = 0; at < bytes; at += kPinnedBytes) {
    const uint64_t count = std::min(kPinnedBytes, bytes - at);
    std::byte* const piece = pinned_.bytes().data() + half_ * kPinnedBytes;
    BELLHOP_TRY(copied_[half_].Synchronize());
    std::memcpy(piece, static_cast<const std::byte*>(from) + at, count);
    BELLHOP_TRY(cuda::CopyToDevice({static_cast<std::byte*>(to) + at, count}, {piece, count}, *stream_));
    BELLHOP_TRY(copied_[half_].Record(*stream_));
    half_ = (half_ + 1) % kHalves;
  }
  return Status();
}

Status WeightUploader::Matrix(const quant::QuantView& view, uint8_t* to) {
  const kernels::DeviceMatrix matrix = DescribeMatrix(view);
  const auto row_bytes = static_cast<uint64_t>(view.planes[0].row_bytes);
  if (matrix.layout == kernels::MatrixLayout::kFile) {
    return Bytes(view.planes[0].data, row_bytes * static_cast<uint64_t>(view.rows), to);
  }
  const auto scale_row_bytes = static_cast<uint64_t>(matrix.planar.scale_row_bytes);
  const uint64_t tile_rows_bytes = (row_bytes + scale_row_bytes) * kernels::kTileRows;
  if (tile_rows_bytes > kStagingBytes) {
    return Unsupported("matrix rows of {} bytes: the GPU backend stages at most {}", row_bytes,
                       kStagingBytes / kernels::kTileRows);
  }
  const int64_t rows_at_once = static_cast<int64_t>(kStagingBytes / tile_rows_bytes) * kernels::kTileRows;
  const int64_t tile_bytes = int64_t{matrix.chunks} * kernels::Tiles(matrix.format).chunk_bytes;
  auto* const staging = reinterpret_cast<uint8_t*>(staging_.bytes().data());
  for (int64_t row = 0; row < view.rows; row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, view.rows - row);
    kernels::PackArgs args{.format = view.format,
                           .from = staging,
                           .row_bytes = view.planes[0].row_bytes,
                           .rows = static_cast<int32_t>(rows),
                           .cols = matrix.cols,
                           .to = to + row / kernels::kTileRows * tile_bytes};
    const uint64_t bytes = row_bytes * static_cast<uint64_t>(rows);
    BELLHOP_TRY(Bytes(view.Row(row), bytes, staging));
    if (matrix.planar.group > 0) {
      const quant::QuantPlane& scales = view.planes[quant::kScalesPlane];
      args.scales = staging + bytes;
      args.scale_row_bytes = scales.row_bytes;
      args.scale_group = view.group;
      BELLHOP_TRY(
          Bytes(scales.data + row * scales.row_bytes, scale_row_bytes * static_cast<uint64_t>(rows), staging + bytes));
    }
    BELLHOP_CUDA_CHECK(&stream_->device(), kernels::LaunchPackTiles(args, stream_->queue()));
  }
  return Status();
}

Result<quant::QuantView> DenseWeights::View(const LinearSpec& spec) const {
  return store::MatrixView(manifest_.tensors[static_cast<size_t>(spec.weight)], spec.first_row, spec.rows);
}

Result<float> DenseWeights::Scale(const LinearSpec& spec) const {
  if (spec.scale < 0) return 1.0f;
  BELLHOP_TRY_ASSIGN(const std::vector<float> value,
                     store::DecodeSmall(manifest_.tensors[static_cast<size_t>(spec.scale)], 1));
  return value[0];
}

Result<kernels::DeviceMatrix> DenseWeights::Matrix(const LinearSpec& spec) {
  BELLHOP_TRY_ASSIGN(const quant::QuantView view, View(spec));
  kernels::DeviceMatrix matrix = DescribeMatrix(view);
  const std::string& name = manifest_.tensors[static_cast<size_t>(spec.weight)].name;
  if (matrix.layout == kernels::MatrixLayout::kFile) {
    if (view.cols % 16 != 0) return Unsupported("tensor {}: {} columns are not whole sixteens", name, view.cols);
    slow_.push_back(fmt::format("{} ({})", name, quant::Traits(view.format).name));
  }
  auto* const data = arena_->Take<uint8_t>(DeviceBytes(view));
  matrix.data = data;
  BELLHOP_TRY_ASSIGN(matrix.scale, Scale(spec));
  if (spec.bias >= 0) {
    const auto elements = static_cast<int64_t>(manifest_.tensors[static_cast<size_t>(spec.bias)].elements());
    BELLHOP_TRY_ASSIGN(matrix.bias, Vector(spec.bias, elements, spec.first_bias, view.rows));
  }
  if (!arena_->counting()) BELLHOP_TRY(uploader_->Matrix(view, data));
  return matrix;
}

Result<const float*> DenseWeights::Decoded(const std::vector<LinearSpec>& specs, TensorIndex norm) {
  std::vector<float> values;
  for (const LinearSpec& spec : specs) {
    BELLHOP_TRY_ASSIGN(const quant::QuantView view, View(spec));
    BELLHOP_TRY_ASSIGN(const float scale, Scale(spec));
    const size_t first = values.size();
    values.resize(first + static_cast<size_t>(view.rows * view.cols));
    if (arena_->counting()) continue;
    BELLHOP_TRY_ASSIGN(
        const std::vector<float> factors,
        store::DecodeSmall(manifest_.tensors[static_cast<size_t>(norm)], static_cast<uint64_t>(view.cols)));
    for (int64_t r = 0; r < view.rows; ++r) {
      float* const row = values.data() + first + r * view.cols;
      quant::DecodeRow(view, r, row);
      for (int64_t c = 0; c < view.cols; ++c) row[c] = row[c] * scale * factors[static_cast<size_t>(c)];
    }
  }
  return Floats(values);
}

Result<const float*> DenseWeights::Vector(TensorIndex tensor, int64_t elements, int64_t first, int64_t count) {
  if (tensor < 0) return static_cast<const float*>(nullptr);
  BELLHOP_TRY_ASSIGN(std::vector<float> values, store::DecodeSmall(manifest_.tensors[static_cast<size_t>(tensor)],
                                                                   static_cast<uint64_t>(elements)));
  if (count >= 0) values = std::vector<float>(values.begin() + first, values.begin() + first + count);
  return Floats(values);
}

Result<const float*> DenseWeights::Floats(const std::vector<float>& values) {
  auto* const data = arena_->Take<float>(values.size());
  if (!arena_->counting()) BELLHOP_TRY(uploader_->Bytes(values.data(), values.size() * sizeof(float), data));
  return static_cast<const float*>(data);
}

Result<kernels::Codebooks> DenseWeights::Books() {
  kernels::Codebooks books = kernels::HostCodebooks();
  auto bring = [&](auto** table, uint64_t bytes) -> Status {
    auto* const data = arena_->Take<uint8_t>(bytes);
    if (!arena_->counting()) BELLHOP_TRY(uploader_->Bytes(*table, bytes, data));
    *table = reinterpret_cast<std::remove_reference_t<decltype(**table)>*>(data);
    return Status();
  };
  BELLHOP_TRY(bring(&books.iq2xxs_grid, sizeof quant::kIq2xxsGrid));
  BELLHOP_TRY(bring(&books.iq2xs_grid, sizeof quant::kIq2xsGrid));
  BELLHOP_TRY(bring(&books.iq2s_grid, sizeof quant::kIq2sGrid));
  BELLHOP_TRY(bring(&books.iq3xxs_grid, sizeof quant::kIq3xxsGrid));
  BELLHOP_TRY(bring(&books.iq3s_grid, sizeof quant::kIq3sGrid));
  BELLHOP_TRY(bring(&books.iq1s_grid_nibbles, sizeof quant::kIq1sGridNibbles));
  return books;
}

}  // namespace bellhop::model
