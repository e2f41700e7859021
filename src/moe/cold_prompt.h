// The experts of one layer in the prompt class: rows are gathered and packed by expert, fc1 runs on tiles that hold the
// gate and up rows of the same inner range, its activation goes straight into the packed input of fc2. Everything in
// one phase of the pool, with barriers between the steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "moe/cold_groups.h"
#include "moe/expert.h"
#include "moe/linear.h"
#include "sys/aligned_buffer.h"
#include "sys/phase_barrier.h"
#include "sys/work_ranges.h"

namespace bellhop::moe {

// One expert and its rows of x.
struct PromptGroup {
  const Expert* expert = nullptr;
  int32_t id = 0;
  int32_t count = 0;
  const int32_t* rows = nullptr;  // [count]
  float* out = nullptr;           // [count][out_stride]: its results
};

class ColdPrompt {
 public:
  struct Limits {
    int64_t hidden = 0, inner = 0;  // the largest
    int64_t routes = 0;             // over all groups
    int64_t groups = 0;
  };
  static Result<std::unique_ptr<ColdPrompt>> Create(const CpuContext& cpu, const Limits& limits,
                                                    const ExpertNumerics& numerics);
  static uint64_t WorkspaceBytes(const Limits& limits);

  // out of every group. `ready` [experts] or null, as in ColdRequest: groups that still load run last; a group whose
  // load failed leaves its `out` alone. Deterministic for any thread count; a row's result does not depend on the other
  // rows. No allocation. finish(worker, workers) runs on every worker when all results are there.
  template <typename Finish>
  void Run(HostSpan<const PromptGroup> groups, MatView<const float> x, int64_t out_stride,
           const std::atomic<ExpertReady>* ready, Finish&& finish) {
    PrepareJobs(groups, ready);
    cpu_.pool->Run([&](int worker, int workers) {
      if (!jobs_.empty()) RunJobs(x, out_stride, ready, worker, workers);
      finish(worker, workers);
    });
  }

 private:
  // A group of the running call.
  struct Job {
    const PromptGroup* group = nullptr;
    bool loading = false;
    std::byte* packed_x = nullptr;  // [count] rows of hidden columns
    std::byte* packed_h = nullptr;  // [count] rows of inner columns
    // The first groups of packed columns and units of this group among all.
    int64_t first_pack = 0, first_fc1 = 0, first_fc2 = 0;
  };
  // Some rows of a group and some rows of a matrix.
  struct Unit {
    const Job* job;
    int64_t first_row, rows;
    RowRange outputs;
  };

  ColdPrompt(const CpuContext& cpu, const Limits& limits, const ExpertNumerics& numerics);
  void PrepareJobs(HostSpan<const PromptGroup> groups, const std::atomic<ExpertReady>* ready);
  int64_t Fc1Rows(const Expert& expert) const;
  void ChooseUnitSizes(HostSpan<const PromptGroup> groups);
  void Pack(MatView<const float> x, RowRange groups) const;
  Unit Fc1UnitAt(int64_t index) const;
  Unit Fc2UnitAt(int64_t index) const;
  // For the waits before fc1 and fc2: the worker's first weights.
  auto FirstFc1Prefetch(int worker) const;
  RowPrefetch FirstFc2Prefetch(int worker) const;
  // A worker's share of all steps, from packing to the barrier after fc2.
  void RunJobs(MatView<const float> x, int64_t out_stride, const std::atomic<ExpertReady>* ready, int worker,
               int workers);
  void RunFc1(const Unit& unit, int worker) const;
  void RunFc2(const Unit& unit, int64_t out_stride, int worker) const;

  const CpuContext& cpu_;
  Limits limits_;
  ExpertNumerics numerics_;
  sys::AlignedBuffer workspace_;
  std::vector<Job> jobs_;
  std::vector<float> ones_;  // to add a bias to a whole row of products
  bool small_tiles_fc1_ = false, small_tiles_fc2_ = false;
  int64_t pack_groups_ = 0, fc1_units_ = 0, fc2_units_ = 0;  // of the running call
  sys::WorkRanges fc1_work_, fc2_work_;
  sys::PhaseBarrier barrier_;
};

}  // namespace bellhop::moe
