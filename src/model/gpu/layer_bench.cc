// Steps are captured as graphs and replayed one behind the other without the host's doing, so that its launches do not
// show; prompts are launches, as in a model, and long enough.
#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cuda/cuda_try.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "model/gpu/doorbell_host.h"
#include "model/gpu/expert_banks.h"
#include "model/gpu/gpu_counts.h"
#include "model/gpu/gpu_layers.h"
#include "model/gpu/pcie_lane.h"
#include "model/gpu/prompt_fetch.h"
#include "model/gpu/prompt_layers.h"
#include "model/gpu_layer_bench.h"

namespace bellhop::model {
namespace {

constexpr int32_t kWarmUps = 3;
// Random rows on the device: steps take the next ones, prompts windows of them.
constexpr int32_t kMostRowSets = 64;     // of steps; weights have left all caches before they are used again
constexpr int32_t kPromptWindow = 1021;  // rows from one prompt's first to the next one's
constexpr uint64_t kDeadlineNs = 10'000'000'000;

Status CopyOut(const void* from, void* pinned, uint64_t bytes, const cuda::Stream& stream) {
  return cuda::CopyToHost({static_cast<std::byte*>(pinned), bytes}, {static_cast<const std::byte*>(from), bytes},
                          stream);
}

class LayerBench final : public GpuLayerBench {
 public:
  LayerBench(const store::ExpertStore& store, const plan::GpuPlacement& placement, cuda::Device* device,
             const GpuLayerBenchOptions& options)
      : store_(store),
        placement_(placement),
        device_(device),
        options_(options),
        synthetic_(options.shape),
        spec_(synthetic_.spec()),
        layer_count_(options.shape.layers),
        counts_(placement.placement) {
    const int32_t prompt_rows = options.max_rows > kMaxDecodeStepRows ? options.max_rows : 0;
    model_options_.base.max_rows = prompt_rows;
    model_options_.base.context_tokens = std::max(options.max_rows, kMaxDecodeStepRows);
    model_options_.lane = options.lane;
    model_options_.reads_experts = options.reads_experts;
  }
  ~LayerBench() override {
    doorbell_.Stop();
    if (stream_) static_cast<void>(stream_->Synchronize());
    fetch_.Drain();
  }

  Status Load(sys::WorkerPool* pool, const sys::CpuCaps& caps, std::vector<std::string>* notes) {
    BELLHOP_TRY(CheckGpuModel(spec_, store_));
    BELLHOP_TRY_ASSIGN(cuda::Stream stream, cuda::Stream::Create(device_));
    stream_.emplace(std::move(stream));
    BELLHOP_TRY(AllocateStep());
    BELLHOP_TRY_ASSIGN(pcie_,
                       PcieLanes::Create(spec_, store_, placement_.placement, options_.lane, caps, buffers_, *stream_));
    BELLHOP_TRY(LoadLayers(notes));
    BELLHOP_TRY(LoadPrompt(pool, notes));
    if (pcie_.rings()) {
      BELLHOP_TRY(doorbell_.Start(store_, pool, caps,
                                  {.cold = {.hidden = spec_.hidden,
                                            .max_rows = kMaxDecodeStepRows,
                                            .max_used = options_.shape.used,
                                            .numerics = {.activation = spec_.activation}},
                                   .cpu_inner = pcie_.cpu_inner(),
                                   .service_cpu = options_.service_cpu,
                                   .wrap_runner = InsteadOfMisses()},
                                  notes));
    }
    counts_.Begin(static_cast<size_t>(layer_count_), options_.shape.experts);
    return stream_->Synchronize();
  }

  Result<GpuLayerTimes> Time(int32_t rows, int32_t replays) override {
    if (rows < 1 || rows > options_.max_rows || replays < 1 || replays > options_.max_replays) {
      return Internal("{} rows and {} replays; the bench has memory for {} and {}", rows, replays, options_.max_rows,
                      options_.max_replays);
    }
    BELLHOP_TRY(device_->poison().status());
    GpuLayerTimes times;
    BELLHOP_TRY(rows <= kMaxDecodeStepRows ? TimeSteps(rows, replays, &times) : TimePrompts(rows, replays, &times));
    return times;
  }

