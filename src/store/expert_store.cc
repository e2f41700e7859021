#include "store/expert_store.h"

#include <algorithm>
#include <utility>

#include "quant/planar.h"
#include "store/tensor_view.h"

namespace bellhop::store {
namespace {

using manifest::ExpertLayer;
using manifest::Manifest;
using manifest::Tensor;

Status CheckShape(const Tensor& tensor, int64_t cols, int64_t rows) {
  if (tensor.dims[0] == static_cast<uint64_t>(cols) && tensor.rows() == static_cast<uint64_t>(rows)) return Status();
  return Corrupt(
      "tensor {}: shape {}, expected {} columns and {} rows in all (hidden size, expert size and expert count "
      "of the metadata)",
      tensor.name, tensor.ShapeString(), cols, rows);
}

// The matrices of one role (gate, up or down) for all experts: slices of a stack or one tensor each.
struct RoleSource {
  int32_t stack = -1;
  const std::vector<int32_t>* each = nullptr;
  int64_t first_row = 0;        // of this role within one expert's slice (merged gate_up: up starts at inner)
  int64_t rows_per_expert = 0;  // in the stack
};

Result<quant::QuantView> RoleView(const Manifest& m, const RoleSource& source, int32_t expert, int64_t rows,
                                  int64_t cols) {
  if (source.stack >= 0) {
    const Tensor& tensor = m.tensors[static_cast<size_t>(source.stack)];
    return MatrixView(tensor, expert * source.rows_per_expert + source.first_row, rows);
  }
  const Tensor& tensor = m.tensors[static_cast<size_t>((*source.each)[static_cast<size_t>(expert)])];
  BELLHOP_TRY(CheckShape(tensor, cols, rows));
  return MatrixView(tensor);
}

// The factors of a stack's companion tensor: one for all experts or one each; absent: 1.
Result<std::vector<float>> RoleScales(const Manifest& m, int32_t index, int32_t experts) {
  std::vector<float> ones(static_cast<size_t>(experts), 1.0f);
  if (index < 0) return ones;
  const Tensor& scale = m.tensors[static_cast<size_t>(index)];
  if (scale.elements() == 1) {
    BELLHOP_TRY_ASSIGN(const std::vector<float> one, DecodeSmall(scale, 1));
    return std::vector<float>(static_cast<size_t>(experts), one[0]);
  }
  return DecodeSmall(scale, static_cast<uint64_t>(experts));
}

Result<std::vector<float>> RoleBias(const Manifest& m, int32_t index, int64_t width, int32_t experts) {
  if (index < 0) return std::vector<float>();
  const Tensor& tensor = m.tensors[static_cast<size_t>(index)];
  BELLHOP_TRY(CheckShape(tensor, width, experts));
  return DecodeSmall(tensor, static_cast<uint64_t>(width) * static_cast<uint64_t>(experts));
}

}  // namespace

uint64_t ExpertView::bytes() const { return quant::ViewBytes(gate) + quant::ViewBytes(up) + quant::ViewBytes(down); }

std::unique_ptr<ExpertStore> ExpertStore::FromViews(std::vector<std::vector<ExpertView>> layers) {
  auto store = std::unique_ptr<ExpertStore>(new ExpertStore());
  for (std::vector<ExpertView>& experts : layers) {
    for (const ExpertView& expert : experts) store->inner_ = std::max(store->inner_, expert.down.cols);
    store->layers_.push_back({.experts = std::move(experts), .gate_bias = {}, .up_bias = {}, .down_bias = {}});
  }
  return store;
}

Result<std::unique_ptr<ExpertStore>> ExpertStore::Create(const Manifest& m) {
  auto store = std::unique_ptr<ExpertStore>(new ExpertStore());
  store->layers_.resize(m.hparams.layers);
  const auto experts = static_cast<int32_t>(m.hparams.experts.count);
  const auto hidden = static_cast<int64_t>(m.hparams.hidden);
  for (const ExpertLayer& source : m.expert_layers) {
    if (source.layer.value < 0 || source.layer.index() >= store->layers_.size()) {
      return Corrupt("experts of layer {}, but the model has {} layers", source.layer.value, store->layers_.size());
    }
    Layer& layer = store->layers_[source.layer.index()];
    const bool merged = source.gate_up >= 0;
    if (source.down < 0 && source.down_each.empty()) {
      return Corrupt("blk.{}: no expert down projection (ffn_down_exps)", source.layer.value);
    }
    const Tensor& down = m.tensors[static_cast<size_t>(source.down >= 0 ? source.down : source.down_each[0])];
    const auto inner = static_cast<int64_t>(down.dims[0]);
    if (store->inner_ == 0) store->inner_ = inner;
    if (inner != store->inner_) {
      return Unsupported("tensor {}: expert size {} differs from {} of earlier layers", down.name, inner,
                         store->inner_);
    }
    const RoleSource gate{merged ? source.gate_up : source.gate, &source.gate_each, 0, merged ? 2 * inner : inner};
    const RoleSource up{merged ? source.gate_up : source.up, &source.up_each, merged ? inner : 0,
                        merged ? 2 * inner : inner};
    const RoleSource down_source{source.down, &source.down_each, 0, hidden};
    for (const RoleSource* role : {&gate, &up, &down_source}) {
      if (role->stack >= 0) {
        const bool is_down = role == &down_source;
        BELLHOP_TRY(CheckShape(m.tensors[static_cast<size_t>(role->stack)], is_down ? inner : hidden,
                               role->rows_per_expert * experts));
      } else if (role->each->size() != static_cast<size_t>(experts)) {
        return Corrupt("blk.{}: {} expert tensors of one kind, expected {}", source.layer.value, role->each->size(),
                       experts);
      }
    }
    if (merged && source.gate_up_bias >= 0) {
      BELLHOP_TRY_ASSIGN(const std::vector<float> both, RoleBias(m, source.gate_up_bias, 2 * inner, experts));
      for (int32_t e = 0; e < experts; ++e) {
        const float* row = both.data() + static_cast<int64_t>(e) * 2 * inner;
        layer.gate_bias.insert(layer.gate_bias.end(), row, row + inner);
        layer.up_bias.insert(layer.up_bias.end(), row + inner, row + 2 * inner);
      }
    } else {
      BELLHOP_TRY_ASSIGN(layer.gate_bias, RoleBias(m, source.gate_bias, inner, experts));
      BELLHOP_TRY_ASSIGN(layer.up_bias, RoleBias(m, source.up_bias, inner, experts));
    }
    BELLHOP_TRY_ASSIGN(layer.down_bias, RoleBias(m, source.down_bias, hidden, experts));
    BELLHOP_TRY_ASSIGN(const std::vector<float> gate_scales,
                       RoleScales(m, merged ? source.gate_up_scale : source.gate_scale, experts));
    BELLHOP_TRY_ASSIGN(const std::vector<float> up_scales,
                       RoleScales(m, merged ? source.gate_up_scale : source.up_scale, experts));
    BELLHOP_TRY_ASSIGN(const std::vector<float> down_scales, RoleScales(m, source.down_scale, experts));

    layer.experts.resize(static_cast<size_t>(experts));
    for (int32_t e = 0; e < experts; ++e) {
      const auto i = static_cast<size_t>(e);
      ExpertView& view = layer.experts[i];
      BELLHOP_TRY_ASSIGN(view.gate, RoleView(m, gate, e, inner, hidden));
      BELLHOP_TRY_ASSIGN(view.up, RoleView(m, up, e, inner, hidden));
      BELLHOP_TRY_ASSIGN(view.down, RoleView(m, down_source, e, hidden, inner));
      if (!layer.gate_bias.empty()) view.gate_bias = layer.gate_bias.data() + e * inner;
      if (!layer.up_bias.empty()) view.up_bias = layer.up_bias.data() + e * inner;
      if (!layer.down_bias.empty()) view.down_bias = layer.down_bias.data() + e * hidden;
      view.gate_scale = gate_scales[i];
      view.up_scale = up_scales[i];
      view.down_scale = down_scales[i];
    }
  }
  return store;
}

uint64_t ExpertStore::LayerBytes(LayerId layer) const {
  uint64_t total = 0;
  for (const ExpertView& view : layers_[layer.index()].experts) total += view.bytes();
  return total;
}

uint64_t ExpertStore::TotalBytes() const {
  uint64_t total = 0;
  for (int32_t l = 0; l < layers(); ++l) total += LayerBytes(LayerId(l));
  return total;
}

std::vector<quant::QuantView> ExpertStore::Matrices() const {
  std::vector<quant::QuantView> matrices;
  for (const Layer& layer : layers_) {
    for (const ExpertView& expert : layer.experts) {
      for (const quant::QuantView* view : {&expert.gate, &expert.up, &expert.down}) {
        if (view->rows > 0) matrices.push_back(*view);
      }
    }
  }
  return matrices;
}

}  // namespace bellhop::store
