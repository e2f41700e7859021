// The GPU's model: memory, experts in slots, the doorbell's service, and one captured graph per number of rows.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/units.h"
#include "cuda/cuda_try.h"
#include "cuda/doorbell_channel.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "model/gpu/device_kv.h"
#include "model/gpu/doorbell_host.h"
#include "model/gpu/expert_banks.h"
#include "model/gpu/gpu_counts.h"
#include "model/gpu/gpu_layers.h"
#include "model/gpu/gpu_prompt.h"
#include "model/gpu/pcie_lane.h"
#include "model/gpu/time_parts.h"
#include "model/gpu/token_embedding.h"
#include "model/gpu_model.h"

namespace bellhop::model {
namespace {

constexpr int kBuckets = 6;  // 1, 2, 4, 8, 16, 32 rows
// What the runtime takes for graphs of this many nodes; measured generously.
constexpr uint64_t kGraphBytes = 64 << 20;

int BucketOf(int32_t rows) { return std::bit_width(static_cast<uint32_t>(rows - 1)); }

int32_t WidestLayer(const ModelSpec& spec, int32_t* used) {
  int32_t experts = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      experts = std::max(experts, moe->experts);
      *used = std::max(*used, moe->used);
    }
  }
  return experts;
}

// What the device knows of a step's rows, and the host's logits.
struct Pinned {
  kernels::StepInput* input = nullptr;
  float* embeddings = nullptr;
  int32_t* pages = nullptr;
  cuda::DoorbellState* state = nullptr;
  float* logits = nullptr;

  static uint64_t Bytes(const ModelSpec& spec, const TransformerOptions& options) {
    Pinned none;
    return none.Place(nullptr, spec, options);
  }
  uint64_t Place(std::byte* base, const ModelSpec& spec, const TransformerOptions& options) {
    DeviceArena arena(base);
    const auto rows = static_cast<uint64_t>(kMaxDecodeStepRows);
    input = arena.Take<kernels::StepInput>(1);
    embeddings = arena.Take<float>(rows * static_cast<uint64_t>(spec.hidden));
    pages = arena.Take<int32_t>(rows * static_cast<uint64_t>(CeilDiv(options.context_tokens, kernels::kKvPageTokens)));
    state = arena.Take<cuda::DoorbellState>(1);
    logits = arena.Take<float>(rows * static_cast<uint64_t>(spec.vocab));
    return arena.used();
  }
};

class GpuModel final : public StepModel {
 public:
  GpuModel(const manifest::Manifest& manifest, ModelSpec spec, const store::ExpertStore& store,
           const plan::GpuPlacement& placement, const GpuModelOptions& options)
      : manifest_(manifest),
        spec_(std::move(spec)),
        store_(store),
        placement_(placement),
        options_(options),
        counts_(placement.placement) {}
  ~GpuModel() override {
    doorbell_.Stop();
    if (stream_) static_cast<void>(stream_->Synchronize());
  }

  Status Load(sys::WorkerPool* pool, const sys::CpuCaps& caps, std::vector<std::string>* notes);

  std::unique_ptr<SequenceState> NewSequence() override {
    return std::make_unique<SequenceState>(kv_.get(), options_.base.context_tokens, 0);
  }
  Status Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits) override;
  cuda::Device* device() override { return device_.get(); }
  Status ForwardAndSample(HostSpan<const StepRow> rows, MatView<float> logits, StepSampler* sampler) override;
  const ModelSpec& spec() const override { return spec_; }
  const TransformerOptions& options() const override { return options_.base; }
  const moe::RouteCounts* counts() override;
  void ResetCounts() override;
  Status SetObserver(moe::RouteObserver* observer) override {
    if (observer == nullptr || experts_ == 0) return Status();
    return Unsupported("the GPU backend does not report single routes; use --device cpu");
  }
  StepModelTraffic Traffic() override;

 private:
  Status AllocateStep();
  Status LoadDense(std::vector<std::string>* notes);
  Status StartColdPath(sys::WorkerPool* pool, const sys::CpuCaps& caps, std::vector<std::string>* notes);
  Status CaptureGraphs();
  Status TimeParts(std::vector<std::string>* notes);
  // `sampler`: may be null.
  Status RunStep(HostSpan<const StepRow> rows, MatView<float> logits, StepSampler* sampler, int64_t* written);
  Status CopyState();
  void FillInput(HostSpan<const StepRow> rows);
  Status CheckStepFaults(HostSpan<const StepRow> rows, MatView<const float> logits, const StepSampler* sampler) const;

  const manifest::Manifest& manifest_;
  ModelSpec spec_;
  const store::ExpertStore& store_;
  const plan::GpuPlacement& placement_;
  GpuModelOptions options_;
  int32_t experts_ = 0, used_ = 0;

  cuda::MemoryLedger ledger_;
  std::unique_ptr<cuda::Device> device_;
  std::optional<cuda::Stream> stream_;
  cuda::DeviceBuffer step_memory_, dense_memory_;
  cuda::PinnedBuffer pinned_memory_;
  PcieLanes pcie_;
  std::unique_ptr<DeviceKvPool> kv_;
  StepBuffers buffers_;
  Pinned pinned_;
  ExpertBanks banks_;
  GpuLayers layers_;
  std::unique_ptr<GpuPrompt> prompt_;  // null: prompts run in the decode class
  TokenEmbedding embedding_;
  std::array<std::array<std::optional<cuda::GraphExec>, 2>, kBuckets> graphs_;  // [rows][with head]

  DoorbellHost doorbell_;  // without a service where every expert has a slot, or the GPU reads the others

  GpuCounts counts_;
  cuda::DoorbellCounters counters_base_;
  bool counts_stale_ = false;
};

