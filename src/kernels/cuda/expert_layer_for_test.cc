#include "kernels/cuda/expert_layer_for_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "cuda/doorbell_channel.h"

namespace bellhop::kernels {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }

std::vector<double> Times(const HostMatrix& w, const double* x) {
  std::vector<double> y(Size(w.rows));
  for (int32_t r = 0; r < w.rows; ++r) {
    for (int32_t c = 0; c < w.cols; ++c) y[Size(r)] += double{w.weights[Size(int64_t{r} * w.cols + c)]} * x[c];
  }
  return y;
}

// scale * y + bias of the expert.
void Finish(const std::vector<float>& scale, const std::vector<float>& bias, int32_t expert, std::vector<double>* y) {
  for (size_t r = 0; r < y->size(); ++r) {
    if (!scale.empty()) (*y)[r] *= scale[Size(expert)];
    if (!bias.empty()) (*y)[r] += bias[Size(expert) * y->size() + r];
  }
}

double Activate(const LayerShape& s, double gate, double up) {
  if (s.activation == DeviceActivation::kGeGlu) {
    return 0.5 * gate * (1 + std::tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
  }
  if (s.limit > 0) {
    gate = std::min(gate, double{s.limit});
    up = std::clamp(up, -double{s.limit}, double{s.limit});
  }
  return gate / (1 + std::exp(-s.alpha * gate)) * (up + s.beta);
}

std::vector<float> Factors(int32_t count, uint64_t seed) {
  auto factors = Normal(Size(count), 0.25f, seed);
  for (float& f : factors) f += 1;
  return factors;
}

}  // namespace

HostExperts RandomExperts(const LayerShape& shape, uint64_t seed) {
  HostExperts experts;
  experts.shape = shape;
  for (int32_t e = 0; e < shape.experts; ++e) {
    const uint64_t own = seed * 1000 + static_cast<uint64_t>(e) * 3;
    experts.gate.push_back(RandomHostMatrix(shape.gate, shape.inner, shape.hidden, own));
    experts.up.push_back(RandomHostMatrix(shape.up, shape.inner, shape.hidden, own + 1));
    experts.down.push_back(RandomHostMatrix(shape.down, shape.hidden, shape.inner, own + 2));
  }
  if (shape.biases) {
    experts.gate_bias = Normal(Size(shape.experts * shape.inner), 1, seed + 1);
    experts.up_bias = Normal(Size(shape.experts * shape.inner), 1, seed + 2);
    experts.down_bias = Normal(Size(shape.experts * shape.hidden), 1, seed + 3);
  }
  if (shape.factors) {
    experts.gate_scale = Factors(shape.experts, seed + 4);
    experts.up_scale = Factors(shape.experts, seed + 5);
    experts.down_scale = Factors(shape.experts, seed + 6);
  }
  return experts;
}

SlotOffsets OffsetsOf(const HostExperts& experts) {
  auto bytes = [](const HostMatrix& m) {
    return static_cast<int64_t>(RoundUp(BytesOf(Describe(m, UsualLayout(m.format))), uint64_t{256}));
  };
  SlotOffsets at;
  at.up = bytes(experts.gate[0]);
  at.down = at.up + bytes(experts.up[0]);
  at.bytes = at.down + bytes(experts.down[0]);
  return at;
}

ExpertBank MakeBank(GpuRig& rig, const HostExperts& experts, const std::vector<int32_t>& slot_of, int32_t slots) {
  const SlotOffsets at = OffsetsOf(experts);
  uint8_t* const base = rig.PoisonedBytes(static_cast<uint64_t>(slots * at.bytes));
  for (size_t e = 0; e < slot_of.size(); ++e) {
    if (slot_of[e] < 0) continue;
    uint8_t* const slot = base + slot_of[e] * at.bytes;
    Place(rig, experts.gate[e], UsualLayout(experts.gate[e].format), slot + at.gate);
    Place(rig, experts.up[e], UsualLayout(experts.up[e].format), slot + at.up);
    Place(rig, experts.down[e], UsualLayout(experts.down[e].format), slot + at.down);
  }
  ExpertBank bank;
  bank.slot_bytes = at.bytes;
  bank.gate = Describe(experts.gate[0], UsualLayout(experts.gate[0].format));
  bank.up = Describe(experts.up[0], UsualLayout(experts.up[0].format));
  bank.down = Describe(experts.down[0], UsualLayout(experts.down[0].format));
  bank.gate.data = base + at.gate;
  bank.up.data = base + at.up;
  bank.down.data = base + at.down;
  auto bring = [&](const std::vector<float>& v) { return v.empty() ? nullptr : rig.Upload(v); };
  bank.gate_bias = bring(experts.gate_bias);
  bank.up_bias = bring(experts.up_bias);
  bank.down_bias = bring(experts.down_bias);
  bank.gate_scale = bring(experts.gate_scale);
  bank.up_scale = bring(experts.up_scale);
  bank.down_scale = bring(experts.down_scale);
  return bank;
}