 private:
  std::function<std::unique_ptr<moe::MissRunner>(moe::MissRunner*)> InsteadOfMisses() const {
    if (!options_.answers_at_once) return {};
    return [hidden = spec_.hidden](moe::MissRunner*) { return std::make_unique<moe::InstantRunner>(hidden); };
  }
  Status AllocateStep();
  Status LoadLayers(std::vector<std::string>* notes);
  Status LoadPrompt(sys::WorkerPool* pool, std::vector<std::string>* notes);
  Status FillRows(WeightUploader* uploader);
  void SeparateRoutes(DeviceArena* arena);

  int32_t RowSets() const { return std::min(kWarmUps + options_.max_replays, kMostRowSets); }
  int32_t PoolRows() const {
    const int32_t prompts = options_.max_rows > kMaxDecodeStepRows ? 2 * options_.max_rows : 0;
    return std::max(RowSets() * kMaxDecodeStepRows, prompts);
  }

  Result<cuda::GraphExec> Capture(const std::vector<GpuLayer>& layers, int32_t bucket,
                                  const std::vector<StepPart>& parts);
  Status TimeSteps(int32_t rows, int32_t replays, GpuLayerTimes* times);
  template <typename Submit>
  Status RunReplays(int32_t replays, const Submit& submit);
  Status TimeQuiet(int32_t rows, int32_t replays, GpuLayerTimes* times);
  Status Begin(int32_t replay, int32_t rows, int32_t bucket);
  Status SubmitChunk(int32_t rows, int32_t replay, bool marks);
  Status TimePrompts(int32_t rows, int32_t replays, GpuLayerTimes* times);

  Status Mark();
  // From mark `first` to the one behind it, for a layer.
  Result<double> LayerUs(size_t first) const;
  Status CheckFaults(int32_t rows, bool prompt);
  Status TakeCounts(int32_t rows, int32_t replays, GpuLayerTimes* times);

  const store::ExpertStore& store_;
  const plan::GpuPlacement& placement_;
  cuda::Device* const device_;
  const GpuLayerBenchOptions options_;
  GpuModelOptions model_options_;
  SyntheticModel synthetic_;
  const ModelSpec& spec_;
  const int32_t layer_count_;