Status GpuModel::AllocateStep() {
  BELLHOP_TRY_ASSIGN(device_, cuda::Device::Open(DeviceId(0), options_.ledger != nullptr ? options_.ledger : &ledger_));
  BELLHOP_TRY_ASSIGN(cuda::Stream stream, cuda::Stream::Create(device_.get()));
  stream_.emplace(std::move(stream));
  DeviceArena count;
  TakeStepBuffers(spec_, options_, &count);
  BELLHOP_TRY_ASSIGN(step_memory_, cuda::DeviceBuffer::Create(device_.get(), count.used(), MemoryTag::kWorkspace));
  BELLHOP_TRY(cuda::FillZero(step_memory_.bytes(), *stream_));
  DeviceArena arena(step_memory_.bytes().data());
  buffers_ = TakeStepBuffers(spec_, options_, &arena);

  BELLHOP_TRY_ASSIGN(pinned_memory_, cuda::PinnedBuffer::Create(device_.get(), Pinned::Bytes(spec_, options_.base),
                                                                MemoryTag::kStaging));
  pinned_.Place(pinned_memory_.bytes().data(), spec_, options_.base);
  BELLHOP_TRY_ASSIGN(kv_, DeviceKvPool::Create(KvLayout::Create(KvShapes(spec_), options_.base.kv_type),
                                               KvPageCount(options_.base), &*stream_));
  if (experts_ == 0) return Status();
  DoorbellHost::State state{.first = {}, .pinned = pinned_.state, .device = buffers_.doorbell};
  state.first.deadline_ns = options_.deadline_ns;
  state.first.timers = options_.timers ? 1 : 0;
  return doorbell_.Open({.rows = kMaxDecodeStepRows, .used = used_, .hidden = spec_.hidden}, state, *stream_);
}

Status GpuModel::LoadDense(std::vector<std::string>* notes) {
  BELLHOP_TRY_ASSIGN(WeightUploader uploader, WeightUploader::Create(device_.get(), &*stream_));
  LayerInputs in{.manifest = manifest_,
                 .spec = spec_,
                 .store = store_,
                 .options = options_,
                 .kv = kv_->layout(),
                 .kv_base = kv_->base(),
                 .banks = {},
                 .channel = doorbell_.channel(),
                 .buffers = buffers_,
                 .pcie = &pcie_};
  DeviceArena count;
  DenseWeights counted(manifest_, &count, nullptr);
  BELLHOP_TRY(BuildGpuLayers(in, &counted).status());
  BELLHOP_TRY_ASSIGN(dense_memory_, cuda::DeviceBuffer::Create(device_.get(), count.used(), MemoryTag::kDenseWeights));
  if (experts_ > 0) {
    BELLHOP_TRY_ASSIGN(banks_, ExpertBanks::Create(store_, placement_, buffers_, &uploader, *stream_));
    in.banks = banks_.bases();
  }
  DeviceArena arena(dense_memory_.bytes().data());
  DenseWeights weights(manifest_, &arena, &uploader);
  BELLHOP_TRY_ASSIGN(layers_, BuildGpuLayers(in, &weights));
  layers_.begin.input = pinned_.input;
  BELLHOP_TRY(stream_->Synchronize());  // the uploader's memory goes
  if (!layers_.slow_tensors.empty()) {
    notes->push_back(fmt::format("GPU: {} matrices have no kernels of their own and are decoded on the way: {}{}",
                                 layers_.slow_tensors.size(), layers_.slow_tensors.front(),
                                 layers_.slow_tensors.size() > 1 ? ", ..." : ""));
  }
  BELLHOP_TRY_ASSIGN(embedding_, TokenEmbedding::Create(manifest_, spec_));
  return Status();
}