ExpertArgs LayerArgs(GpuRig& rig, const HostExperts& experts, const ExpertBank& bank, int32_t rows, int32_t terms) {
  const LayerShape& s = experts.shape;
  ExpertArgs args;
  args.bank = bank;
  args.used = s.used;
  args.rows = rig.Upload(std::vector<int32_t>{rows});
  args.max_groups = std::min(rows * s.used, s.experts);
  args.books = rig.books();
  args.hidden = PoisonedTerms(rig, rows * s.used, s.inner, terms);
  args.activation = s.activation;
  args.alpha = s.alpha;
  args.beta = s.beta;
  args.limit = s.limit;
  args.partial = rig.Poisoned<float>(Size(int64_t{rows} * s.used * s.hidden));
  args.tile_arrivals = rig.Zeroed<uint32_t>(Size(CeilDiv(s.hidden, kTileRows)));
  args.port_scale = s.port_scale;
  return args;
}

HostRoutes RandomRoutes(int32_t rows, const LayerShape& shape, const std::vector<int32_t>& slot_of, uint64_t seed) {
  HostRoutes routes{.rows = rows, .used = shape.used, .ids = {}, .slots = {}, .weights = {}};
  std::mt19937_64 random(seed);
  std::vector<int32_t> all(Size(shape.experts));
  std::iota(all.begin(), all.end(), 0);
  for (int32_t m = 0; m < rows; ++m) {
    std::shuffle(all.begin(), all.end(), random);
    for (int32_t u = 0; u < shape.used; ++u) {
      routes.ids.push_back(all[Size(u)]);
      routes.slots.push_back(slot_of[Size(all[Size(u)])]);
      routes.weights.push_back(static_cast<float>(1 + random() % 64) / 64);
    }
  }
  return routes;
}

HostRoutes RowOf(const HostRoutes& routes, int32_t row) {
  HostRoutes one{.rows = 1, .used = routes.used, .ids = {}, .slots = {}, .weights = {}};
  for (int32_t u = 0; u < routes.used; ++u) {
    const size_t r = Size(row * routes.used + u);
    one.ids.push_back(routes.ids[r]);
    one.slots.push_back(routes.slots[r]);
    one.weights.push_back(routes.weights[r]);
  }
  return one;
}

RouteTable UploadRoutes(GpuRig& rig, const HostRoutes& routes, const HostExperts& experts) {
  std::vector<int32_t> order;
  std::vector<ExpertGroup> groups;
  for (int32_t e = 0; e < experts.shape.experts; ++e) {
    ExpertGroup group{.slot = 0, .expert = e, .first = static_cast<int32_t>(order.size()), .count = 0};
    for (size_t r = 0; r < routes.ids.size(); ++r) {
      if (routes.ids[r] != e || routes.slots[r] < 0) continue;
      group.slot = routes.slots[r];
      ++group.count;
      order.push_back(static_cast<int32_t>(r));
    }
    if (group.count > 0) groups.push_back(group);
  }
  RouteTable t;
  t.ids = rig.Upload(routes.ids);
  t.weights = rig.Upload(routes.weights);
  t.slots = rig.Upload(routes.slots);
  t.group_count = rig.Upload(std::vector<int32_t>{static_cast<int32_t>(groups.size())});
  order.resize(routes.ids.size(), -1);
  groups.resize(Size(kMaxStepRows) * routes.ids.size(), ExpertGroup{1 << 28, 1 << 28, 1 << 28, 1});
  t.order = rig.Upload(order);
  t.groups = rig.Upload(groups);
  return t;
}

