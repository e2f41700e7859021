// Products of activations with quantised matrices on the CPU, split over the worker pool by output rows. The numeric
// class decides the kernels: decode (exact weights, f32 activations) or prompt (both rounded to bf16; the activations
// are packed once, weights are decoded a tile at a time). Used by the experts here and by the dense matrices of model/.
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
#include "sys/phase_barrier.h"
#include "sys/work_ranges.h"
#include "sys/worker_pool.h"

namespace bellhop::moe {

enum class NumericClass : uint8_t { kDecode, kPrompt };

// Packed activations of the prompt class (kernels/gemm.h).
struct PackedRows {
  const std::byte* data = nullptr;
  int64_t rows = 0, cols = 0;
};

// Everything a CPU phase needs: the pool, the kernels of the chosen ISA, and the scratch of the prompt class.
struct CpuContext {
  sys::WorkerPool* pool = nullptr;
  sys::CpuCaps caps;
  const kernels::VecOps* ops = nullptr;
  const kernels::GemmKernel* gemm = nullptr;
  int64_t max_cols = 0, max_rows = 0;

  static constexpr int kMaxTerms = 2;
  // Weight rows of a decoded tile, at most.
  static constexpr int64_t kTileRows = kernels::kGemmTileRows;
  // Activation rows that a tile is multiplied with at once: their products, 32 KiB, stay in L1.
  static constexpr int64_t kMaxChunkRows = 256;

  // max_cols: widest matrix input; max_rows: rows of a prompt chunk.
  static Result<std::unique_ptr<CpuContext>> Create(sys::WorkerPool* pool, const sys::CpuCaps& caps, int64_t max_cols,
                                                    int64_t max_rows);
  // What Create allocates.
  static uint64_t WorkspaceBytes(int workers, int64_t max_cols, int64_t max_rows);

  // Scratch of one worker: a decoded tile, and [kTileRows][kMaxChunkRows] products.
  std::byte* Tile(int worker) const { return scratch_[static_cast<size_t>(worker)].bytes().data(); }
  float* Products(int worker) const {
    return reinterpret_cast<float*>(Tile(worker) + kernels::GemmTileBytes(max_cols, kMaxTerms));
  }
  // Shares the units of one phase at a time.
  sys::WorkRanges& work() const { return *work_; }
  // Between the parts of one phase.
  sys::PhaseBarrier& barrier() const { return *barrier_; }
  // Shared: max_rows packed rows of max_cols columns.
  std::byte* packed() const { return packed_.bytes().data(); }

  // Rows of a chunk when inputs have `cols` columns: one packed chunk and a tile stay in L2.
  static int64_t ChunkRows(int64_t cols);

 private:
  static uint64_t WorkerBytes(int64_t max_cols);

  std::vector<sys::AlignedBuffer> scratch_;  // [worker]
  sys::AlignedBuffer packed_;
  std::unique_ptr<sys::WorkRanges> work_;
  std::unique_ptr<sys::PhaseBarrier> barrier_;
};

// A weight matrix with its kernels chosen: y = scale * (W x) + bias.
struct Linear {
  quant::QuantView weights;
  const float* bias = nullptr;  // [rows], null: none
  float scale = 1;
  const kernels::DotKernel* dot = nullptr;
  const kernels::RowDecodeKernel* decode = nullptr;
  // bf16 terms of a weight in the prompt class. Two by default: routing is sensitive to the rounding of the matrices
  // that every token passes. Routed experts, which are most of the work, use one.
  int terms = 2;

  int64_t rows() const { return weights.rows; }
  int64_t cols() const { return weights.cols; }
};

// kUnsupported when the format has no kernels. A format that only the reference kernel serves is named in `notes`.
Result<Linear> MakeLinear(const quant::QuantView& weights, const float* bias, float scale, const sys::CpuCaps& caps,
                          std::vector<std::string>* notes);

// Weight rows that a worker reads soon; linear null: not known.
struct RowsAhead {
  const Linear* linear = nullptr;
  RowRange rows;
};

// Brings weight rows into L2, 1 KiB a call, scales before codes: idle work of a worker that waits at a barrier. False:
// nothing is left.
class RowPrefetch {
 public:
  RowPrefetch() = default;
  explicit RowPrefetch(const RowsAhead& ahead) : ahead_(ahead), planes_left_(ahead.linear == nullptr ? 0 : kPlanes) {}
  bool operator()() {
    for (int line = 0; line < 16; ++line, at_ += 64, left_ -= 64) {
      while (left_ <= 0) {
        if (planes_left_ == 0) return false;
        const quant::QuantPlane& plane = ahead_.linear->weights.planes[--planes_left_];
        if (plane.data == nullptr) continue;
        at_ = plane.data + ahead_.rows.begin * plane.row_bytes;
        left_ = ahead_.rows.size() * plane.row_bytes;
      }
      __builtin_prefetch(at_, 0, 2);
    }
    return true;
  }

 private:
  static constexpr int kPlanes = quant::kMaxPlanes;
  RowsAhead ahead_;
  int planes_left_ = 0;  // the codes come last
  const std::byte* at_ = nullptr;
  int64_t left_ = 0;  // bytes of the plane that at_ is in
};

// Groups of 32 columns of a packed matrix of x.cols columns and `rows` rows, counted panel by panel: what workers can
// share when there are few panels.
inline int64_t PackedGroups(int64_t rows, int64_t cols) {
  return kernels::GemmPaddedRows(rows) / kernels::kGemmPanelRows *
         (kernels::GemmPaddedColumns(cols) / kernels::kGemmGroup);
}
// Packs some of these groups; packed row i < count is row rows[i] of x, or i when rows is null.
void PackGroups(const kernels::GemmKernel& gemm, MatView<const float> x, const int32_t* rows, int64_t count,
                RowRange groups, std::byte* packed);

// The serial part: output rows `range` of y(m, r) for all rows of x.
// `next`: what the caller reads after this call, to prefetch the first of it. `packed_x`: x packed, or null
// (kernels::DotArgs).
void LinearDecode(const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  const RowsAhead& next = {}, const float* packed_x = nullptr);
// The prompt class from rows that were packed before; at most ChunkRows(x.cols) of them.
void LinearPrompt(const CpuContext& cpu, const Linear& linear, const PackedRows& x, MatView<float> y, RowRange range,
                  int worker);
// The same from rows that were not.
void LinearPrompt(const CpuContext& cpu, const Linear& linear, MatView<const float> x, MatView<float> y, RowRange range,
                  int worker);

// One product of several that share their input.
struct LinearJob {
  const Linear* linear = nullptr;
  MatView<float> y;  // [x.rows, linear->rows()]
};

// All jobs in one phase of the pool.
void RunLinears(const CpuContext& cpu, NumericClass numeric_class, HostSpan<const LinearJob> jobs,
                MatView<const float> x);

}  // namespace bellhop::moe
