#include "model/gpu/gpu_prompt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda/cuda_try.h"

namespace bellhop::model {

uint64_t GpuPrompt::Pinned::Place(std::byte* base, const ModelSpec& spec, const GpuModelOptions& options) {
  DeviceArena arena(base);
  embeddings = arena.Take<float>(static_cast<uint64_t>(PromptRows(options)) * static_cast<uint64_t>(spec.hidden));
  pages = arena.Take<int32_t>(static_cast<uint64_t>(MaxPages(options.base)));
  bad_row = arena.Take<uint32_t>(1);
  return arena.used();
}

GpuPrompt::Needs GpuPrompt::PlanFor(const ModelSpec& spec, const store::ExpertStore& store,
                                    const GpuModelOptions& options) {
  Needs needs;
  if (PromptRows(options) == 0) return needs;
  DeviceArena count;
  TakePromptBuffers(spec, options, &count);
  needs.workspace_bytes = count.used();
  needs.wave_bytes = kWaveBanks * PromptFetch::BankBytes(spec, store, options);
  Pinned pinned;
  needs.host_bytes = pinned.Place(nullptr, spec, options) + PromptFetch::PinnedBytes(spec, store, options);
  return needs;
}

Result<std::unique_ptr<GpuPrompt>> GpuPrompt::Create(const Inputs& in, std::vector<std::string>* notes) {
  if (PromptRows(in.options) == 0) return std::unique_ptr<GpuPrompt>();
  auto made = std::unique_ptr<GpuPrompt>(new GpuPrompt(in));
  cuda::Device* const device = &in.stream.device();
  const uint64_t bytes = PlanFor(in.spec, in.store, in.options).workspace_bytes;
  BELLHOP_TRY_ASSIGN(made->memory_, cuda::DeviceBuffer::Create(device, bytes, MemoryTag::kWorkspace));
  DeviceArena arena(made->memory_.bytes().data());
  made->buffers_ = TakePromptBuffers(in.spec, in.options, &arena);
  BELLHOP_CUDA_CHECK(device, kernels::ChoosePromptMath(&made->buffers_.device));
  notes->push_back(
      fmt::format("GPU: prompts are multiplied with {}", kernels::PromptMathName(made->buffers_.device.math)));
  Pinned count;
  BELLHOP_TRY_ASSIGN(made->pinned_memory_, cuda::PinnedBuffer::Create(device, count.Place(nullptr, in.spec, in.options),
                                                                      MemoryTag::kStaging));
  made->pinned_.Place(made->pinned_memory_.bytes().data(), in.spec, in.options);
  made->bad_rows_.resize(static_cast<size_t>(made->buffers_.rows));
  BELLHOP_TRY_ASSIGN(made->fetch_, PromptFetch::Create({.spec = in.spec,
                                                        .store = in.store,
                                                        .placement = in.placement,
                                                        .options = in.options,
                                                        .buffers = made->buffers_,
                                                        .step = in.step,
                                                        .stream = in.stream,
                                                        .pool = in.pool,
                                                        .registered = in.registered},
                                                       notes));
  return made;
}

Status GpuPrompt::Bind(const GpuLayers& layers, const TokenEmbedding* embedding) {
  layers_ = BuildPromptLayers(spec_, layers, step_, buffers_);
  embedding_ = embedding;
  pinned_.pages[0] = 0;
  embedding_->Decode(0, pinned_.embeddings);
  BELLHOP_TRY(CopyInput(1, 1));
  BELLHOP_TRY(SubmitLayers({1, 0}, PromptPart::kAll));
  BELLHOP_TRY(SubmitPromptHead(layers_, 0, 1, step_.logits, &stream_.device(), stream_.queue()));
  return stream_.Synchronize();
}

Status GpuPrompt::CopyInput(int32_t rows, size_t pages) {
  const auto bytes = static_cast<size_t>(rows) * static_cast<size_t>(spec_.hidden) * sizeof(float);
  BELLHOP_TRY(cuda::CopyToDevice({reinterpret_cast<std::byte*>(buffers_.residual), bytes},
                                 {reinterpret_cast<const std::byte*>(pinned_.embeddings), bytes}, stream_));
  BELLHOP_TRY(cuda::CopyToDevice({reinterpret_cast<std::byte*>(buffers_.block_table), pages * sizeof(int32_t)},
                                 {reinterpret_cast<const std::byte*>(pinned_.pages), pages * sizeof(int32_t)},
                                 stream_));
  if (buffers_.bad_row == nullptr) return Status();
  return cuda::FillZero({reinterpret_cast<std::byte*>(buffers_.bad_row), sizeof(uint32_t)}, stream_);
}

Status GpuPrompt::BeginChunk(HostSpan<const StepRow> rows) {
  const std::vector<int32_t>& pages = rows[0].sequence->pages();
  const size_t used = static_cast<size_t>(rows[rows.size() - 1].position / kernels::kKvPageTokens) + 1;
  if (used > pages.size()) return Internal("a chunk that ends on page {} of {}", used, pages.size());
  std::copy_n(pages.begin(), used, pinned_.pages);
  pool_->ParallelFor(static_cast<int64_t>(rows.size()), 4, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      embedding_->Decode(rows[static_cast<size_t>(m)].token, pinned_.embeddings + m * spec_.hidden);
    }
  });
  return CopyInput(static_cast<int32_t>(rows.size()), used);
}