Status GpuModel::StartColdPath(sys::WorkerPool* pool, const sys::CpuCaps& caps, std::vector<std::string>* notes) {
  if (!pcie_.rings()) return Status();
  return doorbell_.Start(store_, pool, caps,
                         {.cold = {.hidden = spec_.hidden,
                                   .max_rows = kMaxDecodeStepRows,
                                   .max_used = used_,
                                   .numerics = {.activation = spec_.activation}},
                          .cpu_inner = pcie_.cpu_inner(),
                          .service_cpu = options_.service_cpu,
                          .wrap_runner = options_.wrap_runner},
                         notes);
}

Status GpuModel::CaptureGraphs() {
  // Kernels are loaded when they are first used; a graph's creation uses them all.
  for (int b = 0; b < kBuckets; ++b) {
    for (int head = 0; head < 2; ++head) {
      BELLHOP_TRY_ASSIGN(const cuda::Graph graph, cuda::Graph::Capture(*stream_, [&] {
                           return SubmitStep(layers_, 1 << b, head != 0, StepPart::kAll, device_.get(),
                                             stream_->queue());
                         }));
      BELLHOP_TRY_ASSIGN(cuda::GraphExec exec, cuda::GraphExec::Create(graph, *stream_));
      graphs_[static_cast<size_t>(b)][static_cast<size_t>(head)].emplace(std::move(exec));
    }
  }
  return stream_->Synchronize();
}

Status GpuModel::Load(sys::WorkerPool* pool, const sys::CpuCaps& caps, std::vector<std::string>* notes) {
  BELLHOP_TRY(CheckOptions(options_.base));
  BELLHOP_TRY(CheckGpuModel(spec_, store_));
  experts_ = WidestLayer(spec_, &used_);
  BELLHOP_TRY(AllocateStep());
  // Before the weights: a lane that cannot be had fails early.
  BELLHOP_TRY_ASSIGN(pcie_,
                     PcieLanes::Create(spec_, store_, placement_.placement, options_.lane, caps, buffers_, *stream_));
  BELLHOP_TRY_ASSIGN(prompt_, GpuPrompt::Create({.spec = spec_,
                                                 .store = store_,
                                                 .placement = placement_.placement,
                                                 .options = options_,
                                                 .step = buffers_,
                                                 .stream = *stream_,
                                                 .pool = pool,
                                                 .registered = pcie_.registered(),
                                                 .pinned_logits = pinned_.logits},
                                                notes));
  BELLHOP_TRY(LoadDense(notes));
  if (prompt_ != nullptr) BELLHOP_TRY(prompt_->Bind(layers_, &embedding_));
  BELLHOP_TRY(StartColdPath(pool, caps, notes));
  counts_.Begin(spec_.layers.size(), experts_);
  BELLHOP_TRY(CaptureGraphs());
  // A layer that rings cannot run alone.
  const bool resident = experts_ == 0 || placement_.placement.resident() == placement_.placement.total();
  if (options_.timers && resident) BELLHOP_TRY(TimeParts(notes));
  // What this has counted is no step's.
  counts_stale_ = true;
  BELLHOP_TRY(CopyState());
  BELLHOP_TRY(stream_->Synchronize());
  ResetCounts();
  return Status();
}

// The parts of a step of one row, each by itself for all layers, in the middle of the context.
Status GpuModel::TimeParts(std::vector<std::string>* notes) {
  kernels::StepInput& input = *pinned_.input;
  input.rows = 1;
  input.embeddings = pinned_.embeddings;
  input.pages = pinned_.pages;
  input.max_pages = static_cast<int32_t>(CeilDiv(options_.base.context_tokens, kernels::kKvPageTokens));
  input.positions[0] = options_.base.context_tokens / 2;
  for (int32_t p = 0; p < input.max_pages; ++p) pinned_.pages[p] = p;
  embedding_.Decode(0, pinned_.embeddings);
  BELLHOP_TRY_ASSIGN(std::string line, TimeStepParts(layers_, *stream_));
  notes->push_back(std::move(line));
  if (prompt_ != nullptr) {
    BELLHOP_TRY_ASSIGN(std::string chunk, prompt_->TimeParts());
    notes->push_back(std::move(chunk));
  }
  return Status();
}

