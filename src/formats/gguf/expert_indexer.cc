#include "formats/gguf/expert_indexer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "formats/gguf/gguf_reader.h"
#include "quant/format.h"

namespace bellhop::formats {

using manifest::ExpertHparams;
using manifest::ExpertLayer;
using manifest::Hparams;
using manifest::Tensor;

namespace {

using Stack = int32_t ExpertLayer::*;
using Each = std::vector<int32_t> ExpertLayer::*;

constexpr std::pair<std::string_view, Stack> kStacks[] = {
    {"ffn_gate_exps.weight", &ExpertLayer::gate},      {"ffn_up_exps.weight", &ExpertLayer::up},
    {"ffn_down_exps.weight", &ExpertLayer::down},      {"ffn_gate_up_exps.weight", &ExpertLayer::gate_up},
    {"ffn_gate_exps.bias", &ExpertLayer::gate_bias},   {"ffn_up_exps.bias", &ExpertLayer::up_bias},
    {"ffn_down_exps.bias", &ExpertLayer::down_bias},   {"ffn_gate_up_exps.bias", &ExpertLayer::gate_up_bias},
    {"ffn_gate_exps.scale", &ExpertLayer::gate_scale}, {"ffn_up_exps.scale", &ExpertLayer::up_scale},
    {"ffn_down_exps.scale", &ExpertLayer::down_scale}, {"ffn_gate_up_exps.scale", &ExpertLayer::gate_up_scale},
};

constexpr std::pair<std::string_view, Each> kEachNames[] = {
    {"ffn_gate.", &ExpertLayer::gate_each},
    {"ffn_up.", &ExpertLayer::up_each},
    {"ffn_down.", &ExpertLayer::down_each},
};

// Takes a decimal number and the "." behind it off the front of `text`.
std::optional<uint32_t> TakeNumber(std::string_view* text) {
  uint32_t number = 0;
  size_t digits = 0;
  while (digits < text->size() && (*text)[digits] >= '0' && (*text)[digits] <= '9') {
    if (++digits > 6) return std::nullopt;
    number = number * 10 + static_cast<uint32_t>((*text)[digits - 1] - '0');
  }
  if (digits == 0 || digits == text->size() || (*text)[digits] != '.') return std::nullopt;
  if (digits > 1 && text->front() == '0') return std::nullopt;  // one spelling per number
  text->remove_prefix(digits + 1);
  return number;
}

bool TakePrefix(std::string_view prefix, std::string_view* text) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// The tensors of one layer as they are found. Per-expert lists become ExpertLayer's only when they are complete: a
// file must not make the reader allocate expert_count entries for one small tensor.
struct FoundLayer {
  ExpertLayer layer;
  std::array<std::vector<std::pair<uint32_t, int32_t>>, std::size(kEachNames)> each;  // (expert, tensor)

  bool HasEach() const {
    return std::any_of(each.begin(), each.end(), [](const auto& list) { return !list.empty(); });
  }
};

class Indexer {
 public:
  Indexer(const std::vector<Tensor>& tensors, const Hparams& hparams, std::string_view architecture)
      : tensors_(tensors), hparams_(hparams), experts_(hparams.experts), architecture_(architecture) {}

  Result<std::vector<ExpertLayer>> Run() {
    for (size_t i = 0; i < tensors_.size(); ++i) BELLHOP_TRY(Sort(static_cast<int32_t>(i)));
    std::vector<ExpertLayer> out;
    for (auto& [number, found] : layers_) {
      BELLHOP_TRY(Check(&found));
      out.push_back(std::move(found.layer));
    }
    return out;
  }

