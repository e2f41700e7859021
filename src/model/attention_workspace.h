// Memory of the attention stage, shared by all layers, and the cut of a step's rows into units of work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/spec.h"
#include "model/stages.h"
#include "sys/aligned_buffer.h"
#include "sys/phase_barrier.h"

namespace bellhop::model {

// Consecutive rows of one sequence that share their reads of K and V.
struct AttentionBlock {
  int32_t first_row, row_count;
  int32_t first_span, spans;  // what its rows see
  int32_t first_unit;         // units of the blocks before
  int32_t first_counter;
  int64_t first_state;  // floats
};

// How the attention of one layer is split over the workers. A unit is (block, KV head, part of the head's query heads)
// or, where there are fewer of these than the workers need, one span of positions of it. The cut does not change a
// result (kernels/attention.h), so it may depend on the number of workers.
struct AttentionCut {
  int32_t heads_per_part = 0, parts = 1;  // of the query heads of one KV head
  bool by_span = false;
  int32_t blocks = 0;
  int64_t units = 0;
};

class AttentionWorkspace {
 public:
  // UINT64_MAX when the size does not fit 64 bits.
  static uint64_t BytesFor(const ModelSpec& spec, int32_t max_rows, int32_t context_tokens, int threads);
  static Result<std::unique_ptr<AttentionWorkspace>> Create(const ModelSpec& spec, int32_t max_rows,
                                                            int32_t context_tokens, int threads);

  // Cuts a step's rows for a layer; fills blocks() and the counters.
  AttentionCut Cut(const AttentionSpec& spec, HostSpan<const StepRow> rows);

  const std::vector<AttentionBlock>& blocks() const { return blocks_; }
  float* Scratch(int worker) const { return scratch_ + worker * static_cast<int64_t>(sizes_.scratch); }
  float* states() const { return states_; }
  // Between the append to the cache and attention, within one phase.
  sys::PhaseBarrier& barrier() { return barrier_; }
  // The spans that a (block, KV head, part) still waits for.
  std::atomic<int32_t>& Counter(int64_t i) { return counters_[static_cast<size_t>(i)]; }

 private:
  struct Sizes {
    uint64_t scratch = 0;  // floats per worker
    uint64_t states = 0;   // floats
    uint64_t counters = 0;
  };
  static Sizes Measure(const ModelSpec& spec, int32_t max_rows, int32_t context_tokens, int threads);
  AttentionWorkspace(const Sizes& sizes, int threads) : sizes_(sizes), threads_(threads), barrier_(threads) {}

  Sizes sizes_;
  int threads_;
  sys::PhaseBarrier barrier_;
  sys::AlignedBuffer buffer_;
  float* scratch_ = nullptr;
  float* states_ = nullptr;
  std::unique_ptr<std::atomic<int32_t>[]> counters_;
  std::vector<AttentionBlock> blocks_;
};

// First visible position of a row.
inline int64_t VisibleBegin(const AttentionSpec& spec, int64_t position) {
  return spec.window > 0 && position + 1 > spec.window ? position + 1 - spec.window : 0;
}

}  // namespace bellhop::model