  std::optional<cuda::Stream> stream_;
  cuda::DeviceBuffer step_memory_, dense_memory_, prompt_memory_, pool_memory_, routes_memory_;
  cuda::PinnedBuffer pinned_memory_;
  kernels::StepInput* inputs_ = nullptr;  // pinned, [RowSets()]
  cuda::DoorbellState* pinned_state_ = nullptr;
  uint32_t* pinned_bad_row_ = nullptr;
  float* pool_ = nullptr;  // [PoolRows()][hidden]
  StepBuffers buffers_;
  PcieLanes pcie_;
  ExpertBanks banks_;
  GpuLayers layers_;
  std::vector<GpuLayer> apart_;  // the same layers with routes of their own, which ring nobody
  PromptBuffers prompt_buffers_;
  std::vector<PromptLayer> prompt_layers_;
  PromptFetch fetch_;
  DoorbellHost doorbell_;
  GpuCounts counts_;
  std::vector<cuda::Event> marks_;
  size_t next_mark_ = 0;
};

Status LayerBench::AllocateStep() {
  DeviceArena count;
  TakeStepBuffers(spec_, model_options_, &count);
  BELLHOP_TRY_ASSIGN(step_memory_, cuda::DeviceBuffer::Create(device_, count.used(), MemoryTag::kWorkspace));
  BELLHOP_TRY(cuda::FillZero(step_memory_.bytes(), *stream_));
  DeviceArena arena(step_memory_.bytes().data());
  buffers_ = TakeStepBuffers(spec_, model_options_, &arena);

  const auto place = [&](std::byte* base) {
    DeviceArena pinned(base);
    inputs_ = pinned.Take<kernels::StepInput>(static_cast<uint64_t>(RowSets()));
    auto* const pages = pinned.Take<int32_t>(static_cast<uint64_t>(kMaxDecodeStepRows * MaxPages(model_options_.base)));
    pinned_state_ = pinned.Take<cuda::DoorbellState>(1);
    pinned_bad_row_ = pinned.Take<uint32_t>(1);
    if (base == nullptr) return pinned.used();
    for (int32_t i = 0; i < RowSets(); ++i) {
      auto* const input = new (inputs_ + i) kernels::StepInput;
      input->pages = pages;  // zeroed, as are positions
      input->max_pages = MaxPages(model_options_.base);
    }
    return pinned.used();
  };
  BELLHOP_TRY_ASSIGN(pinned_memory_, cuda::PinnedBuffer::Create(device_, place(nullptr), MemoryTag::kStaging));
  place(pinned_memory_.bytes().data());
  DoorbellHost::State state{.first = {}, .pinned = pinned_state_, .device = buffers_.doorbell};
  state.first.deadline_ns = kDeadlineNs;
  return doorbell_.Open({.rows = kMaxDecodeStepRows, .used = options_.shape.used, .hidden = spec_.hidden}, state,
                        *stream_);
}

Status LayerBench::FillRows(WeightUploader* uploader) {
  const int64_t rows = PoolRows(), hidden = spec_.hidden;
  BELLHOP_TRY_ASSIGN(
      pool_memory_,
      cuda::DeviceBuffer::Create(device_, static_cast<uint64_t>(rows * hidden) * sizeof(float), MemoryTag::kOther));
  pool_ = pool_memory_.as<float>().data();
  constexpr int64_t kRowsAtOnce = 512;
  std::vector<float> values(static_cast<size_t>(kRowsAtOnce * hidden));
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - row) * hidden;
    FillUniform(options_.shape.seed + 1, row * hidden, count, values.data());
    BELLHOP_TRY(uploader->Bytes(values.data(), static_cast<uint64_t>(count) * sizeof(float), pool_ + row * hidden));
  }
  return Status();
}

// Routers that run before all experts leave each layer's routes, and the misses to be fetched, to that layer.
void LayerBench::SeparateRoutes(DeviceArena* arena) {
  const auto routes = static_cast<uint64_t>(kMaxDecodeStepRows * options_.shape.used);
  const auto misses = std::min(routes, static_cast<uint64_t>(options_.shape.experts));
  for (const GpuLayer& layer : layers_.layers) {
    kernels::RouteTable table = layer.router->routes;
    table.ids = arena->Take<int32_t>(routes);
    table.weights = arena->Take<float>(routes);
    table.slots = arena->Take<int32_t>(routes);
    table.order = arena->Take<int32_t>(routes);
    table.groups = arena->Take<kernels::ExpertGroup>(routes);
    table.group_count = arena->Take<int32_t>(1);
    const kernels::StagedMisses staged{.experts = arena->Take<int32_t>(misses), .count = arena->Take<int32_t>(1)};
    if (arena->counting()) continue;
    GpuLayer apart = layer;
    apart.router->routes = apart.feed_forward.routes = table;
    apart.router->ring_misses = apart.feed_forward.waits = false;
    if (apart.fetch) apart.router->staged = apart.fetch->misses = staged;
    apart_.push_back(std::move(apart));
  }
}