// Row errors and totals of the steps so far, in stream order.
Status GpuModel::CopyState() {
  if (experts_ == 0) return Status();
  return cuda::CopyToHost({reinterpret_cast<std::byte*>(pinned_.state), sizeof(cuda::DoorbellState)},
                          {reinterpret_cast<const std::byte*>(buffers_.doorbell), sizeof(cuda::DoorbellState)},
                          *stream_);
}

void GpuModel::FillInput(HostSpan<const StepRow> rows) {
  kernels::StepInput& input = *pinned_.input;
  input.rows = static_cast<int32_t>(rows.size());
  input.embeddings = pinned_.embeddings;
  input.pages = pinned_.pages;
  input.max_pages = static_cast<int32_t>(CeilDiv(options_.base.context_tokens, kernels::kKvPageTokens));
  for (size_t m = 0; m < rows.size(); ++m) {
    input.positions[m] = rows[m].position;
    const std::vector<int32_t>& pages = rows[m].sequence->pages();
    const size_t used = static_cast<size_t>(rows[m].position / kernels::kKvPageTokens) + 1;
    std::copy_n(pages.begin(), std::min(used, pages.size()), pinned_.pages + m * static_cast<size_t>(input.max_pages));
    embedding_.Decode(rows[m].token, pinned_.embeddings + static_cast<int64_t>(m) * spec_.hidden);
  }
}

Status GpuModel::CheckStepFaults(HostSpan<const StepRow> rows, MatView<const float> logits,
                                 const StepSampler* sampler) const {
  std::array<uint8_t, kMaxDecodeStepRows> bad{};
  int64_t at = 0;
  for (size_t m = 0; m < rows.size(); ++m) {
    if (experts_ > 0 && pinned_.state->rows[m].code != cuda::RowErrorCode::kNone) {
      if (pinned_.state->rows[m].code == cuda::RowErrorCode::kRouter) {
        bad[m] |= kBadRouter;
      } else {
        return cuda::DoorbellRowStatus(pinned_.state->rows[m]);
      }
    }
    if (sampler != nullptr && !rows[m].want_logits && sampler->IsFault(static_cast<int32_t>(m))) bad[m] |= kBadLogits;
    if (!rows[m].want_logits) continue;
    const float* const row = logits.Row(at++);
    if (!AllFinite(row, spec_.vocab)) bad[m] |= kBadLogits;
  }
  return CheckFaults(rows, {bad.data(), rows.size()});
}

Status GpuModel::RunStep(HostSpan<const StepRow> rows, MatView<float> logits, StepSampler* sampler, int64_t* written) {
  BELLHOP_TRY(device_->poison().status());
  FillInput(rows);
  const bool head =
      sampler != nullptr || std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return row.want_logits; });
  BELLHOP_TRY(doorbell_.BeginStep());
  counts_stale_ = true;
  Status status =
      graphs_[static_cast<size_t>(BucketOf(static_cast<int32_t>(rows.size())))][head ? 1 : 0]->Launch(*stream_);
  if (status.ok() && sampler != nullptr) {
    status = sampler->Submit(buffers_.logits, spec_.vocab, static_cast<int32_t>(rows.size()), *stream_);
  }
  int64_t wanted = 0;
  const auto row_bytes = static_cast<size_t>(spec_.vocab) * sizeof(float);
  for (size_t m = 0; status.ok() && m < rows.size(); ++m) {
    if (!rows[m].want_logits) continue;
    status = cuda::CopyToHost(
        {reinterpret_cast<std::byte*>(pinned_.logits + wanted++ * spec_.vocab), row_bytes},
        {reinterpret_cast<const std::byte*>(buffers_.logits + static_cast<int64_t>(m) * spec_.vocab), row_bytes},
        *stream_);
  }
  if (status.ok()) status = CopyState();
  const Status done = stream_->Synchronize();
  BELLHOP_TRY(doorbell_.EndStep());
  BELLHOP_TRY(status);
  BELLHOP_TRY(done);
  for (int64_t i = 0; i < wanted; ++i) {
    std::memcpy(logits.Row(*written + i), pinned_.logits + i * spec_.vocab, row_bytes);
  }
  BELLHOP_TRY(CheckStepFaults(rows, {pinned_.logits, wanted, spec_.vocab, spec_.vocab}, sampler));
  *written += wanted;
  return Status();
}

