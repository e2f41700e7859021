#include "model/gpu/prompt_layers.h"

#include <algorithm>

#include "base/units.h"
#include "cuda/cuda_try.h"
#include "model/gpu/prompt_waves.h"

namespace bellhop::model {
namespace {

// What one layer holds for a chunk grows with it, and gains little beyond.
constexpr int32_t kMaxChunkRows = 8192;

kernels::PromptNormArgs NormOf(const kernels::ResidualRows& read, const PromptBuffers& b) {
  return {.values = b.residual,
          .norm = read.norm,
          .epsilon = read.epsilon,
          .rows = 0,
          .hidden = read.hidden,
          .x = b.x,
          .inverse_rms = b.inverse_rms};
}

kernels::PromptGemmArgs GemmOf(const kernels::MatVecArgs& step, int i, const kernels::TermRows& x,
                               const PromptBuffers& b) {
  kernels::PromptGemmArgs args;
  args.device = b.device;
  args.matrix = step.matrices[i];
  args.x = x;
  args.books = step.books;
  return args;
}

kernels::PromptExpertArgs ExpertsOf(const kernels::ExpertArgs& step, const PromptBuffers& b) {
  kernels::PromptExpertArgs args;
  args.device = b.device;
  args.bank = step.bank;
  args.bank.staging = {};
  args.bank.staged_inner = {};
  args.used = step.used;
  args.all_rows = step.all_rows;
  args.books = step.books;
  args.x = b.x;
  args.hidden = step.all_rows ? b.dense : b.inner;
  args.activation = step.activation;
  args.alpha = step.alpha;
  args.beta = step.beta;
  args.limit = step.limit;
  args.partial = b.partial;
  args.residual = b.residual;
  args.port_scale = step.port_scale;
  if (step.use_shared_weights) args.shared_weights = b.routes.shared_weights;
  return args;
}

void AddRouter(const GpuLayer& step, const StepBuffers& step_buffers, const PromptBuffers& b, PromptLayer* layer) {
  kernels::PromptRouterArgs router;
  router.router = *step.router;
  kernels::RouterArgs& args = router.router;
  args.x.values = b.residual;
  args.logits = b.router_logits;
  args.routes = b.routes;
  args.expert_to_slot = b.expert_to_slot;
  router.inverse_rms = b.inverse_rms;
  router.bad_row = b.bad_row;
  layer->router = router;

  kernels::PromptSortArgs& sort = layer->sort;
  sort.routes = {.ids = b.routes.ids,
                 .slots = b.routes.slots,
                 .weights = b.routes.weights,
                 .order = b.routes.order,
                 .tiles = b.tiles,
                 .tile_count = b.tile_count,
                 .tile_rows = kernels::PromptTileRows(b.device.math)};
  sort.used = args.used;
  sort.experts = args.experts;
  sort.offsets = b.route_offsets;
  sort.span_counts = b.span_counts;
  sort.route_counts = args.route_counts;
  sort.distinct = step_buffers.totals + args.layer * kLayerTotals + kPromptDistinct;
  sort.first_staging = kFirstStagingSlot;
  layer->feed_forward.routes = sort.routes;
  layer->feed_forward.experts = args.experts;
}

}  // namespace

int32_t PromptRows(const GpuModelOptions& options) {
  if (options.exact_terms) return 0;
  return std::min({options.base.max_rows, options.base.context_tokens, kMaxChunkRows});
}

PromptBuffers TakePromptBuffers(const ModelSpec& spec, const GpuModelOptions& options, DeviceArena* arena) {
  PromptBuffers b;
  b.rows = PromptRows(options);
  if (b.rows == 0) return b;
  const StepSizes s = MeasureStep(spec, options.base);
  const int64_t rows = b.rows;
  const auto count = [](int64_t n) { return static_cast<uint64_t>(n); };
  b.residual = arena->Take<float>(count(rows * spec.hidden));
  b.x = TakeTerms(arena, rows, spec.hidden, 1);
  b.inverse_rms = arena->Take<float>(count(rows));
  b.qkv_stride = static_cast<int32_t>(RoundUp(count(s.qkv), uint64_t{4}));
  b.qkv = arena->Take<float>(count(rows * b.qkv_stride));
  b.heads = TakeTerms(arena, rows, s.heads, 1);
  if (s.dense > 0) b.dense = TakeTerms(arena, rows, s.dense, 1);
  b.block_table = arena->Take<int32_t>(count(MaxPages(options.base)));
  if (s.experts == 0) return b;
  const int64_t routes = rows * s.used, cells = static_cast<int64_t>(spec.layers.size()) * s.experts;
  b.inner = TakeTerms(arena, routes, s.inner, 1);
  b.partial = arena->Take<float>(count(routes * spec.hidden));
  b.router_logits = arena->Take<float>(count(rows * (s.experts + 1)));
  b.routes.ids = arena->Take<int32_t>(count(routes));
  b.routes.weights = arena->Take<float>(count(routes));
  b.routes.slots = arena->Take<int32_t>(count(routes));
  b.routes.order = arena->Take<int32_t>(count(routes));
  b.routes.shared_weights = arena->Take<float>(count(rows));
  // The layer with the most routes need not be the one with the most experts; PromptTiles grows with both.
  b.tiles = arena->Take<kernels::ExpertGroup>(count(kernels::PromptTiles(routes, s.experts)));
  b.tile_count = arena->Take<int32_t>(1);
  b.route_offsets = arena->Take<int32_t>(count(s.experts + 1));
  b.span_counts = arena->Take<int32_t>(count((kernels::PromptSortSpans(b.rows) + 1) * s.experts));
  b.bad_row = arena->Take<uint32_t>(1);
  b.expert_to_slot = arena->Take<int32_t*>(spec.layers.size());
  b.slot_tables = arena->Take<int32_t>(count(cells));
  b.cold = arena->Take<int32_t>(count(cells));
  b.wave_counts = arena->Take<int32_t>(count(cells));
  b.fetch_sources = arena->Take<kernels::FetchSource>(count(cells));
  return b;
}

PromptLayers BuildPromptLayers(const ModelSpec& spec, const GpuLayers& step, const StepBuffers& step_buffers,
                               const PromptBuffers& b) {
  PromptLayers made;
  kernels::ResidualRows read = step.begin.residual;
  for (const GpuLayer& from : step.layers) {
    PromptLayer layer;
    layer.mixer_norm = NormOf(read, b);
    for (int i = 0; i < kernels::kMaxMatVecs; ++i) {
      layer.qkv[i] = GemmOf(from.qkv, i, b.x, b);
      layer.qkv[i].y = b.qkv + (from.qkv.y[i] - step_buffers.qkv);
      layer.qkv[i].y_stride = b.qkv_stride;
    }
    layer.finish = from.finish;
    layer.finish.step = {.block_tables = b.block_table};
    layer.finish.qkv = b.qkv;
    layer.finish.stride = b.qkv_stride;
    layer.attend.kv = from.attend.kv;
    layer.attend.block_table = b.block_table;
    layer.attend.heads = from.attend.heads;
    layer.attend.q = b.qkv;
    layer.attend.q_stride = b.qkv_stride;
    layer.attend.scale = from.attend.scale;
    layer.attend.sinks = from.attend.sinks;
    layer.attend.window = from.attend.window;
    layer.attend.out = b.heads;
    layer.attend.device = b.device;
    layer.output = GemmOf(from.output, 0, b.heads, b);
    layer.output.y = b.residual;
    layer.output.y_stride = spec.hidden;
    layer.output.adds = true;
    layer.output.port_scale = from.output.port_scale;
    layer.feed_forward_norm = NormOf(from.output.residual, b);
    if (from.shared) layer.shared = ExpertsOf(*from.shared, b);
    layer.feed_forward = ExpertsOf(from.feed_forward, b);
    if (from.router) AddRouter(from, step_buffers, b, &layer);
    read = from.feed_forward.next;
    made.layers.push_back(layer);
  }
  made.output_norm = NormOf(read, b);
  made.head = GemmOf(step.head, 0, b.x, b);
  made.head.matrix.scale /= step.head.divisor;
  made.head.y_stride = spec.vocab;
  return made;
}

namespace {

bool Has(PromptPart only, PromptPart part) { return only == PromptPart::kAll || only == part; }

Status SubmitNorm(kernels::PromptNormArgs args, int32_t rows, cuda::Device* device, const cuda::LaunchQueue& queue) {
  args.rows = rows;
  BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptNorm(args, queue));
  return Status();
}

Status SubmitGemm(kernels::PromptGemmArgs args, int32_t rows, cuda::Device* device, const cuda::LaunchQueue& queue) {
  args.rows = rows;
  BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptGemm(args, queue));
  return Status();
}