Status LayerBench::LoadLayers(std::vector<std::string>* notes) {
  BELLHOP_TRY_ASSIGN(WeightUploader uploader, WeightUploader::Create(device_, &*stream_));
  const KvLayout kv = KvLayout::Create(KvShapes(spec_), model_options_.base.kv_type);
  LayerInputs in{.manifest = synthetic_.manifest(),
                 .spec = spec_,
                 .store = store_,
                 .options = model_options_,
                 .kv = kv,
                 .kv_base = nullptr,
                 .banks = {},
                 .channel = doorbell_.channel(),
                 .buffers = buffers_,
                 .pcie = &pcie_};
  DeviceArena count;
  DenseWeights counted(synthetic_.manifest(), &count, nullptr);
  BELLHOP_TRY(BuildGpuLayers(in, &counted).status());
  BELLHOP_TRY_ASSIGN(dense_memory_, cuda::DeviceBuffer::Create(device_, count.used(), MemoryTag::kDenseWeights));
  BELLHOP_TRY_ASSIGN(banks_, ExpertBanks::Create(store_, placement_, buffers_, &uploader, *stream_));
  in.banks = banks_.bases();
  DeviceArena arena(dense_memory_.bytes().data());
  DenseWeights weights(synthetic_.manifest(), &arena, &uploader);
  BELLHOP_TRY_ASSIGN(layers_, BuildGpuLayers(in, &weights));
  for (GpuLayer& layer : layers_.layers) layer.feed_forward.waits = layer.feed_forward.waits && options_.offloads;

  DeviceArena route_count;
  SeparateRoutes(&route_count);
  BELLHOP_TRY_ASSIGN(routes_memory_, cuda::DeviceBuffer::Create(device_, route_count.used(), MemoryTag::kWorkspace));
  BELLHOP_TRY(cuda::FillZero(routes_memory_.bytes(), *stream_));
  DeviceArena route_arena(routes_memory_.bytes().data());
  SeparateRoutes(&route_arena);

  BELLHOP_TRY(FillRows(&uploader));
  BELLHOP_TRY(stream_->Synchronize());  // the uploader's memory goes
  const store::ExpertView& expert = store_.Host(LayerId(0), ExpertId(0));
  if (DescribeMatrix(expert.gate).layout == kernels::MatrixLayout::kFile) {
    notes->push_back(fmt::format("{} has no GPU kernels of its own and is decoded on the way",
                                 quant::Traits(expert.gate.format).name));
  }
  return Status();
}

Status LayerBench::LoadPrompt(sys::WorkerPool* pool, std::vector<std::string>* notes) {
  if (PromptRows(model_options_) == 0) return Status();
  DeviceArena count;
  TakePromptBuffers(spec_, model_options_, &count);
  BELLHOP_TRY_ASSIGN(prompt_memory_, cuda::DeviceBuffer::Create(device_, count.used(), MemoryTag::kWorkspace));
  BELLHOP_TRY(cuda::FillZero(prompt_memory_.bytes(), *stream_));
  DeviceArena arena(prompt_memory_.bytes().data());
  prompt_buffers_ = TakePromptBuffers(spec_, model_options_, &arena);
  BELLHOP_CUDA_CHECK(device_, kernels::ChoosePromptMath(&prompt_buffers_.device));
  BELLHOP_TRY_ASSIGN(fetch_, PromptFetch::Create({.spec = spec_,
                                                  .store = store_,
                                                  .placement = placement_.placement,
                                                  .options = model_options_,
                                                  .buffers = prompt_buffers_,
                                                  .step = buffers_,
                                                  .stream = *stream_,
                                                  .pool = pool,
                                                  .registered = pcie_.registered()},
                                                 notes));
  prompt_layers_ = BuildPromptLayers(spec_, layers_, buffers_, prompt_buffers_).layers;
  return Status();
}

Status LayerBench::Mark() {
  if (next_mark_ == marks_.size()) return Internal("a mark too many");
  return marks_[next_mark_++].Record(*stream_);
}

Result<double> LayerBench::LayerUs(size_t first) const {
  BELLHOP_TRY_ASSIGN(const double ms, marks_[first + 1].MillisecondsSince(marks_[first]));
  return ms * 1e3 / layer_count_;
}

