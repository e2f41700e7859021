// Weights on their way to the GPU: dense matrices and vectors into an arena, experts into slots; in tiles where the
// format has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "kernels/block_decode.h"
#include "kernels/cuda/device_matrix.h"
#include "manifest/manifest.h"
#include "model/gpu/device_arena.h"
#include "model/gpu/device_layout.h"
#include "model/spec.h"
#include "quant/quant_view.h"

namespace bellhop::model {

// Copies file bytes to the device and packs them there.
class WeightUploader {
 public:
  static Result<WeightUploader> Create(cuda::Device* device, const cuda::Stream* stream);
  // What Create allocates on the device.
  static uint64_t StagingBytes();

  // `to`: DeviceMatrixBytes.
  Status Matrix(const quant::QuantView& view, uint8_t* to);
  // By way of pinned memory, whatever `from` is: a copy may not begin in registered memory and end outside of it.
  // `from` is free when this returns.
  Status Bytes(const void* from, uint64_t bytes, void* to);

 private:
  static constexpr int kHalves = 2;
  WeightUploader(const cuda::Stream* stream, cuda::DeviceBuffer staging, cuda::PinnedBuffer pinned,
                 std::vector<cuda::Event> copied)
      : stream_(stream), staging_(std::move(staging)), pinned_(std::move(pinned)), copied_(std::move(copied)) {}
  const cuda::Stream* stream_;
  cuda::DeviceBuffer staging_;
  cuda::PinnedBuffer pinned_;        // kHalves pieces, filled in turn
  std::vector<cuda::Event> copied_;  // of each
  size_t half_ = 0;
};

// The dense weights of a model: matrices in the order in which they are asked for. The uploader may be null while the
// arena counts.
class DenseWeights {
 public:
  DenseWeights(const manifest::Manifest& manifest, DeviceArena* arena, WeightUploader* uploader)
      : manifest_(manifest), arena_(arena), uploader_(uploader) {}

  Result<kernels::DeviceMatrix> Matrix(const LinearSpec& spec);
  // [rows][cols] decoded to f32, each column times that of the norm that its input would have been multiplied by:
  // router matrices, which are small and read by plain loads.
  Result<const float*> Decoded(const std::vector<LinearSpec>& specs, TensorIndex norm);
  Result<const float*> Vector(TensorIndex tensor, int64_t elements, int64_t first = 0, int64_t count = -1);
  Result<const float*> Floats(const std::vector<float>& values);
  Result<kernels::Codebooks> Books();
  bool counting() const { return arena_->counting(); }
  // Matrices that have no tiles, for a note.
  const std::vector<std::string>& slow_tensors() const { return slow_; }

 private:
  Result<quant::QuantView> View(const LinearSpec& spec) const;
  Result<float> Scale(const LinearSpec& spec) const;

  const manifest::Manifest& manifest_;
  DeviceArena* arena_;
  WeightUploader* uploader_;
  std::vector<std::string> slow_;
};

}  // namespace bellhop::model
