#include "model/attention_workspace.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/attention.h"

namespace bellhop::model {
namespace {

// With fewer units than this per worker a phase is cut finer, so that no worker waits long for the last one.
constexpr int64_t kUnitsPerWorker = 2;

// States of split rows beyond what one row of the full context needs: 16 MiB.
constexpr int64_t kSpareStateFloats = int64_t{4} << 20;

int64_t RowsPerBlock(int64_t group) { return std::max<int64_t>(1, kernels::kAttentionBlock / group); }

int64_t SpansOf(int64_t begin, int64_t end) {
  return (end - 1) / kernels::kAttentionSpan - begin / kernels::kAttentionSpan + 1;
}

}  // namespace

AttentionWorkspace::Sizes AttentionWorkspace::Measure(const ModelSpec& spec, int32_t max_rows, int32_t context_tokens,
                                                      int threads) {
  Sizes sizes;
  const int64_t wanted = kUnitsPerWorker * threads;
  for (const LayerSpec& layer : spec.layers) {
    const auto* a = std::get_if<AttentionSpec>(&layer.mixer);
    if (a == nullptr) continue;
    const int64_t group = a->heads / a->kv_heads;
    const int64_t scratch = kernels::AttentionScratchFloats(RowsPerBlock(group), group, a->key_dim, a->value_dim);
    const int64_t visible = a->window > 0 ? std::min(a->window, context_tokens) : context_tokens;
    const int64_t spans = CeilDiv(visible, kernels::kAttentionSpan) + 1;
    const int64_t one_row = spans * a->heads * kernels::AttentionStateFloats(a->value_dim);
    const int64_t split_rows = std::min<int64_t>(max_rows, CeilDiv(wanted, a->kv_heads));
    const int64_t states = std::max(one_row, std::min(one_row * split_rows, kSpareStateFloats));
    sizes.scratch = std::max(sizes.scratch, RoundUp(static_cast<uint64_t>(scratch), 16));
    sizes.states = std::max(sizes.states, RoundUp(static_cast<uint64_t>(states), 16));
    // Fewer than `wanted` pairs of block and KV head, each in parts while there are fewer parts than workers.
    sizes.counters = static_cast<uint64_t>(wanted + threads);
  }
  return sizes;
}

uint64_t AttentionWorkspace::BytesFor(const ModelSpec& spec, int32_t max_rows, int32_t context_tokens, int threads) {
  const Sizes sizes = Measure(spec, max_rows, context_tokens, threads);
  return (sizes.scratch * static_cast<uint64_t>(threads) + sizes.states) * sizeof(float) +
         sizes.counters * sizeof(std::atomic<int32_t>) + static_cast<uint64_t>(max_rows) * sizeof(AttentionBlock);
}

Result<std::unique_ptr<AttentionWorkspace>> AttentionWorkspace::Create(const ModelSpec& spec, int32_t max_rows,
                                                                       int32_t context_tokens, int threads) {
  const Sizes sizes = Measure(spec, max_rows, context_tokens, threads);
  auto workspace = std::unique_ptr<AttentionWorkspace>(new AttentionWorkspace(sizes, threads));
  const uint64_t scratch = sizes.scratch * static_cast<uint64_t>(threads);
  BELLHOP_TRY_ASSIGN(workspace->buffer_,
                     sys::AlignedBuffer::Create((scratch + sizes.states) * sizeof(float), MemoryTag::kWorkspace));
  workspace->scratch_ = workspace->buffer_.as<float>().data();
  workspace->states_ = workspace->scratch_ + scratch;
  workspace->counters_ = std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(sizes.counters));
  workspace->blocks_.reserve(static_cast<size_t>(max_rows));
  return workspace;
}

AttentionCut AttentionWorkspace::Cut(const AttentionSpec& spec, HostSpan<const StepRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t group = spec.heads / spec.kv_heads, wanted = kUnitsPerWorker * threads_;
  int64_t per_block = RowsPerBlock(group);
  while (threads_ > 1 && per_block > 1 && CeilDiv(count, per_block) * spec.kv_heads < wanted) per_block /= 2;

  blocks_.clear();
  int64_t states = 0, spans = 0;
  for (int64_t m = 0; m < count;) {
    const StepRow& first = rows[static_cast<size_t>(m)];
    int64_t n = 1;
    while (n < per_block && m + n < count && rows[static_cast<size_t>(m + n)].sequence == first.sequence) ++n;
    const int64_t begin = VisibleBegin(spec, first.position), end = first.position + n;
    AttentionBlock block{};
    block.first_row = static_cast<int32_t>(m);
    block.row_count = static_cast<int32_t>(n);
    block.first_span = static_cast<int32_t>(begin / kernels::kAttentionSpan);
    block.spans = static_cast<int32_t>(SpansOf(begin, end));
    block.first_state = states;
    states += block.spans * n * spec.heads * kernels::AttentionStateFloats(spec.value_dim);
    spans += block.spans;
    blocks_.push_back(block);
    m += n;
  }

  AttentionCut cut;
  cut.blocks = static_cast<int32_t>(blocks_.size());
  const int64_t pairs = int64_t{cut.blocks} * spec.kv_heads;
  cut.by_span = threads_ > 1 && pairs < wanted && spans > cut.blocks && states <= static_cast<int64_t>(sizes_.states);
  const int64_t units = cut.by_span ? spans * spec.kv_heads : pairs;
  const int64_t parts = std::clamp<int64_t>(CeilDiv(threads_, units), 1, group);
  cut.heads_per_part = static_cast<int32_t>(CeilDiv(group, parts));
  cut.parts = static_cast<int32_t>(CeilDiv(group, cut.heads_per_part));
  for (AttentionBlock& block : blocks_) {
    block.first_unit = static_cast<int32_t>(cut.units);
    const int32_t pieces = spec.kv_heads * cut.parts;
    cut.units += int64_t{pieces} * (cut.by_span ? block.spans : 1);
    if (!cut.by_span) continue;
    block.first_counter = static_cast<int32_t>(&block - blocks_.data()) * pieces;
    for (int32_t i = 0; i < pieces; ++i) Counter(block.first_counter + i).store(block.spans, std::memory_order_relaxed);
  }
  return cut;
}

}  // namespace bellhop::model