// Nothing was dropped, nobody gave up waiting.
Status LayerBench::CheckFaults(int32_t rows, bool prompt) {
  BELLHOP_TRY(CopyOut(buffers_.doorbell, pinned_state_, sizeof *pinned_state_, *stream_));
  if (prompt) BELLHOP_TRY(CopyOut(prompt_buffers_.bad_row, pinned_bad_row_, sizeof *pinned_bad_row_, *stream_));
  BELLHOP_TRY(stream_->Synchronize());
  BELLHOP_TRY(cuda::DoorbellDeviceStatus(doorbell_.channel()));
  for (int32_t m = 0; !prompt && m < rows; ++m) BELLHOP_TRY(cuda::DoorbellRowStatus(pinned_state_->rows[m]));
  if (prompt && *pinned_bad_row_ != 0) return Internal("row {} has scores that are no numbers", ~*pinned_bad_row_);
  return Status();
}

// replays: with those that warm up.
Status LayerBench::TakeCounts(int32_t rows, int32_t replays, GpuLayerTimes* times) {
  BELLHOP_TRY(counts_.Fetch(store_, buffers_, *stream_));
  const double runs = static_cast<double>(layer_count_) * replays;
  const moe::RouteCounts& totals = counts_.totals();
  const uint64_t routes = totals.hits() + totals.misses();
  const auto expected = static_cast<uint64_t>(layer_count_) * static_cast<uint64_t>(replays) *
                        static_cast<uint64_t>(rows) * static_cast<uint64_t>(options_.shape.used);
  if (routes != expected) return Internal("{} routes were counted of {}", routes, expected);
  for (const moe::RouteCounts::Layer& layer : totals.per_layer()) {
    times->hot_experts += static_cast<double>(layer.hot_experts) / runs;
    times->cold_experts += static_cast<double>(layer.cold_experts) / runs;
  }
  times->hits = static_cast<double>(totals.hits()) / runs;
  times->misses = static_cast<double>(totals.misses()) / runs;
  return Status();
}

// Layer by layer, of each the parts.
Result<cuda::GraphExec> LayerBench::Capture(const std::vector<GpuLayer>& layers, int32_t bucket,
                                            const std::vector<StepPart>& parts) {
  BELLHOP_TRY_ASSIGN(const cuda::Graph graph, cuda::Graph::Capture(*stream_, [&]() -> Status {
                       for (const GpuLayer& layer : layers) {
                         for (const StepPart part : parts) {
                           BELLHOP_TRY(SubmitFeedForward(layer, bucket, part, device_, stream_->queue()));
                         }
                       }
                       return Status();
                     }));
  return cuda::GraphExec::Create(graph, *stream_);
}

// The replay's rows, as they reach a layer.
Status LayerBench::Begin(int32_t replay, int32_t rows, int32_t bucket) {
  const int32_t set = replay % RowSets();
  kernels::StepInput& input = inputs_[set];
  input.rows = rows;
  input.embeddings = pool_ + int64_t{set} * kMaxDecodeStepRows * spec_.hidden;
  kernels::BeginArgs begin = layers_.begin;
  begin.input = &input;
  cuda::LaunchQueue queue = stream_->queue();
  queue.overlap = false;
  BELLHOP_CUDA_CHECK(device_, kernels::LaunchBeginDecode(begin, bucket, queue));
  return Status();
}

// Runs `submit` for all replays, and waits; the service answers in between.
template <typename Submit>
Status LayerBench::RunReplays(int32_t replays, const Submit& submit) {
  next_mark_ = 0;
  BELLHOP_TRY(doorbell_.BeginStep());
  Status status;
  for (int32_t i = 0; i < replays && status.ok(); ++i) status = submit(i);
  const Status done = stream_->Synchronize();
  BELLHOP_TRY(doorbell_.EndStep());
  BELLHOP_TRY(status);
  return done;
}

