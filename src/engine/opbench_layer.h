// One layer's worth of synthetic experts, larger than the caches, and calls of the cold path on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "engine/opbench_formats.h"
#include "moe/cpu_cold.h"
#include "store/expert_store.h"
#include "sys/cpu_features.h"
#include "sys/worker_pool.h"

namespace bellhop::engine {

class OpbenchLayer {
 public:
  struct Shape {
    OpbenchFormat format;
    int64_t hidden = 0, inter = 0;
    int32_t experts = 0;  // in memory, whole calls
    int32_t active = 0;   // of one call
    int32_t topk = 0;     // of one row, <= active
    int32_t max_rows = 0;
    uint64_t seed = 0;
  };

  // Memory of one expert, each matrix on a cache line. kInvalidArgument when the format cannot hold the shape.
  static Result<uint64_t> ExpertStride(const Shape& shape);
  // Buffers of the calls, beside the weights.
  static uint64_t WorkspaceBytes(const Shape& shape);

  // Fills `memory` (experts * ExpertStride bytes on a cache line), which must outlive the layer as the pool must.
  static Result<std::unique_ptr<OpbenchLayer>> Create(const Shape& shape, HostSpan<std::byte> memory,
                                                      sys::WorkerPool* pool);

  // Chooses the kernels; before the first Run, and again to change them.
  Status UseKernels(const sys::CpuCaps& caps);

  // Call number `call` computes the next `active` experts of the memory, so weights repeat only after all were used.
  // Row m uses topk of those, from number m * topk on, going round; every route weighs 1 / topk. `active` may be
  // lowered for one call.
  void Prepare(int64_t call, int32_t rows, int32_t active);
  // The prepared call, from routes in memory to the combined output.
  void Run(moe::NumericClass numeric_class);

  int32_t DistinctExperts(int32_t rows) const;
  uint64_t expert_bytes() const { return expert_bytes_; }  // without the gaps between matrices

  // Of the prepared call: x and y [rows, hidden]. The prompt class reads x rounded to bf16.
  const moe::Routes& routes() const { return routes_; }
  const store::ExpertView& expert(int32_t route_id) const { return experts_[first_ + static_cast<size_t>(route_id)]; }
  MatView<const float> x() const { return {x_.data(), routes_.rows, shape_.hidden, shape_.hidden}; }
  MatView<const float> y() const { return {y_.data(), routes_.rows, shape_.hidden, shape_.hidden}; }

 private:
  OpbenchLayer(const Shape& shape, sys::WorkerPool* pool) : shape_(shape), pool_(pool) {}
  void FillWeights(HostSpan<std::byte> memory, uint64_t stride);

  Shape shape_;
  sys::WorkerPool* pool_;
  uint64_t expert_bytes_ = 0;
  std::vector<store::ExpertView> experts_;
  // A model's layer has tens or hundreds of experts, and a call looks at all of its layer's: the experts are cut into
  // layers of about that many.
  int32_t layer_experts_ = 0;
  std::unique_ptr<moe::CpuContext> cpu_;
  std::unique_ptr<moe::CpuColdPath> path_;
  std::vector<float> x_, x_bf16_, y_, weights_;
  std::vector<int32_t> ids_;
  moe::Routes routes_;
  int32_t layer_ = 0;
  size_t first_ = 0;  // expert of the prepared call's layer with id 0
};

}  // namespace bellhop::engine
