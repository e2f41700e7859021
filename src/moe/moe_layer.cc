#include "moe/moe_layer.h"

#include <algorithm>

namespace bellhop::moe {

RouteCounts::RouteCounts(const plan::Placement& placement) : layers_(static_cast<size_t>(placement.layers())) {
  size_t most = 0;
  for (int32_t l = 0; l < placement.layers(); ++l) {
    counts_.emplace_back(static_cast<size_t>(placement.experts(LayerId(l))), 0);
    most = std::max(most, counts_.back().size());
  }
  last_call_.resize(most, 0);
}

void RouteCounts::Add(LayerId layer, const int32_t* ids, int32_t count, const uint8_t* hit) {
  std::vector<uint64_t>& counts = counts_[layer.index()];
  Layer& totals = layers_[layer.index()];
  ++call_;
  uint64_t hits = 0;
  for (int32_t i = 0; i < count; ++i) {
    const auto expert = static_cast<size_t>(ids[i]);
    ++counts[expert];
    hits += hit[i] != 0 ? 1 : 0;
    if (last_call_[expert] == call_) continue;
    last_call_[expert] = call_;
    ++(hit[i] != 0 ? totals.hot_experts : totals.cold_experts);
  }
  const uint64_t misses = static_cast<uint64_t>(count) - hits;
  totals.hits += hits;
  totals.misses += misses;
  hits_ += hits;
  misses_ += misses;
}

void RouteCounts::Accumulate(LayerId layer, HostSpan<const uint32_t> routes, const Layer& totals) {
  std::vector<uint64_t>& counts = counts_[layer.index()];
  for (size_t e = 0; e < counts.size(); ++e) counts[e] += routes[e];
  Layer& sums = layers_[layer.index()];
  sums.hits += totals.hits;
  sums.misses += totals.misses;
  sums.hot_experts += totals.hot_experts;
  sums.cold_experts += totals.cold_experts;
  hits_ += totals.hits;
  misses_ += totals.misses;
}

void RouteCounts::Reset() {
  for (auto& layer : counts_) std::fill(layer.begin(), layer.end(), 0);
  std::fill(layers_.begin(), layers_.end(), Layer());
  hits_ = misses_ = 0;
}

Result<std::unique_ptr<MoeExecutor>> MoeExecutor::Create(const store::ExpertStore& store,
                                                         const plan::Placement& placement, const CpuContext& cpu,
                                                         const Options& options, std::vector<std::string>* notes) {
  if (placement.resident() > 0) {
    return Unsupported("the placement has {} experts in GPU slots, but this build computes on the CPU alone",
                       placement.resident());
  }
  auto executor = std::unique_ptr<MoeExecutor>(new MoeExecutor(placement, cpu, options));
  BELLHOP_TRY_ASSIGN(executor->cold_, CpuColdPath::Create(store, cpu,
                                                          {.hidden = options.hidden,
                                                           .max_rows = options.max_rows,
                                                           .max_used = options.max_used,
                                                           .numerics = {.activation = options.activation}},
                                                          notes));
  const auto rows = static_cast<size_t>(options.max_rows);
  const auto experts = static_cast<size_t>(options.max_experts);
  const auto used = static_cast<size_t>(options.max_used);
  executor->logits_.resize(rows * experts);
  executor->scratch_.resize(rows * 2 * experts);
  executor->weights_.resize(rows * used);
  executor->ids_.resize(rows * used);
  executor->hit_.resize(rows * used);
  return executor;
}

void MoeExecutor::Run(LayerId layer, NumericClass numeric_class, const Linear& router, const RouterParams& params,
                      MatView<const float> x, MatView<float> y, uint8_t* bad_rows) {
  const auto rows = static_cast<int32_t>(x.rows);
  if (rows == 0) return;
  const int32_t experts = params.experts, used = params.used;
  // The router always runs in the decode class: a rounded score can change which experts are chosen.
  const LinearJob job{&router, {logits_.data(), rows, experts, experts}};
  RunLinears(cpu_, NumericClass::kDecode, {&job, 1}, x);
  cpu_.pool->ParallelFor(rows, 8, [&](RowRange range) {
    for (int64_t m = range.begin; m < range.end; ++m) {
      if (!RouteRow(params, *cpu_.ops, logits_.data() + m * experts, scratch_.data() + m * 2 * experts,
                    ids_.data() + m * used, weights_.data() + m * used)) {
        bad_rows[m] = 1;
      }
    }
  });
  for (int32_t r = 0; r < rows * used; ++r)
    hit_[static_cast<size_t>(r)] = placement_.IsHit(layer, ExpertId(ids_[static_cast<size_t>(r)]));
  counts_.Add(layer, ids_.data(), rows * used, hit_.data());
  if (observer_ != nullptr) {
    observer_->OnRoutes(layer, rows, used, ids_.data(), weights_.data(), logits_.data(), experts);
  }
  cold_->Run({.layer = layer,
              .numeric_class = numeric_class,
              .routes = {rows, used, ids_.data(), weights_.data(), hit_.data()},
              .x = x,
              .y = y});
}

}  // namespace bellhop::moe