cuda::DoorbellChannel MakeChannel(GpuRig& rig, int32_t used, int64_t hidden) {
  const cuda::DoorbellShape shape{.rows = kMaxStepRows, .used = used, .hidden = hidden};
  const uint64_t bytes = cuda::DoorbellChannelBytes(shape).value();
  HostSpan<std::byte> memory(reinterpret_cast<std::byte*>(rig.Pinned(bytes)), bytes);
  return cuda::MakeDoorbellChannel(memory, shape).value();
}

std::vector<float> TimesNorm(std::vector<float> weights, const std::vector<float>& norm) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i] *= norm[i % norm.size()];
  return weights;
}

RouterArgs MakeRouter(GpuRig& rig, const RouterShape& shape, const ResidualRows& x, const std::vector<float>& weights,
                      const std::vector<int32_t>& slot_of) {
  const size_t routes = Size(shape.bucket * shape.used);
  RouterArgs args;
  args.layer = 1;
  args.experts = shape.experts;
  args.used = shape.used;
  args.weights = rig.Upload(weights);
  args.x = x;
  args.rows = rig.Upload(std::vector<int32_t>{shape.rows});
  args.logits = rig.Poisoned<float>(Size(shape.bucket * (shape.experts + 1)));
  args.words = rig.Zeroed<uint64_t>(Size(RouterWords(shape.experts, shape.used)));
  args.routes = {.ids = rig.Poisoned<int32_t>(routes),
                 .weights = rig.Poisoned<float>(routes),
                 .slots = rig.Poisoned<int32_t>(routes),
                 .order = rig.Poisoned<int32_t>(routes),
                 .groups = rig.Poisoned<ExpertGroup>(Size(kMaxStepRows) * routes),
                 .group_count = rig.Poisoned<int32_t>(1),
                 .shared_weights = rig.Poisoned<float>(kMaxStepRows)};
  args.expert_to_slot = rig.Upload(std::vector<const int32_t*>{nullptr, rig.Upload(slot_of)});
  args.placement = rig.Upload(std::vector<uint64_t>{77});
  args.route_counts = rig.Zeroed<uint32_t>(Size(shape.experts));
  args.distinct = rig.Upload(std::vector<uint64_t>{100, 200});
  args.channel = MakeChannel(rig, shape.used, x.hidden);
  cuda::DoorbellState state;
  state.steps = 3;
  args.doorbell = rig.Upload(std::vector<cuda::DoorbellState>{state});
  return args;
}

std::vector<double> ExpertResult(const HostExperts& experts, int32_t expert, const double* x, InnerRange inner) {
  std::vector<double> gate = Times(experts.gate[Size(expert)], x), up = Times(experts.up[Size(expert)], x);
  Finish(experts.gate_scale, experts.gate_bias, expert, &gate);
  Finish(experts.up_scale, experts.up_bias, expert, &up);
  for (size_t i = 0; i < gate.size(); ++i) {
    const bool inside = static_cast<int64_t>(i) >= inner.begin && static_cast<int64_t>(i) < inner.end;
    gate[i] = inside ? Activate(experts.shape, gate[i], up[i]) : 0;
  }
  std::vector<double> out = Times(experts.down[Size(expert)], gate.data());
  Finish(experts.down_scale, inner.begin == 0 ? experts.down_bias : std::vector<float>(), expert, &out);
  return out;
}

std::vector<double> LayerResult(const HostExperts& experts, const HostRoutes& routes, const std::vector<float>& values,
                                const std::vector<double>& x) {
  const size_t hidden = Size(experts.shape.hidden);
  std::vector<double> y(values.begin(), values.end());
  for (size_t r = 0; r < routes.ids.size(); ++r) {
    if (routes.slots[r] < 0) continue;
    const size_t m = r / Size(routes.used);
    const auto out = ExpertResult(experts, routes.ids[r], x.data() + m * hidden);
    for (size_t c = 0; c < hidden; ++c) {
      y[m * hidden + c] += double{experts.shape.port_scale} * routes.weights[r] * out[c];
    }
  }
  return y;
}

}  // namespace bellhop::kernels