cuda::LaunchQueue Overlapping(cuda::LaunchQueue queue) {
  queue.overlap = true;
  return queue;
}

// Without routes, or of the routes that args choose.
Status SubmitFeedForward(const kernels::PromptExpertArgs& args, PromptPart only, cuda::Device* device,
                         const cuda::LaunchQueue& queue) {
  if (Has(only, PromptPart::kFc1)) BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptFc1(args, queue));
  if (Has(only, PromptPart::kFc2)) BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptFc2(args, Overlapping(queue)));
  return Status();
}

}  // namespace

Status SubmitPromptMixer(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                         const cuda::LaunchQueue& first_queue) {
  const cuda::LaunchQueue queue = Overlapping(first_queue);
  if (Has(only, PromptPart::kQkv)) {
    BELLHOP_TRY(SubmitNorm(layer.mixer_norm, chunk.rows, device, first_queue));
    for (const kernels::PromptGemmArgs& gemm : layer.qkv) BELLHOP_TRY(SubmitGemm(gemm, chunk.rows, device, queue));
  }
  if (Has(only, PromptPart::kFinishQkv)) {
    kernels::FinishQkvArgs finish = layer.finish;
    finish.step.rows = chunk.rows;
    finish.step.first_position = chunk.first_position;
    BELLHOP_CUDA_CHECK(device, kernels::LaunchFinishQkv(finish, queue));
  }
  if (Has(only, PromptPart::kAttention)) {
    kernels::PromptAttendArgs attend = layer.attend;
    attend.rows = chunk.rows;
    attend.first_position = chunk.first_position;
    BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptAttention(attend, queue));
  }
  if (Has(only, PromptPart::kOutput)) BELLHOP_TRY(SubmitGemm(layer.output, chunk.rows, device, queue));
  return Status();
}

