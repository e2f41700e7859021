#include "plan/popularity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bellhop::plan {
namespace {

// Scales weights >= 0 to expected routes that sum to `used`. What exceeds 1 goes to the other experts.
std::vector<double> Normalise(const std::vector<double>& weights, int32_t used) {
  std::vector<double> routes(weights.size(), 0.0);
  std::vector<bool> full(weights.size(), false);
  double left = std::min<double>(used, static_cast<double>(weights.size()));
  for (bool again = true; again;) {
    again = false;
    double sum = 0, open = 0;
    for (size_t e = 0; e < weights.size(); ++e) {
      if (full[e]) continue;
      sum += weights[e];
      ++open;
    }
    for (size_t e = 0; e < weights.size(); ++e) {
      if (!full[e]) routes[e] = sum > 0 ? left * (weights[e] / sum) : left / open;
    }
    for (size_t e = 0; e < weights.size(); ++e) {
      if (full[e] || routes[e] <= 1) continue;
      routes[e] = 1;
      full[e] = again = true;
      left -= 1;
    }
  }
  return routes;
}

// Weight of a rank. Ranks are taken in blocks of one for each layer, in which popularity is taken as equal but for a
// touch that keeps the order.
class RankWeights {
 public:
  RankWeights(size_t experts, size_t layers)
      : block_(static_cast<double>(layers)), blocks_(static_cast<double>(experts) / static_cast<double>(layers)) {}
  double operator()(size_t rank) const {
    constexpr double kTouch = 1e-6;
    const double block = std::floor(static_cast<double>(rank) / block_);
    const double weight =
        std::pow((block + 1) / blocks_, kRankedShareExponent) - std::pow(block / blocks_, kRankedShareExponent);
    return weight * (1 - kTouch * (static_cast<double>(rank) / block_ - block));
  }

 private:
  double block_, blocks_;
};

}  // namespace

std::vector<ExpertLayerInfo> ExpertLayers(const manifest::Manifest& manifest) {
  std::vector<ExpertLayerInfo> layers(manifest.hparams.layers);
  const auto experts = static_cast<size_t>(manifest.hparams.experts.count);
  if (experts == 0) return layers;
  auto bytes_of = [&](int32_t tensor) { return manifest.tensors[static_cast<size_t>(tensor)].bytes; };
  for (const manifest::ExpertLayer& layer : manifest.expert_layers) {
    ExpertLayerInfo& info = layers[layer.layer.index()];
    info.used = static_cast<int32_t>(manifest.hparams.experts.used);
    info.expert_bytes.assign(experts, 0);
    for (const int32_t stack : {layer.gate, layer.up, layer.down, layer.gate_up}) {
      if (stack < 0) continue;
      for (uint64_t& bytes : info.expert_bytes) bytes += bytes_of(stack) / experts;
    }
    for (const auto* each : {&layer.gate_each, &layer.up_each, &layer.down_each}) {
      for (size_t e = 0; e < each->size() && e < experts; ++e) info.expert_bytes[e] += bytes_of((*each)[e]);
    }
  }
  return layers;
}

Popularity EvenPopularity(const std::vector<ExpertLayerInfo>& layers) {
  Popularity popularity;
  popularity.even = true;
  for (const ExpertLayerInfo& layer : layers) {
    popularity.routes.push_back(Normalise(std::vector<double>(layer.expert_bytes.size(), 1.0), layer.used));
  }
  return popularity;
}

Result<Popularity> PopularityFromCounts(const std::vector<ExpertLayerInfo>& layers,
                                        const std::vector<std::vector<uint64_t>>& counts) {
  if (counts.size() != layers.size()) {
    return InvalidArgument("expert counts of {} layers for a model of {}", counts.size(), layers.size());
  }
  Popularity popularity;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (counts[l].size() != layers[l].expert_bytes.size()) {
      return InvalidArgument("layer {}: counts of {} experts, the layer has {}", l, counts[l].size(),
                             layers[l].experts());
    }
    popularity.routes.push_back(Normalise(std::vector<double>(counts[l].begin(), counts[l].end()), layers[l].used));
  }
  return popularity;
}

Result<Popularity> PopularityFromProfile(const std::vector<ExpertLayerInfo>& layers, const ExpertProfile& profile) {
  int32_t experts = 0;
  size_t total = 0, expert_layers = 0;
  for (const ExpertLayerInfo& layer : layers) {
    experts = std::max(experts, layer.experts());
    total += layer.expert_bytes.size();
    expert_layers += layer.expert_bytes.empty() ? 0 : 1;
  }
  if (profile.layers != static_cast<int32_t>(layers.size()) || profile.experts != experts) {
    return InvalidArgument("profile of {} layers of {} experts, the model has {} of {}", profile.layers,
                           profile.experts, layers.size(), experts);
  }
  std::vector<std::vector<double>> weights;
  for (const ExpertLayerInfo& layer : layers) weights.emplace_back(layer.expert_bytes.size(), -1.0);
  const RankWeights weight_of(total, std::max<size_t>(expert_layers, 1));
  size_t rank = 0;
  for (const ExpertKey& key : profile.ranked) {
    const bool known = key.layer.valid() && key.layer.index() < layers.size() && key.expert.valid() &&
                       key.expert.value < layers[key.layer.index()].experts();
    if (!known) {
      return InvalidArgument(
          "profile: expert {} of layer {} does not exist in the model; make a profile with `bellhop "
          "profile`",
          key.expert.value, key.layer.value);
    }
    double& weight = weights[key.layer.index()][key.expert.index()];
    if (weight >= 0)
      return InvalidArgument("profile: expert {} of layer {} is listed twice", key.expert.value, key.layer.value);
    weight = weight_of(rank++);
  }
  const double rest = total > 0 ? weight_of(total - 1) : 0;
  Popularity popularity;
  for (size_t l = 0; l < layers.size(); ++l) {
    for (double& w : weights[l]) w = w < 0 ? rest : w;
    popularity.routes.push_back(Normalise(weights[l], layers[l].used));
  }
  return popularity;
}

}  // namespace bellhop::plan
