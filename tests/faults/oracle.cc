#include "faults/oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "formats/gguf/manifest_builder.h"
#include "store/tensor_view.h"

namespace bellhop::test {
namespace {

using Vec = std::vector<double>;

class Oracle {
 public:
  explicit Oracle(const std::string& path) : model_(Open(path)), m_(Build(model_)) {}

  OracleResult Run(const std::vector<TokenId>& ids) {
    const manifest::Hparams& h = m_.hparams;
    OracleResult result;
    result.vocab = h.vocab;
    result.chosen.resize(h.layers);
    std::vector<Vec> x;  // [position][hidden]
    for (const TokenId id : ids) x.push_back(Row("token_embd.weight", id, h.hidden));
    for (uint32_t l = 0; l < h.layers; ++l) {
      Attention(l, &x);
      for (Vec& row : x) AddTo(Experts(l, Norm(Name(l, "ffn_norm"), row), &result), &row);
    }
    const std::string head = m_.FindTensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
    for (const Vec& row : x) {
      const Vec logits = Product(head, 0, h.vocab, Norm("output_norm.weight", row));
      result.logits.insert(result.logits.end(), logits.begin(), logits.end());
    }
    return result;
  }

 private:
  static formats::GgufModel Open(const std::string& path) {
    auto model = formats::GgufModel::Open(path);
    if (!model.ok()) throw std::runtime_error(model.status().ToString());
    return std::move(model).value();
  }
  static manifest::Manifest Build(const formats::GgufModel& model) {
    auto manifest = formats::BuildManifest(model);
    if (!manifest.ok()) throw std::runtime_error(manifest.status().ToString());
    return std::move(manifest).value();
  }
  static std::string Name(uint32_t layer, const std::string& stem) {
    return "blk." + std::to_string(layer) + "." + stem + ".weight";
  }

  // Row `r` of a matrix, decoded.
  Vec Row(const std::string& name, int64_t r, uint64_t cols) const {
    const manifest::Tensor* tensor = m_.FindTensor(name);
    if (tensor == nullptr || tensor->dims[0] != cols) throw std::runtime_error("oracle: " + name);
    manifest::Tensor row = *tensor;
    const uint64_t bytes = tensor->bytes / tensor->rows();
    row.dims = {cols, 1, 1, 1};
    row.data = tensor->data.subspan(static_cast<uint64_t>(r) * bytes, bytes);
    auto values = store::DecodeSmall(row, cols);
    if (!values.ok()) throw std::runtime_error(values.status().ToString());
    return Vec(values->begin(), values->end());
  }

  // Rows [first, first + rows) times x.
  Vec Product(const std::string& name, int64_t first, int64_t rows, const Vec& x) const {
    Vec y;
    for (int64_t r = 0; r < rows; ++r) {
      const Vec w = Row(name, first + r, x.size());
      y.push_back(std::inner_product(w.begin(), w.end(), x.begin(), 0.0));
    }
    return y;
  }

  Vec Norm(const std::string& name, const Vec& x) const {
    const Vec w = Row(name, 0, x.size());
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + m_.hparams.rms_epsilon);
    Vec y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * w[i];
    return y;
  }

  static void AddTo(const Vec& y, Vec* x) {
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] += y[i];
  }

