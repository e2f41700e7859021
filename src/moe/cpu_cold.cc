#include "moe/cpu_cold.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/units.h"

namespace bellhop::moe {
namespace {

constexpr int64_t kRowGrain = 16;

}  // namespace

void ApplyActivation(const kernels::VecOps& ops, const ActivationParams& params, float* gate, const float* up,
                     int64_t n) {
  switch (params.kind) {
    case ExpertActivation::kSwiGlu: ops.swiglu(gate, up, n, gate); break;
    case ExpertActivation::kSwiGluOai: ops.swiglu_oai(gate, up, params.alpha, params.limit, n, gate); break;
    case ExpertActivation::kGeGlu: ops.geglu(gate, up, n, gate); break;
  }
}

Result<std::unique_ptr<CpuColdPath>> CpuColdPath::Create(const store::ExpertStore& store, const CpuContext& cpu,
                                                         const Options& options, std::vector<std::string>* notes) {
  // Routes are counted in int32.
  if (int64_t{options.max_rows} * options.max_used > INT32_MAX) {
    return InvalidArgument("{} rows of {} experts each are too many for one step; lower --batch-size", options.max_rows,
                           options.max_used);
  }
  auto path = std::unique_ptr<CpuColdPath>(new CpuColdPath(cpu, options, store.inner()));
  size_t max_experts = 0;
  path->experts_.resize(static_cast<size_t>(store.layers()));
  for (int32_t l = 0; l < store.layers(); ++l) {
    std::vector<Expert>& layer = path->experts_[static_cast<size_t>(l)];
    for (int32_t e = 0; e < store.experts(LayerId(l)); ++e) {
      const store::ExpertView& view = store.Host(LayerId(l), ExpertId(e));
      Expert expert;
      BELLHOP_TRY_ASSIGN(expert.gate, MakeLinear(view.gate, view.gate_bias, view.gate_scale, cpu.caps, notes));
      BELLHOP_TRY_ASSIGN(expert.up, MakeLinear(view.up, view.up_bias, view.up_scale, cpu.caps, notes));
      BELLHOP_TRY_ASSIGN(expert.down, MakeLinear(view.down, view.down_bias, view.down_scale, cpu.caps, notes));
      layer.push_back(expert);
    }
    max_experts = std::max(max_experts, layer.size());
  }

  const auto routes = static_cast<uint64_t>(options.max_rows) * static_cast<uint64_t>(options.max_used);
  const uint64_t hidden = RoundUp(static_cast<uint64_t>(options.hidden), kRowGrain);
  const uint64_t inner = RoundUp(static_cast<uint64_t>(path->inner_), kRowGrain);
  const uint64_t floats = routes * (2 * hidden + 2 * inner);
  BELLHOP_TRY_ASSIGN(path->workspace_, sys::AlignedBuffer::Create(floats * sizeof(float), MemoryTag::kWorkspace));
  path->x_ = path->workspace_.as<float>().data();
  path->gate_ = path->x_ + routes * hidden;
  path->up_ = path->gate_ + routes * inner;
  path->out_ = path->up_ + routes * inner;
  path->counts_.resize(max_experts);
  path->starts_.resize(max_experts);
  path->order_.resize(routes);
  path->position_.resize(routes);
  path->groups_.reserve(max_experts);
  return path;
}

void CpuColdPath::GroupByExpert(LayerId layer, const Routes& routes, MatView<const float> x) {
  const std::vector<Expert>& experts = experts_[layer.index()];
  const int32_t total = routes.rows * routes.used;
  std::fill(counts_.begin(), counts_.end(), 0);
  auto is_miss = [&](int32_t r) { return routes.skip == nullptr || routes.skip[r] == 0; };
  for (int32_t r = 0; r < total; ++r) {
    if (is_miss(r)) ++counts_[static_cast<size_t>(routes.ids[r])];
  }
  groups_.clear();
  int32_t start = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    starts_[e] = start;
    if (counts_[e] > 0) groups_.push_back({&experts[e], start, counts_[e]});
    start += counts_[e];
  }
  for (int32_t r = 0; r < total; ++r) {
    position_[static_cast<size_t>(r)] = -1;
    if (!is_miss(r)) continue;
    const int32_t at = starts_[static_cast<size_t>(routes.ids[r])]++;
    order_[static_cast<size_t>(at)] = r;
    position_[static_cast<size_t>(r)] = at;
    std::memcpy(x_ + at * options_.hidden, x.Row(r / routes.used),
                static_cast<size_t>(options_.hidden) * sizeof(float));
  }
}

