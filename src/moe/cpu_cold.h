// The cold path: experts without a GPU slot, computed by the CPU where their bytes lie. One call is one layer's misses,
// in one phase of the pool: fc1 with the activation, a barrier, and fc2, whose last product of an output column is
// followed by the weighted sum.
#pragma once

#include <atomic>
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
  // Where results are published in place of y, word by word as they become final (cuda/doorbell_sums.h); no data: they
  // are not. Rows without a miss are left out, rows that failed get cuda::kFailedMark. Decode class.
  MatView<uint32_t> sums = {};
  // Part of the inner dimension that this call computes (the rest runs elsewhere and is added to y by the caller);
  // begin == end: all of it. Bounds as for InnerSlice. The fc2 bias belongs to the part that begins at 0. Not with
  // rounded outputs: those need the whole sum.
  RowRange inner = {};
  // State of the layer's experts [experts]; null: all are ready. Experts that still load run after all work of the
  // others, and a worker that reaches one waits for it.
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
    bool loading;   // when the call began
    bool gather;    // x must be filled from request rows first
    float* packed;  // x packed for kernels, which must be filled first too; null: not needed
  };

  CpuColdPath(const CpuContext& cpu, const Options& options);
  Status AllocateBuffers();
  void PrepareJobs(const ColdRequest& request);
  void RunDecode(const ColdRequest& request);
  void RunPrompt(const ColdRequest& request);
  void ArrangeRows(const ColdRequest& request, int worker, int workers);
  // One matrix product of some jobs: tiles of `rows` output rows, `tiles` of each job. A worker's share is the same
  // tiles of every job, one job after the other, so that it streams its own rows of each expert, which on a machine
  // with several NUMA nodes are on its node.
  struct Step {
    RowRange jobs;
    int64_t width = 0, rows = 0, tiles = 0;
    int set = 0;  // of work_
  };
  // Tiles of one job.
  struct Stretch {
    int64_t job = 0;
    RowRange tiles;
  };
  Step MakeStep(RowRange jobs, int64_t width, int64_t rows, int set);
  Stretch FirstStretch(const Step& step, const sys::WorkRanges::Run& run) const;
  Stretch OwnNext(const Step& step, int worker) const;
  RowsAhead Fc1Ahead(const Step& fc1, const Stretch& stretch) const;
  RowsAhead Fc2Ahead(const Step& fc2, const Stretch& stretch) const;
  void RunFc1(const ColdRequest& request, const Step& fc1, const Step& fc2, int worker);
  void RunFc2(const ColdRequest& request, const Step& fc2, int worker);
  void Fc1Stretch(const ColdRequest& request, const Step& fc1, const Stretch& stretch, const RowsAhead& next);
  void Fc2Stretch(const ColdRequest& request, const Step& fc2, const Stretch& stretch, const RowsAhead& next);
  void Combine(const ColdRequest& request, RowRange rows, RowRange columns) const;
  void Publish(const ColdRequest& request, RowRange columns) const;
  void AddExperts(const ColdRequest& request, int32_t row, RowRange columns, float* sums) const;

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
  // Jobs whose fc2 of a tile is done; whoever does the last one combines. 0 between calls.
  struct alignas(64) TileCount {
    std::atomic<int64_t> jobs{0};
  };
  std::unique_ptr<TileCount[]> fc2_done_;
  sys::WorkRanges work_;
  sys::PhaseBarrier barrier_;
  std::unique_ptr<ColdPrompt> prompt_;
  std::vector<PromptGroup> prompt_groups_;
};

}  // namespace bellhop::moe
