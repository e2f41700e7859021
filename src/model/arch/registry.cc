#include "model/arch/registry.h"

#include "model/arch/builder.h"

namespace bellhop::model {
namespace {

struct Entry {
  std::string_view architecture;
  Result<ModelSpec> (*build)(const manifest::Manifest&);
};

constexpr Entry kRegistry[] = {
    {"qwen3moe", BuildQwen3},   {"qwen3", BuildQwen3}, {"llama", BuildLlama},    {"granite", BuildLlama},
    {"granitemoe", BuildLlama}, {"olmoe", BuildOlmoe}, {"gpt-oss", BuildGptOss},
};

// Every tensor index that a spec refers to.
class UsedTensors {
 public:
  UsedTensors(const manifest::Manifest& manifest, const ModelSpec& spec) : used_(manifest.tensors.size()) {
    Mark(spec.embedding);
    Mark(spec.embedding_weight_scale);
    Mark(spec.output_norm.weight);
    Mark(spec.head);
    if (const auto it = manifest.tensor_index.find("rope_freqs.weight"); it != manifest.tensor_index.end()) {
      Mark(it->second);
    }
    for (const LayerSpec& layer : spec.layers) MarkLayer(layer);
    for (const manifest::ExpertLayer& e : manifest.expert_layers) {
      if (e.layer.index() >= spec.layers.size() ||
          !std::holds_alternative<MoeSpec>(spec.layers[e.layer.index()].feed_forward)) {
        continue;
      }
      for (const TensorIndex t : {e.gate, e.up, e.down, e.gate_up, e.gate_bias, e.up_bias, e.gate_up_bias, e.down_bias,
                                  e.gate_scale, e.up_scale, e.gate_up_scale, e.down_scale}) {
        Mark(t);
      }
      for (const auto* each : {&e.gate_each, &e.up_each, &e.down_each}) {
        for (const TensorIndex t : *each) Mark(t);
      }
    }
  }
  bool Contains(size_t tensor) const { return used_[tensor]; }

 private:
  void Mark(TensorIndex tensor) {
    if (tensor >= 0) used_[static_cast<size_t>(tensor)] = true;
  }
  void Mark(const LinearSpec& linear) {
    for (const TensorIndex t : {linear.weight, linear.bias, linear.scale}) Mark(t);
  }
  void Mark(const DenseFfnSpec& ffn) {
    for (const LinearSpec* linear : {&ffn.gate, &ffn.up, &ffn.down}) Mark(*linear);
  }
  void MarkLayer(const LayerSpec& layer) {
    for (const PortSpec* port : {&layer.mixer_port, &layer.feed_forward_port}) {
      Mark(std::get<ResidualPortSpec>(*port).norm.weight);
    }
    const auto& attention = std::get<AttentionSpec>(layer.mixer);
    for (const LinearSpec* linear : {&attention.q, &attention.k, &attention.v, &attention.output}) Mark(*linear);
    for (const TensorIndex t : {attention.q_norm.weight, attention.k_norm.weight, attention.sinks}) Mark(t);
    if (const auto* dense = std::get_if<DenseFfnSpec>(&layer.feed_forward)) Mark(*dense);
    if (const auto* moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      Mark(moe->router);
      Mark(moe->selection_bias);
      if (moe->shared) Mark(*moe->shared);
      if (moe->shared_gate) Mark(*moe->shared_gate);
    }
  }

  std::vector<bool> used_;
};

}  // namespace

std::vector<std::string_view> SupportedArchitectures() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kRegistry) names.push_back(entry.architecture);
  return names;
}

Result<ModelSpec> BuildSpec(const manifest::Manifest& manifest) {
  for (const Entry& entry : kRegistry) {
    if (entry.architecture == manifest.architecture) return entry.build(manifest);
  }
  std::string known;
  for (const Entry& entry : kRegistry) known += (known.empty() ? "" : ", ") + std::string(entry.architecture);
  return Unsupported("architecture '{}' is not supported; supported are {}", manifest.architecture, known);
}

std::vector<std::string> UnusedTensorNotes(const manifest::Manifest& manifest, const ModelSpec& spec) {
  constexpr size_t kNamed = 3;
  const UsedTensors used(manifest, spec);
  size_t unused = 0;
  std::string names;
  for (size_t t = 0; t < manifest.tensors.size(); ++t) {
    if (used.Contains(t)) continue;
    if (unused++ < kNamed) names += (names.empty() ? "" : ", ") + manifest.tensors[t].name;
  }
  if (unused == 0) return {};
  return {fmt::format("{} tensors of the file are not used by architecture '{}': {}{}", unused, manifest.architecture,
                      names, unused > kNamed ? ", ..." : "")};
}

}  // namespace bellhop::model