void CpuColdPath::Fc1(const Group& group, NumericClass numeric_class, RowRange rows, int worker) {
  const MatView<const float> x{x_ + group.first * options_.hidden, group.count, options_.hidden, options_.hidden};
  const MatView<float> gate{gate_ + group.first * inner_, group.count, inner_, inner_};
  const MatView<float> up{up_ + group.first * inner_, group.count, inner_, inner_};
  if (numeric_class == NumericClass::kDecode) {
    LinearDecode(group.expert->gate, x, gate, rows);
    LinearDecode(group.expert->up, x, up, rows);
  } else {
    LinearPrompt(cpu_, group.expert->gate, x, gate, rows, worker);
    LinearPrompt(cpu_, group.expert->up, x, up, rows, worker);
  }
  for (int64_t m = 0; m < group.count; ++m) {
    float* g = gate.Row(m) + rows.begin;
    ApplyActivation(*cpu_.ops, options_.activation, g, up.Row(m) + rows.begin, rows.size());
    if (numeric_class == NumericClass::kPrompt) cpu_.ops->round_bf16(g, rows.size(), g);
  }
}

void CpuColdPath::Fc2(const Group& group, NumericClass numeric_class, RowRange rows, int worker) {
  const MatView<const float> h{gate_ + group.first * inner_, group.count, inner_, inner_};
  const MatView<float> out{out_ + group.first * options_.hidden, group.count, options_.hidden, options_.hidden};
  if (numeric_class == NumericClass::kDecode) {
    LinearDecode(group.expert->down, h, out, rows);
  } else {
    LinearPrompt(cpu_, group.expert->down, h, out, rows, worker);
  }
}

void CpuColdPath::Combine(const Routes& routes, RowRange columns, MatView<float> y) const {
  for (int32_t m = 0; m < routes.rows; ++m) {
    float* row = y.Row(m) + columns.begin;
    std::fill(row, row + columns.size(), 0.0f);
    for (int32_t k = 0; k < routes.used; ++k) {
      const int32_t at = position_[static_cast<size_t>(m * routes.used + k)];
      if (at < 0) continue;
      cpu_.ops->add_scaled(out_ + at * options_.hidden + columns.begin, routes.weights[m * routes.used + k],
                           columns.size(), row);
    }
  }
}

void CpuColdPath::Run(LayerId layer, NumericClass numeric_class, const Routes& routes, MatView<const float> x,
                      MatView<float> y) {
  if (routes.rows == 0) return;
  GroupByExpert(layer, routes, x);
  const auto groups = static_cast<int64_t>(groups_.size());
  if (numeric_class == NumericClass::kPrompt) {
    // Experts have different numbers of rows, so tiles are taken from a shared counter; the result of a tile does not
    // depend on who computes it.
    auto run_tiles = [&](int64_t width, auto&& fn) {
      const int64_t tiles = CeilDiv(width, CpuContext::kTileRows);
      std::atomic<int64_t> next{0};
      cpu_.pool->Run([&](int worker, int) {
        for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < groups * tiles;) {
          const int64_t begin = t % tiles * CpuContext::kTileRows;
          fn(groups_[static_cast<size_t>(t / tiles)], RowRange{begin, std::min(begin + CpuContext::kTileRows, width)},
             worker);
        }
      });
    };
    run_tiles(inner_, [&](const Group& g, RowRange rows, int worker) { Fc1(g, numeric_class, rows, worker); });
    run_tiles(options_.hidden, [&](const Group& g, RowRange rows, int worker) { Fc2(g, numeric_class, rows, worker); });
    cpu_.pool->ParallelFor(options_.hidden, kRowGrain, [&](RowRange columns) { Combine(routes, columns, y); });
    return;
  }
  // Decode: each worker streams a contiguous share of all misses' rows.
  const int64_t padded = static_cast<int64_t>(RoundUp(static_cast<uint64_t>(inner_), kRowGrain));
  cpu_.pool->ParallelFor(groups * padded, kRowGrain, [&](RowRange range) {
    for (int64_t g = range.begin / padded; g < groups && g * padded < range.end; ++g) {
      const RowRange rows{std::max<int64_t>(range.begin - g * padded, 0), std::min(range.end - g * padded, inner_)};
      if (rows.begin < rows.end) Fc1(groups_[static_cast<size_t>(g)], numeric_class, rows, 0);
    }
  });
  cpu_.pool->ParallelFor(options_.hidden, kRowGrain, [&](RowRange columns) {
    for (const Group& group : groups_) Fc2(group, numeric_class, columns, 0);
    Combine(routes, columns, y);
  });
}

}  // namespace bellhop::moe