// Rows of the decode class run in steps of at most 32.
Status GpuModel::Forward(moe::NumericClass numeric_class, HostSpan<const StepRow> rows, MatView<float> logits) {
  BELLHOP_TRY(CheckStep(spec_, options_.base, rows));
  int64_t written = 0;
  if (numeric_class == moe::NumericClass::kPrompt && prompt_ != nullptr) {
    counts_stale_ = true;
    return prompt_->Forward(rows, logits, &written);
  }
  for (size_t at = 0; at < rows.size(); at += kMaxDecodeStepRows) {
    const size_t count = std::min<size_t>(kMaxDecodeStepRows, rows.size() - at);
    BELLHOP_TRY(RunStep(rows.subspan(at, count), logits, nullptr, &written));
  }
  return Status();
}

Status GpuModel::ForwardAndSample(HostSpan<const StepRow> rows, MatView<float> logits, StepSampler* sampler) {
  BELLHOP_TRY(CheckStep(spec_, options_.base, rows));
  if (rows.size() > kMaxDecodeStepRows)
    return Internal("{} rows to sample; {} at most", rows.size(), kMaxDecodeStepRows);
  int64_t written = 0;
  return RunStep(rows, logits, sampler, &written);
}

const moe::RouteCounts* GpuModel::counts() {
  if (experts_ == 0) return nullptr;
  // A failure poisons the device, and the next step reports it.
  if (std::exchange(counts_stale_, false)) static_cast<void>(counts_.Fetch(store_, buffers_, *stream_));
  return &counts_.totals();
}

void GpuModel::ResetCounts() {
  if (counts() == nullptr) return;
  counts_.Reset();
  counters_base_ = pinned_.state->counters;
}

StepModelTraffic GpuModel::Traffic() {
  if (experts_ == 0) return {};
  counts();
  uint64_t pcie_bytes = 0;
  for (size_t l = 0; l < counts_.misses().size(); ++l) {
    const GpuCounts::Misses& misses = counts_.misses()[l];
    const double read = static_cast<double>(misses.decode) * pcie_.gpu_share(l) + static_cast<double>(misses.fetched);
    if (read == 0) continue;
    const LayerId layer(static_cast<int32_t>(l));
    pcie_bytes += static_cast<uint64_t>(read * static_cast<double>(store_.LayerBytes(layer)) / store_.experts(layer));
  }
  const cuda::DoorbellCounters& now = pinned_.state->counters;
  return {.rings = now.rings - counters_base_.rings,
          .zero_cold_layers = now.zero_cold - counters_base_.zero_cold,
          .pcie_bytes = pcie_bytes,
          .wait_ns = now.wait_ns - counters_base_.wait_ns};
}

}  // namespace

Result<GpuModelNeeds> PlanGpuModel(const manifest::Manifest& manifest, const ModelSpec& spec,
                                   const store::ExpertStore& store, const GpuModelOptions& options) {
  BELLHOP_TRY(CheckGpuModel(spec, store));
  GpuModelNeeds needs;
  DeviceArena step;
  const StepBuffers buffers = TakeStepBuffers(spec, options, &step);
  const GpuPrompt::Needs prompt = GpuPrompt::PlanFor(spec, store, options);
  needs.workspace_bytes = step.used() + prompt.workspace_bytes + WeightUploader::StagingBytes();
  needs.wave_bytes = prompt.wave_bytes;
  const KvLayout kv = KvLayout::Create(KvShapes(spec), options.base.kv_type);
  needs.staging_bytes = StagingBankBytes(spec, store);
  needs.kv_bytes = kv.BytesFor(KvPageCount(options.base));
  DeviceArena dense;
  DenseWeights weights(manifest, &dense, nullptr);
  const LayerInputs in{.manifest = manifest,
                       .spec = spec,
                       .store = store,
                       .options = options,
                       .kv = kv,
                       .kv_base = nullptr,
                       .banks = {},
                       .channel = {},
                       .buffers = buffers};
  BELLHOP_TRY(BuildGpuLayers(in, &weights).status());
  needs.dense_bytes = dense.used();
  needs.graph_bytes = kGraphBytes;
  needs.host_bytes = Pinned::Bytes(spec, options.base) + prompt.host_bytes;
  return needs;
}

Result<std::unique_ptr<StepModel>> CreateGpuModel(const manifest::Manifest& manifest, ModelSpec spec,
                                                  const store::ExpertStore& store, const plan::GpuPlacement& placement,
                                                  sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                  const GpuModelOptions& options, std::vector<std::string>* notes) {
  auto model = std::make_unique<GpuModel>(manifest, std::move(spec), store, placement, options);
  BELLHOP_TRY(model->Load(pool, caps, notes));
  return std::unique_ptr<StepModel>(std::move(model));
}

}  // namespace bellhop::model
