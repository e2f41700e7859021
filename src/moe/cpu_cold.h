// The cold path: experts without a GPU slot, computed by the CPU where their bytes lie. One call is one layer's misses,
// in one phase of the pool: fc1 with the activation, fc2, and the weighted sum, with barriers between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "moe/cold_groups.h"
#include "moe/cold_prompt.h"
#include "moe/expert.h"
#include "moe/linear.h"
#include "store/expert_store.h"
#include "sys/phase_barrier.h"
#include "sys/work_ranges.h"

namespace bellhop::moe {

// y(m, :) = sum over the misses of row m, in route order, of weight * expert(x(m, :)); rows without a miss get 0.
struct ColdRequest {
  LayerId layer;
  NumericClass numeric_class = NumericClass::kDecode;
  Routes routes;
  MatView<const float> x;  // [rows, hidden]
  MatView<float> y;        // [rows, hidden]
  // Part of the inner dimension that this call computes (the rest runs elsewhere and is added to y by the caller);
  // begin == end: all of it. Bounds as for InnerSlice. The fc2 bias belongs to the part that begins at 0. Not with
  // rounded outputs: those need the whole sum.
  RowRange inner = {};
  // State of the layer's experts [experts]; null: all are ready. Experts that still load run last, and a worker that
  // reaches one waits for it.
  const std::atomic<ExpertReady>* ready = nullptr;
  uint8_t* failed_rows = nullptr;  // [rows] or null: set to 1 for rows that needed an expert whose load failed (y is 0)
};

class CpuColdPath {
 public:
  struct Options {
    int64_t hidden = 0;
    int32_t max_rows = 0;  // rows of one call
    int32_t max_used = 0;  // routes per row
    ExpertNumerics numerics;
  };
  // All layers of a store, or one layer of experts that the caller made. The context (and what the experts point into)
  // must outlive the path. Notes name formats that run on reference kernels.
  static Result<std::unique_ptr<CpuColdPath>> Create(const store::ExpertStore& store, const CpuContext& cpu,
                                                     const Options& options, std::vector<std::string>* notes);
  static Result<std::unique_ptr<CpuColdPath>> Create(std::vector<std::vector<Expert>> layers, const CpuContext& cpu,
                                                     const Options& options);

  // Deterministic for any thread count; a row's sum does not depend on the other rows. No allocation, no lock.
  void Run(const ColdRequest& request);

  // Weight bytes that the routes of a request make the CPU read.
  uint64_t WeightBytes(LayerId layer, const Routes& routes) const;
  uint64_t workspace_bytes() const { return workspace_.size(); }

 private:
  // One expert of the running call.
  struct Job {
    Expert expert;              // the requested part of the inner dimension
    MatView<const float> x;     // its rows
    float *fc1, *hidden, *out;  // [count rows] of fc1_, hidden_, out_
    int32_t id, count;
    bool gather;    // x must be filled from request rows first
    float* packed;  // x packed for kernels, which must be filled first too; null: not needed
  };

  CpuColdPath(const CpuContext& cpu, const Options& options);
  Status AllocateBuffers();
  void PrepareJobs(const ColdRequest& request);
  void RunDecode(const ColdRequest& request);
  void RunPrompt(const ColdRequest& request);
  void ArrangeRows(const ColdRequest& request, int worker, int workers);
  // Where a unit is: some output rows of one job's fc1 or fc2.
  struct Place {
    const Job* job;
    int64_t row;
  };
  Place PlaceOf(int64_t unit, int64_t units_per_job, int64_t unit_rows) const;
  RowPrefetch FirstFc2Prefetch(int worker) const;
  void Fc1Unit(const ColdRequest& request, int64_t unit, int64_t next_unit);
  void Fc2Unit(const ColdRequest& request, int64_t unit, int64_t next_unit);
  void Combine(const ColdRequest& request, RowRange columns) const;

  const CpuContext& cpu_;
  Options options_;
  int64_t inner_ = 0, inner_stride_ = 0, hidden_stride_ = 0;  // strides: whole cache lines
  std::vector<std::vector<Expert>> layers_;                   // [layer][expert]
  std::vector<Job> jobs_;
  std::unique_ptr<ColdGroups> groups_;
  sys::AlignedBuffer workspace_;
  // Views into workspace_, one row per miss in group order: gathered inputs, fc1 products (gate, then up), activations,
  // outputs.
  float *x_ = nullptr, *fc1_ = nullptr, *hidden_ = nullptr, *out_ = nullptr;
  // Of the running call.
  int64_t fc1_unit_rows_ = 0, fc2_unit_rows_ = 0, fc1_units_per_job_ = 0, fc2_units_per_job_ = 0;
  sys::WorkRanges fc1_work_, fc2_work_;
  sys::PhaseBarrier barrier_;
  std::unique_ptr<ColdPrompt> prompt_;
  std::vector<PromptGroup> prompt_groups_;
};

}  // namespace bellhop::moe