 private:
  // Files the tensor under its layer when its name says that it belongs to routed experts.
  Status Sort(int32_t index) {
    const Tensor& tensor = tensors_[static_cast<size_t>(index)];
    std::string_view rest = tensor.name;
    if (!TakePrefix("blk.", &rest)) return {};
    const std::optional<uint32_t> layer = TakeNumber(&rest);
    if (!layer) return {};
    for (const auto& [suffix, member] : kStacks) {
      if (rest != suffix) continue;
      BELLHOP_TRY(CheckPlace(tensor, *layer));
      At(*layer).layer.*member = index;
      return {};
    }
    for (size_t role = 0; role < std::size(kEachNames); ++role) {
      std::string_view tail = rest;
      if (!TakePrefix(kEachNames[role].first, &tail)) continue;
      const std::optional<uint32_t> expert = TakeNumber(&tail);
      if (!expert || tail != "weight") continue;
      BELLHOP_TRY(CheckPlace(tensor, *layer));
      if (*expert >= experts_.count) {
        return Corrupt("tensor '{}': expert {} of {} ('{}.expert_count')", tensor.name, *expert, experts_.count,
                       architecture_);
      }
      At(*layer).each[role].emplace_back(*expert, index);
      return {};
    }
    return {};
  }

  FoundLayer& At(uint32_t layer) {
    FoundLayer& out = layers_[layer];
    out.layer.layer = LayerId(static_cast<int32_t>(layer));
    return out;
  }

  Status CheckPlace(const Tensor& tensor, uint32_t layer) const {
    if (experts_.count == 0) {
      return Corrupt("tensor '{}' belongs to experts, but '{}.expert_count' is 0 or missing", tensor.name,
                     architecture_);
    }
    if (layer >= hparams_.layers) {
      return Corrupt("tensor '{}': layer {} of {} ('{}.block_count')", tensor.name, layer, hparams_.layers,
                     architecture_);
    }
    return {};
  }

  Status Missing(const ExpertLayer& layer, std::string_view suffix) const {
    return NotFound(
        "tensor 'blk.{}.{}' of architecture '{}' is not in the file, although the layer has other expert tensors",
        layer.layer.value, suffix, architecture_);
  }

  Status Check(FoundLayer* found) const {
    const ExpertLayer& layer = found->layer;
    if (!found->HasEach()) return CheckStacks(layer);
    const int32_t stack = std::max({layer.gate, layer.up, layer.down, layer.gate_up});
    if (stack >= 0) {
      return Corrupt("layer {}: experts are stored both as stacks and one by one (tensor '{}')", layer.layer.value,
                     tensors_[static_cast<size_t>(stack)].name);
    }
    BELLHOP_TRY(ExpandEach(found));
    return CheckEach(layer);
  }

  Status CheckStacks(const ExpertLayer& layer) const {
    if (layer.down < 0) return Missing(layer, "ffn_down_exps.weight");
    const bool merged = layer.gate_up >= 0;
    if (merged && (layer.gate >= 0 || layer.up >= 0)) {
      return Corrupt("layer {}: both a merged gate_up stack and separate ones", layer.layer.value);
    }
    if (!merged && layer.gate < 0) return Missing(layer, "ffn_gate_exps.weight");
    if (!merged && layer.up < 0) return Missing(layer, "ffn_up_exps.weight");
    const uint64_t hidden = hparams_.hidden;
    const uint64_t count = experts_.count;
    const uint64_t inner = tensors_[static_cast<size_t>(layer.down)].dims[0];
    BELLHOP_TRY(CheckInner(layer.down, inner));
    BELLHOP_TRY(CheckMatrix(layer.down, {inner, hidden, count}));
    BELLHOP_TRY(CheckMatrix(layer.gate, {hidden, inner, count}));
    BELLHOP_TRY(CheckMatrix(layer.up, {hidden, inner, count}));
    BELLHOP_TRY(CheckMatrix(layer.gate_up, {hidden, 2 * inner, count}));
    BELLHOP_TRY(CheckShape(layer.gate_bias, {inner, count, 1}));
    BELLHOP_TRY(CheckShape(layer.up_bias, {inner, count, 1}));
    BELLHOP_TRY(CheckShape(layer.down_bias, {hidden, count, 1}));
    BELLHOP_TRY(CheckShape(layer.gate_up_bias, {2 * inner, count, 1}));
    for (const int32_t scale : {layer.gate_scale, layer.up_scale, layer.down_scale, layer.gate_up_scale}) {
      BELLHOP_TRY(CheckShape(scale, {count, 1, 1}));
    }
    return {};
  }