// The same rows and the same hits.
Status LayerBench::TimeQuiet(int32_t rows, int32_t replays, GpuLayerTimes* times) {
  const auto bucket = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(rows)));
  std::vector<GpuLayer> quiet = layers_.layers;
  for (GpuLayer& layer : quiet) layer.router->ring_misses = layer.feed_forward.waits = false;
  BELLHOP_TRY_ASSIGN(const cuda::GraphExec graph, Capture(quiet, bucket, {StepPart::kAll}));
  const auto whole_layers = [&](int32_t i) -> Status {
    BELLHOP_TRY(Begin(i, rows, bucket));
    BELLHOP_TRY(Mark());
    BELLHOP_TRY(graph.Launch(*stream_));
    return Mark();
  };
  BELLHOP_TRY(RunReplays(kWarmUps + replays, whole_layers));
  for (int32_t i = kWarmUps; i < kWarmUps + replays; ++i) {
    BELLHOP_TRY_ASSIGN(const double us, LayerUs(2 * static_cast<size_t>(i)));
    times->quiet_us.push_back(us);
  }
  return Status();
}

Status LayerBench::TimeSteps(int32_t rows, int32_t replays, GpuLayerTimes* times) {
  const auto bucket = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(rows)));
  const int32_t all = kWarmUps + replays;
  BELLHOP_TRY_ASSIGN(const cuda::GraphExec whole, Capture(layers_.layers, bucket, {StepPart::kAll}));
  BELLHOP_TRY_ASSIGN(const cuda::GraphExec routers, Capture(apart_, bucket, {StepPart::kRouter}));
  BELLHOP_TRY_ASSIGN(const cuda::GraphExec experts,
                     Capture(apart_, bucket, {StepPart::kFetch, StepPart::kFc1, StepPart::kFc2}));
  while (marks_.size() < 3 * static_cast<size_t>(all)) {
    BELLHOP_TRY_ASSIGN(cuda::Event event, cuda::Event::Create(device_, cuda::Event::Kind::kTiming));
    marks_.push_back(std::move(event));
  }
  BELLHOP_TRY(counts_.Fetch(store_, buffers_, *stream_));
  counts_.Reset();

  const auto whole_layers = [&](int32_t i) -> Status {
    BELLHOP_TRY(Begin(i, rows, bucket));
    BELLHOP_TRY(Mark());
    BELLHOP_TRY(whole.Launch(*stream_));
    return Mark();
  };
  BELLHOP_TRY(RunReplays(all, whole_layers));
  for (int32_t i = kWarmUps; i < all; ++i) {
    BELLHOP_TRY_ASSIGN(const double us, LayerUs(2 * static_cast<size_t>(i)));
    times->layer_us.push_back(us);
  }
  BELLHOP_TRY(CheckFaults(rows, false));
  BELLHOP_TRY(TakeCounts(rows, all, times));
  if (options_.answers_at_once) BELLHOP_TRY(TimeQuiet(rows, replays, times));

  const auto parts = [&](int32_t i) -> Status {
    BELLHOP_TRY(Begin(i + kWarmUps, rows, bucket));  // other rows than the replays before have had
    BELLHOP_TRY(Mark());
    BELLHOP_TRY(routers.Launch(*stream_));
    BELLHOP_TRY(Mark());
    BELLHOP_TRY(experts.Launch(*stream_));
    return Mark();
  };
  BELLHOP_TRY(RunReplays(all, parts));
  for (int32_t i = kWarmUps; i < all; ++i) {
    BELLHOP_TRY_ASSIGN(const double router_us, LayerUs(3 * static_cast<size_t>(i)));
    BELLHOP_TRY_ASSIGN(const double experts_us, LayerUs(3 * static_cast<size_t>(i) + 1));
    times->router_us.push_back(router_us);
    times->experts_us.push_back(experts_us);
  }
  return CheckFaults(rows, false);
}