Status GpuPrompt::SubmitLayers(const PromptChunk& chunk, PromptPart only) {
  cuda::Device* const device = &stream_.device();
  cuda::LaunchQueue first = stream_.queue();
  first.overlap = false;  // behind copies
  for (size_t l = 0; l < layers_.layers.size(); ++l) {
    const PromptLayer& layer = layers_.layers[l];
    const cuda::LaunchQueue queue = stream_.queue();
    BELLHOP_TRY(SubmitPromptMixer(layer, chunk, only, device, l == 0 ? first : queue));
    BELLHOP_TRY(SubmitPromptRoutes(layer, chunk, only, device, queue));
    if (!layer.router) continue;
    BELLHOP_TRY(fetch_.SubmitExperts(l, layer, chunk, only, stream_));
    BELLHOP_TRY(SubmitPromptCombine(layer, chunk, only, device, queue));
  }
  return Status();
}

// The first `count` rows of the logits' buffers, when the stream is done.
Status GpuPrompt::TakeLogits(int32_t count, MatView<float> logits, int64_t* written) {
  const auto row_bytes = static_cast<size_t>(spec_.vocab) * sizeof(float);
  const size_t bytes = static_cast<size_t>(count) * row_bytes;
  BELLHOP_TRY(cuda::CopyToHost({reinterpret_cast<std::byte*>(pinned_logits_), bytes},
                               {reinterpret_cast<const std::byte*>(step_.logits), bytes}, stream_));
  BELLHOP_TRY(stream_.Synchronize());
  for (int32_t i = 0; i < count; ++i) {
    std::memcpy(logits.Row((*written)++), pinned_logits_ + int64_t{i} * spec_.vocab, row_bytes);
  }
  return Status();
}

Status GpuPrompt::SubmitHead(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written) {
  int32_t held = 0;  // rows in the logits' buffers
  for (size_t m = 0; m < rows.size();) {
    if (!rows[m].want_logits) {
      ++m;
      continue;
    }
    const size_t room = static_cast<size_t>(kMaxDecodeStepRows - held);
    size_t count = 1;
    while (count < room && m + count < rows.size() && rows[m + count].want_logits) ++count;
    BELLHOP_TRY(SubmitPromptHead(layers_, static_cast<int32_t>(m), static_cast<int32_t>(count),
                                 step_.logits + int64_t{held} * spec_.vocab, &stream_.device(), stream_.queue()));
    held += static_cast<int32_t>(count);
    m += count;
    if (held < kMaxDecodeStepRows) continue;
    BELLHOP_TRY(TakeLogits(held, logits, written));
    held = 0;
  }
  return held > 0 ? TakeLogits(held, logits, written) : Status();
}

// logits: of the rows that want them.
Status GpuPrompt::CheckChunk(HostSpan<const StepRow> rows, MatView<const float> logits) {
  std::fill_n(bad_rows_.begin(), rows.size(), uint8_t{0});
  if (buffers_.bad_row != nullptr && *pinned_.bad_row != 0) bad_rows_[~*pinned_.bad_row] |= kBadRouter;
  int64_t at = 0;
  for (size_t m = 0; m < rows.size(); ++m) {
    if (rows[m].want_logits && !AllFinite(logits.Row(at++), spec_.vocab)) bad_rows_[m] |= kBadLogits;
  }
  return CheckFaults(rows, {bad_rows_.data(), rows.size()});
}