  // Every expert once (names are unique, numbers have one spelling): a full list sorted by expert is the list.
  Status ExpandEach(FoundLayer* found) const {
    for (size_t role = 0; role < std::size(kEachNames); ++role) {
      auto& list = found->each[role];
      std::sort(list.begin(), list.end());
      for (uint32_t expert = 0; expert < experts_.count; ++expert) {
        if (expert >= list.size() || list[expert].first != expert) {
          return Missing(found->layer, fmt::format("{}{}.weight", kEachNames[role].first, expert));
        }
      }
      for (const auto& [expert, tensor] : list) (found->layer.*kEachNames[role].second).push_back(tensor);
    }
    return {};
  }

  Status CheckEach(const ExpertLayer& layer) const {
    const uint64_t hidden = hparams_.hidden;
    const uint64_t inner = tensors_[static_cast<size_t>(layer.down_each[0])].dims[0];
    BELLHOP_TRY(CheckInner(layer.down_each[0], inner));
    for (size_t expert = 0; expert < layer.down_each.size(); ++expert) {
      BELLHOP_TRY(CheckMatrix(layer.down_each[expert], {inner, hidden, 1}));
      BELLHOP_TRY(CheckMatrix(layer.gate_each[expert], {hidden, inner, 1}));
      BELLHOP_TRY(CheckMatrix(layer.up_each[expert], {hidden, inner, 1}));
    }
    return {};
  }

  Status CheckInner(int32_t down, uint64_t inner) const {
    if (experts_.inner == 0 || experts_.inner == inner) return {};
    const Tensor& tensor = tensors_[static_cast<size_t>(down)];
    return Corrupt("tensor '{}': shape {}, but '{}.expert_feed_forward_length' is {}", tensor.name,
                   tensor.ShapeString(), architecture_, experts_.inner);
  }

  // An absent tensor (-1) passes.
  Status CheckShape(int32_t index, std::array<uint64_t, 3> shape) const {
    if (index < 0) return {};
    const Tensor& tensor = tensors_[static_cast<size_t>(index)];
    if (tensor.dims == std::array<uint64_t, 4>{shape[0], shape[1], shape[2], 1}) return {};
    return Corrupt("tensor '{}': shape {} does not fit, [{}, {}, {}] is expected (hidden size {}, {} experts)",
                   tensor.name, tensor.ShapeString(), shape[0], shape[1], shape[2], hparams_.hidden, experts_.count);
  }

  Status CheckMatrix(int32_t index, std::array<uint64_t, 3> shape) const {
    if (index < 0) return {};
    BELLHOP_TRY(CheckShape(index, shape));
    const Tensor& tensor = tensors_[static_cast<size_t>(index)];
    const quant::FormatTraits& traits = quant::Traits(tensor.format);
    if (traits.weights) return {};
    return Unsupported("tensor '{}': type {} cannot hold weights; quantize the model to another type", tensor.name,
                       traits.name);
  }

  const std::vector<Tensor>& tensors_;
  const Hparams& hparams_;
  const ExpertHparams& experts_;
  std::string_view architecture_;
  std::map<uint32_t, FoundLayer> layers_;
};

}  // namespace

Result<std::vector<ExpertLayer>> IndexExperts(const std::vector<Tensor>& tensors, const Hparams& hparams,
                                              std::string_view architecture) {
  return Indexer(tensors, hparams, architecture).Run();
}

}  // namespace bellhop::formats