Status SubmitPromptRoutes(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                          const cuda::LaunchQueue& queue) {
  if (Has(only, PromptPart::kRouter)) {
    BELLHOP_TRY(SubmitNorm(layer.feed_forward_norm, chunk.rows, device, queue));
    if (layer.router) {
      kernels::PromptRouterArgs router = *layer.router;
      router.rows = chunk.rows;
      BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptRouter(router, queue));
    }
  }
  if (layer.router && Has(only, PromptPart::kSort)) {
    kernels::PromptSortArgs sort = layer.sort;
    sort.rows = chunk.rows;
    BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptSort(sort, queue));
  }
  if (layer.router && !layer.shared) return Status();
  kernels::PromptExpertArgs dense = layer.shared ? *layer.shared : layer.feed_forward;
  dense.rows = chunk.rows;
  return SubmitFeedForward(dense, only, device, queue);
}

Status SubmitPromptExperts(const PromptLayer& layer, const PromptChunk& chunk, const PromptSlotRange& slots,
                           PromptPart only, cuda::Device* device, const cuda::LaunchQueue& queue) {
  kernels::PromptExpertArgs experts = layer.feed_forward;
  experts.rows = chunk.rows;
  experts.first_slot = slots.first;
  experts.end_slot = slots.end;
  experts.bank.staging = slots.staging;
  return SubmitFeedForward(experts, only, device, queue);
}

Status SubmitPromptCombine(const PromptLayer& layer, const PromptChunk& chunk, PromptPart only, cuda::Device* device,
                           const cuda::LaunchQueue& queue) {
  if (!Has(only, PromptPart::kCombine)) return Status();
  kernels::PromptExpertArgs experts = layer.feed_forward;
  experts.rows = chunk.rows;
  BELLHOP_CUDA_CHECK(device, kernels::LaunchPromptCombine(experts, queue));
  return Status();
}

Status SubmitPromptHead(const PromptLayers& layers, int32_t first, int32_t rows, float* logits, cuda::Device* device,
                        const cuda::LaunchQueue& queue) {
  kernels::PromptNormArgs norm = layers.output_norm;
  norm.values += int64_t{first} * norm.hidden;
  norm.inverse_rms = nullptr;
  BELLHOP_TRY(SubmitNorm(norm, rows, device, queue));
  kernels::PromptGemmArgs head = layers.head;
  head.y = logits;
  return SubmitGemm(head, rows, device, queue);
}

}  // namespace bellhop::model