  // Per head: norm, then NEOX rotation of pairs (j, j + width / 2).
  void NormAndRotate(const std::string& norm, int64_t position, Vec* heads) const {
    const size_t d = m_.hparams.key_length, width = m_.hparams.rope.dims;
    for (size_t first = 0; first < heads->size(); first += d) {
      Vec head = Norm(
          norm, Vec(heads->begin() + static_cast<int64_t>(first), heads->begin() + static_cast<int64_t>(first + d)));
      for (size_t j = 0; j < width / 2; ++j) {
        const double angle = static_cast<double>(position) *
                             std::pow(m_.hparams.rope.base, -2.0 * static_cast<double>(j) / static_cast<double>(width));
        const double a = head[j], b = head[j + width / 2];
        head[j] = a * std::cos(angle) - b * std::sin(angle);
        head[j + width / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
      std::copy(head.begin(), head.end(), heads->begin() + static_cast<int64_t>(first));
    }
  }

  void Attention(uint32_t l, std::vector<Vec>* x) const {
    const manifest::Hparams& h = m_.hparams;
    const size_t d = h.key_length, dv = h.value_length, group = h.heads[l] / h.kv_heads[l];
    std::vector<Vec> keys, values;
    for (size_t p = 0; p < x->size(); ++p) {
      const Vec in = Norm(Name(l, "attn_norm"), (*x)[p]);
      Vec q = Product(Name(l, "attn_q"), 0, static_cast<int64_t>(h.heads[l] * d), in);
      keys.push_back(Product(Name(l, "attn_k"), 0, static_cast<int64_t>(h.kv_heads[l] * d), in));
      values.push_back(Product(Name(l, "attn_v"), 0, static_cast<int64_t>(h.kv_heads[l] * dv), in));
      NormAndRotate(Name(l, "attn_q_norm"), static_cast<int64_t>(p), &q);
      NormAndRotate(Name(l, "attn_k_norm"), static_cast<int64_t>(p), &keys.back());
      Vec out(h.heads[l] * dv, 0.0);
      for (size_t head = 0; head < h.heads[l]; ++head) {
        const size_t kv = head / group;
        Vec score;
        for (const Vec& key : keys) {
          double s = 0;
          for (size_t i = 0; i < d; ++i) s += q[head * d + i] * key[kv * d + i];
          score.push_back(s / std::sqrt(static_cast<double>(d)));
        }
        const double top = *std::max_element(score.begin(), score.end());
        double sum = 0;
        for (double& s : score) sum += s = std::exp(s - top);
        for (size_t j = 0; j < score.size(); ++j) {
          for (size_t i = 0; i < dv; ++i) out[head * dv + i] += score[j] / sum * values[j][kv * dv + i];
        }
      }
      AddTo(Product(Name(l, "attn_output"), 0, h.hidden, out), &(*x)[p]);
    }
  }

  // Softmax over all experts, the best `used`, weights scaled to sum 1.
  Vec Experts(uint32_t l, const Vec& x, OracleResult* result) const {
    const auto experts = static_cast<int64_t>(m_.hparams.experts.count);
    const size_t used = m_.hparams.experts.used;
    Vec score = Product(Name(l, "ffn_gate_inp"), 0, experts, x);
    if (const std::string bias = "blk." + std::to_string(l) + ".ffn_gate_inp.bias"; m_.FindTensor(bias) != nullptr) {
      AddTo(Row(bias, 0, score.size()), &score);
    }
    std::vector<int32_t> order(score.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
    });
    auto score_at = [&](size_t rank) { return score[static_cast<size_t>(order[rank])]; };
    if (used < order.size()) result->smallest_gap = std::min(result->smallest_gap, score_at(used - 1) - score_at(used));
    result->chosen[l].insert(result->chosen[l].end(), order.begin(), order.begin() + static_cast<int64_t>(used));
    double sum = 0;
    for (size_t i = 0; i < used; ++i) sum += std::exp(score_at(i) - score_at(0));
    Vec y(x.size(), 0.0);
    const auto inner = static_cast<int64_t>(m_.FindTensor(Name(l, "ffn_down_exps"))->dims[0]);
    const auto hidden = static_cast<int64_t>(x.size());
    for (size_t i = 0; i < used; ++i) {
      const int64_t e = order[i];
      Vec gate = Product(Name(l, "ffn_gate_exps"), e * inner, inner, x);
      const Vec up = Product(Name(l, "ffn_up_exps"), e * inner, inner, x);
      for (size_t j = 0; j < gate.size(); ++j) gate[j] = gate[j] / (1 + std::exp(-gate[j])) * up[j];
      const Vec down = Product(Name(l, "ffn_down_exps"), e * hidden, hidden, gate);
      for (size_t j = 0; j < y.size(); ++j) y[j] += std::exp(score_at(i) - score_at(0)) / sum * down[j];
    }
    return y;
  }

  formats::GgufModel model_;
  manifest::Manifest m_;
};

}  // namespace

OracleResult RunOracle(const std::string& path, const std::vector<TokenId>& ids) { return Oracle(path).Run(ids); }

double OracleDistance(const std::vector<float>& engine, const OracleResult& oracle) {
  if (engine.size() != oracle.logits.size()) throw std::runtime_error("oracle: sizes differ");
  double error = 0, norm = 0;
  for (size_t i = 0; i < engine.size(); ++i) {
    error += std::pow(static_cast<double>(engine[i]) - oracle.logits[i], 2);
    norm += std::pow(oracle.logits[i], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace bellhop::test
