#include "engine/opbench_layer.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/opbench_expert.h"

namespace bellhop::engine {
namespace {

constexpr int32_t kLayerExperts = 128;

}  // namespace

Result<uint64_t> OpbenchLayer::ExpertStride(const Shape& shape) {
  BELLHOP_TRY_ASSIGN(const OpbenchExpert expert, OpbenchExpert::Create(shape.format, shape.hidden, shape.inter));
  return expert.stride;
}

uint64_t OpbenchLayer::WorkspaceBytes(const Shape& shape) {
  const auto rows = static_cast<uint64_t>(shape.max_rows), topk = static_cast<uint64_t>(shape.topk);
  const auto hidden = static_cast<uint64_t>(shape.hidden), inter = static_cast<uint64_t>(shape.inter);
  // The cold path keeps inputs, outputs, both halves of fc1 and activations of every route.
  return rows * (topk * (2 * hidden + 3 * inter) + 3 * hidden) * sizeof(float);
}

Result<std::unique_ptr<OpbenchLayer>> OpbenchLayer::Create(const Shape& shape, HostSpan<std::byte> memory,
                                                           sys::WorkerPool* pool) {
  BELLHOP_TRY_ASSIGN(const OpbenchExpert place, OpbenchExpert::Create(shape.format, shape.hidden, shape.inter));
  if (shape.active < 1 || shape.topk < 1 || shape.topk > shape.active || shape.experts < shape.active ||
      shape.experts % shape.active != 0 || shape.max_rows < 1 ||
      memory.size() / place.stride < static_cast<uint64_t>(shape.experts)) {
    return Internal("a synthetic layer of {} experts, {} of a call and {} of a row in {} bytes", shape.experts,
                    shape.active, shape.topk, memory.size());
  }
  auto layer = std::unique_ptr<OpbenchLayer>(new OpbenchLayer(shape, pool));
  layer->expert_bytes_ = place.bytes();
  const int32_t per_layer = std::max(kLayerExperts / shape.active, 1) * shape.active;
  layer->layer_experts_ = std::min(per_layer, shape.experts);

  // Workers fill the experts in turn. Their pages were touched before, by whoever owns the memory.
  layer->experts_.resize(static_cast<size_t>(shape.experts));
  pool->Run([&](int worker, int workers) {
    for (int32_t e = worker; e < shape.experts; e += workers) {
      std::byte* const at = memory.data() + static_cast<uint64_t>(e) * place.stride;
      layer->experts_[static_cast<size_t>(e)] = place.Fill(at, shape.seed + static_cast<uint64_t>(e) * 3);
    }
  });

  std::mt19937_64 random(shape.seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  layer->x_.resize(static_cast<size_t>(shape.max_rows * shape.hidden));
  for (float& value : layer->x_) value = uniform(random);
  layer->y_.resize(layer->x_.size());
  const auto routes = static_cast<size_t>(shape.max_rows) * static_cast<size_t>(shape.topk);
  layer->weights_.assign(routes, 1.0f / static_cast<float>(shape.topk));
  layer->ids_.resize(routes);
  return layer;
}

Status OpbenchLayer::UseKernels(const sys::CpuCaps& caps) {
  path_.reset();
  BELLHOP_TRY_ASSIGN(cpu_,
                     moe::CpuContext::Create(pool_, caps, std::max(shape_.hidden, shape_.inter), shape_.max_rows));
  x_bf16_.resize(x_.size());
  cpu_->ops->round_bf16(x_.data(), static_cast<int64_t>(x_.size()), x_bf16_.data());
  const moe::CpuColdPath::Options options{
      .hidden = shape_.hidden, .max_rows = shape_.max_rows, .max_used = shape_.topk, .numerics = {}};
  std::vector<std::vector<moe::Expert>> layers;
  for (size_t e = 0; e < experts_.size(); ++e) {
    if (e % static_cast<size_t>(layer_experts_) == 0) layers.emplace_back();
    BELLHOP_TRY_ASSIGN(moe::Expert expert,
                       moe::MakeExpert(experts_[e], options.numerics.activation, cpu_->caps, nullptr));
    layers.back().push_back(expert);
  }
  BELLHOP_TRY_ASSIGN(path_, moe::CpuColdPath::Create(std::move(layers), *cpu_, options));
  return Status();
}

void OpbenchLayer::Prepare(int64_t call, int32_t rows, int32_t active) {
  const auto first = static_cast<int32_t>(call % (shape_.experts / shape_.active)) * shape_.active;
  layer_ = first / layer_experts_;
  first_ = static_cast<size_t>(layer_ * layer_experts_);
  const int32_t first_id = first - layer_ * layer_experts_;
  const int32_t used = std::min(shape_.topk, active);
  for (int32_t route = 0; route < rows * used; ++route) ids_[static_cast<size_t>(route)] = first_id + route % active;
  routes_ = {.rows = rows, .used = used, .ids = ids_.data(), .weights = weights_.data(), .skip = nullptr};
}

void OpbenchLayer::Run(moe::NumericClass numeric_class) {
  const float* x = numeric_class == moe::NumericClass::kPrompt ? x_bf16_.data() : x_.data();
  moe::ColdRequest request;
  request.layer = LayerId(layer_);
  request.numeric_class = numeric_class;
  request.routes = routes_;
  request.x = {x, routes_.rows, shape_.hidden, shape_.hidden};
  request.y = {y_.data(), routes_.rows, shape_.hidden, shape_.hidden};
  path_->Run(request);
}

int32_t OpbenchLayer::DistinctExperts(int32_t rows) const {
  return static_cast<int32_t>(std::min<int64_t>(shape_.active, int64_t{rows} * shape_.topk));
}

}  // namespace bellhop::engine