Status GpuPrompt::RunChunk(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written) {
  const PromptChunk chunk{static_cast<int32_t>(rows.size()), rows[0].position};
  const int64_t first = *written;
  BELLHOP_TRY(BeginChunk(rows));
  BELLHOP_TRY(SubmitLayers(chunk, PromptPart::kAll));
  if (buffers_.bad_row != nullptr) {
    BELLHOP_TRY(cuda::CopyToHost({reinterpret_cast<std::byte*>(pinned_.bad_row), sizeof(uint32_t)},
                                 {reinterpret_cast<const std::byte*>(buffers_.bad_row), sizeof(uint32_t)}, stream_));
  }
  BELLHOP_TRY(SubmitHead(rows, logits, written));
  BELLHOP_TRY(stream_.Synchronize());
  const float* const own = first < *written ? logits.Row(first) : nullptr;
  return CheckChunk(rows, {own, *written - first, spec_.vocab, logits.stride});
}

Status GpuPrompt::Forward(HostSpan<const StepRow> rows, MatView<float> logits, int64_t* written) {
  for (size_t at = 0; at < rows.size();) {
    BELLHOP_TRY(stream_.device().poison().status());
    const size_t count = ChunkRows(rows.subspan(at), static_cast<size_t>(buffers_.rows));
    const Status done = RunChunk(rows.subspan(at, count), logits, written);
    if (!done.ok()) {
      // Nothing may read what the host writes next.
      static_cast<void>(stream_.Synchronize());
      fetch_.Drain();
      return done;
    }
    at += count;
  }
  return Status();
}

Result<std::string> GpuPrompt::TimeParts() {
  constexpr int kRuns = 5;
  static constexpr const char* kNames[kPromptParts] = {
      "all parts", "QKV", "QK norm and RoPE", "attention", "output", "router", "sort", "fc1", "fc2", "combine", "head"};
  const PromptChunk chunk{buffers_.rows, 0};
  const size_t pages = static_cast<size_t>((chunk.rows - 1) / kernels::kKvPageTokens) + 1;
  for (size_t p = 0; p < pages; ++p) pinned_.pages[p] = static_cast<int32_t>(p);
  for (int32_t m = 0; m < chunk.rows; ++m) {
    embedding_->Decode(m % static_cast<int32_t>(spec_.vocab), pinned_.embeddings + m * spec_.hidden);
  }
  BELLHOP_TRY_ASSIGN(const cuda::Event begin, cuda::Event::Create(&stream_.device(), cuda::Event::Kind::kTiming));
  BELLHOP_TRY_ASSIGN(const cuda::Event end, cuda::Event::Create(&stream_.device(), cuda::Event::Kind::kTiming));
  std::string line = fmt::format("GPU, us of a prompt's chunk of {} rows:", chunk.rows);
  for (int i = 0; i < kPromptParts; ++i) {
    const auto part = static_cast<PromptPart>(i);
    const auto submit = [&]() -> Status {
      BELLHOP_TRY(SubmitLayers(chunk, part));
      if (part != PromptPart::kAll && part != PromptPart::kHead) return Status();
      return SubmitPromptHead(layers_, chunk.rows - 1, 1, step_.logits, &stream_.device(), stream_.queue());
    };
    double ms = 0;
    for (int run = 0; run <= kRuns; ++run) {  // the first is not timed: it loads kernels
      BELLHOP_TRY(CopyInput(chunk.rows, pages));
      BELLHOP_TRY(begin.Record(stream_));
      BELLHOP_TRY(submit());
      BELLHOP_TRY(end.Record(stream_));
      BELLHOP_TRY(stream_.Synchronize());
      BELLHOP_TRY_ASSIGN(const double own, end.MillisecondsSince(begin));
      if (run > 0) ms += own;
    }
    line += fmt::format("{} {} {:.0f}", i == 0 ? "" : ",", kNames[i], ms * 1e3 / kRuns);
  }
  return line;
}

}  // namespace bellhop::model