// marks: before, and behind each layer's router and each layer.
Status LayerBench::SubmitChunk(int32_t rows, int32_t replay, bool marks) {
  const int64_t windows = PoolRows() - rows + 1;
  float* const residual = pool_ + int64_t{replay} * kPromptWindow % windows * spec_.hidden;
  const PromptChunk chunk{rows, 0};
  for (size_t l = 0; l < prompt_layers_.size(); ++l) {
    PromptLayer layer = prompt_layers_[l];
    layer.feed_forward_norm.values = layer.router->router.x.values = layer.feed_forward.residual = residual;
    cuda::LaunchQueue queue = stream_->queue();
    queue.overlap = !marks && l > 0;
    if (marks && l == 0) BELLHOP_TRY(Mark());
    BELLHOP_TRY(SubmitPromptRoutes(layer, chunk, PromptPart::kRouter, device_, queue));
    if (marks) BELLHOP_TRY(Mark());
    queue.overlap = true;
    BELLHOP_TRY(SubmitPromptRoutes(layer, chunk, PromptPart::kSort, device_, queue));
    BELLHOP_TRY(fetch_.SubmitExperts(l, layer, chunk, PromptPart::kAll, *stream_));
    BELLHOP_TRY(SubmitPromptCombine(layer, chunk, PromptPart::kAll, device_, queue));
    if (marks) BELLHOP_TRY(Mark());
  }
  return Status();
}

Status LayerBench::TimePrompts(int32_t rows, int32_t replays, GpuLayerTimes* times) {
  const int32_t all = kWarmUps + replays;
  const auto layers = static_cast<size_t>(layer_count_), of_replay = 2 * layers + 1;
  while (marks_.size() < of_replay * static_cast<size_t>(all)) {
    BELLHOP_TRY_ASSIGN(cuda::Event event, cuda::Event::Create(device_, cuda::Event::Kind::kTiming));
    marks_.push_back(std::move(event));
  }
  BELLHOP_TRY(counts_.Fetch(store_, buffers_, *stream_));
  counts_.Reset();
  const auto run = [&](auto&& submit) -> Status {
    next_mark_ = 0;
    Status status;
    for (int32_t i = 0; i < all && status.ok(); ++i) status = submit(i);
    const Status done = stream_->Synchronize();
    if (!status.ok() || !done.ok()) fetch_.Drain();
    BELLHOP_TRY(status);
    return done;
  };
  const auto whole_layers = [&](int32_t i) -> Status {
    BELLHOP_TRY(Mark());
    BELLHOP_TRY(SubmitChunk(rows, i, false));
    return Mark();
  };
  BELLHOP_TRY(run(whole_layers));
  for (int32_t i = kWarmUps; i < all; ++i) {
    BELLHOP_TRY_ASSIGN(const double us, LayerUs(2 * static_cast<size_t>(i)));
    times->layer_us.push_back(us);
  }
  BELLHOP_TRY(CheckFaults(rows, true));
  BELLHOP_TRY(TakeCounts(rows, all, times));

  BELLHOP_TRY(run([&](int32_t i) { return SubmitChunk(rows, i, true); }));
  for (int32_t i = kWarmUps; i < all; ++i) {
    double router_us = 0, experts_us = 0;
    for (size_t l = 0; l < layers; ++l) {
      const size_t first = of_replay * static_cast<size_t>(i) + 2 * l;
      BELLHOP_TRY_ASSIGN(const double routes, LayerUs(first));
      BELLHOP_TRY_ASSIGN(const double experts, LayerUs(first + 1));
      router_us += routes;
      experts_us += experts;
    }
    times->router_us.push_back(router_us);
    times->experts_us.push_back(experts_us);
  }
  return CheckFaults(rows, true);
}

}  // namespace

Result<std::unique_ptr<GpuLayerBench>> CreateGpuLayerBench(const store::ExpertStore& store,
                                                           const plan::GpuPlacement& placement, cuda::Device* device,
                                                           sys::WorkerPool* pool, const sys::CpuCaps& caps,
                                                           const GpuLayerBenchOptions& options,
                                                           std::vector<std::string>* notes) {
  auto bench = std::make_unique<LayerBench>(store, placement, device, options);
  BELLHOP_TRY(bench->Load(pool, caps, notes));
  return std::unique_ptr<GpuLayerBench>(std::move(bench));
}

}  // namespace bellhop::model
