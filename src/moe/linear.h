// Products of activations with quantised matrices on the CPU, split over the worker pool by output rows. The numeric
// class decides the kernels: decode (exact weights, f32 activations) or prompt (bf16-rounded activations, tiles
// decoded once per call). Used by the experts here and by the dense matrices of model/.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "kernels/dot.h"
#include "kernels/gemm.h"
#include "kernels/vec_ops.h"
#include "quant/quant_view.h"
#include "sys/aligned_buffer.h"
#include "sys/worker_pool.h"

namespace bellhop::moe {

enum class NumericClass : uint8_t { kDecode, kPrompt };

// Everything a CPU phase needs: the pool, the kernels of the chosen ISA and one scratch tile per worker.
struct CpuContext {
  sys::WorkerPool* pool = nullptr;
  sys::CpuCaps caps;
  const kernels::VecOps* ops = nullptr;
  const kernels::GemmKernel* gemm = nullptr;
  std::vector<sys::AlignedBuffer> tiles;  // per worker: kTileRows x max_cols floats, then kTileRows x max_rows
  int64_t max_cols = 0, max_rows = 0;

  // Rows of a decoded weight tile: 16 rows of 4,096 columns are 256 KiB, inside L2.
  static constexpr int64_t kTileRows = 16;

  // max_cols: widest matrix input; max_rows: rows of a prompt chunk.
  static Result<std::unique_ptr<CpuContext>> Create(sys::WorkerPool* pool, const sys::CpuCaps& caps, int64_t max_cols,
                                                    int64_t max_rows);
  float* Tile(int worker) const { return tiles[static_cast<size_t>(worker)].as<float>().data(); }
};

// A weight matrix with its kernels chosen: y = scale * (W x) + bias.
struct Linear {
  quant::QuantView weights;
  const float* bias = nullptr;  // [rows], null: none
  float scale = 1;
  const kernels::DotKernel* dot = nullptr;
  const kernels::RowDecodeKernel* decode = nullptr;

  int64_t rows() const { return weights.rows; }
  int64_t cols() const { return weights.cols; }
};

// kUnsupported when the format has no kernels. A format that only the reference kernel serves is named in `notes`.
Result<Linear> MakeLinear(const quant::QuantView& weights, const float* bias, float scale, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes);

// The serial part: output rows `range` of y(m, r) for all rows of x.
// `next`: weights that the caller reads after this call, to prefetch; null: nothing known.
void LinearDecode(const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  const std::byte* next = nullptr);
void LinearPrompt(const CpuContext& cpu, const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  int worker);

// One product of several that share their input.
struct LinearJob {
  const Linear* linear = nullptr;
  MatView<float> y;  // [x.rows, linear->rows()]
};

// All jobs in one phase of the pool. In the prompt class x must already be rounded to bf16.
void RunLinears(const CpuContext& cpu, NumericClass numeric_class, HostSpan<const LinearJob> jobs,
                MatView<const float> x);

}  // namespace bellhop::moe
