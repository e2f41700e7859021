#include "faults/variant.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "quant/codec.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

void Check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename T>
T Take(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}

}  // namespace

uint64_t VariantTensor::rows() const {
  uint64_t rows = 1;
  for (size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
  return rows;
}

std::vector<float> VariantTensor::Values() const {
  const uint64_t row_bytes = Take(quant::RowBytes(format, dims[0]));
  std::vector<float> values(dims[0] * rows());
  for (uint64_t r = 0; r < rows(); ++r) {
    quant::DecodeRow(format, bytes.data() + r * row_bytes, static_cast<int64_t>(dims[0]), values.data() + r * dims[0]);
  }
  return values;
}

Variant Variant::Of(const std::string& path) {
  Variant v;
  v.source_ = std::make_shared<formats::GgufModel>(Take(formats::GgufModel::Open(path)));
  v.architecture_ = std::string(v.source_->architecture());
  for (const auto& entry : v.source_->metadata().entries()) {
    if (entry.key == "general.alignment" || entry.key.starts_with("split.")) continue;
    const auto* value = &entry.value;
    v.keys_.emplace_back(entry.key,
                         [key = entry.key, value](formats::GgufWriter& w) { return w.AddValue(key, *value); });
  }
  for (const manifest::Tensor& tensor : v.source_->tensors()) {
    VariantTensor t{tensor.name, tensor.format, {}, {tensor.data.begin(), tensor.data.end()}};
    t.dims.assign(tensor.dims.begin(), tensor.dims.begin() + tensor.n_dims);
    v.tensors_.push_back(std::move(t));
  }
  return v;
}

Variant Variant::Arch(const std::string& name) { return Of(RepoPath("tests/golden/arch/" + name + ".gguf")); }

bool Variant::HasKey(const std::string& key) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const auto& k) { return k.first == FullKey(key); });
}

Variant& Variant::SetKey(const std::string& key, AddKey add) {
  const std::string full = FullKey(key);
  for (auto& [name, old] : keys_) {
    if (name != full) continue;
    old = std::move(add);
    return *this;
  }
  keys_.emplace_back(full, std::move(add));
  return *this;
}

Variant& Variant::SetUint(const std::string& key, uint64_t value) {
  const auto type = value > UINT32_MAX ? manifest::MetaType::kU64 : manifest::MetaType::kU32;
  return SetKey(key, [k = FullKey(key), value, type](auto& w) { return w.AddUint(k, value, type); });
}

Variant& Variant::SetFloat(const std::string& key, double value) {
  return SetKey(key, [k = FullKey(key), value](auto& w) { return w.AddFloat(k, value, manifest::MetaType::kF64); });
}

Variant& Variant::SetString(const std::string& key, const std::string& value) {
  if (key == "general.architecture") architecture_ = value;
  return SetKey(key, [k = FullKey(key), value](auto& w) { return w.AddString(k, value); });
}

Variant& Variant::SetStrings(const std::string& key, const std::vector<std::string>& values) {
  return SetKey(key, [k = FullKey(key), values](auto& w) { return w.AddStrings(k, values); });
}

Variant& Variant::SetInts(const std::string& key, const std::vector<int32_t>& values) {
  return SetKey(key, [k = FullKey(key), values](auto& w) { return w.AddInts(k, values); });
}

Variant& Variant::RemoveKey(const std::string& key) {
  if (std::erase_if(keys_, [&](const auto& k) { return k.first == FullKey(key); }) != 1) {
    throw std::runtime_error("no key " + FullKey(key));
  }
  return *this;
}

bool Variant::Has(const std::string& name) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const VariantTensor& t) { return t.name == name; });
}

VariantTensor& Variant::At(const std::string& name) {
  for (VariantTensor& t : tensors_) {
    if (t.name == name) return t;
  }
  throw std::runtime_error("no tensor " + name);
}

Variant& Variant::Remove(const std::string& name) {
  if (std::erase_if(tensors_, [&](const VariantTensor& t) { return t.name == name; }) != 1) {
    throw std::runtime_error("no tensor " + name);
  }
  return *this;
}

Variant& Variant::Put(const std::string& name, std::vector<uint64_t> dims, const std::vector<float>& values,
                      quant::WeightFormat format) {
  VariantTensor t{name, format, std::move(dims), {}};
  if (values.size() != t.dims[0] * t.rows()) throw std::runtime_error(name + ": values do not fit the shape");
  const uint64_t row_bytes = Take(quant::RowBytes(format, t.dims[0]));
  t.bytes.resize(row_bytes * t.rows());
  for (uint64_t r = 0; r < t.rows(); ++r) {
    Check(quant::EncodeRow(format, values.data() + r * t.dims[0], static_cast<int64_t>(t.dims[0]), nullptr,
                           t.bytes.data() + r * row_bytes));
  }
  if (Has(name)) {
    At(name) = std::move(t);
  } else {
    tensors_.push_back(std::move(t));
  }
  return *this;
}

Variant& Variant::Map(const std::string& name, const std::function<float(size_t, float)>& fn) {
  std::vector<float> values = At(name).Values();
  for (size_t i = 0; i < values.size(); ++i) values[i] = fn(i, values[i]);
  return Put(name, At(name).dims, values);
}

void Variant::Write(const std::string& path, size_t first, size_t last) const {
  formats::GgufWriter w;
  for (const auto& [key, add] : keys_) Check(add(w));
  for (size_t i = first; i < std::min(last, tensors_.size()); ++i) {
    const VariantTensor& t = tensors_[i];
    Check(w.AddTensor(t.name, t.format, t.dims, t.bytes));
  }
  Check(w.Write(path));
}

std::string VariantDir::Write(const Variant& variant, const std::string& name) const {
  std::filesystem::remove(Path(name));
  variant.Write(Path(name));
  return Path(name);
}

Status LoadStatus(const std::string& path, const Adjust& adjust) {
  config::EngineConfig config;
  config.model_path = path;
  config.runtime.device = config::Device::kCpu;
  config.runtime.threads = 1;
  config.runtime.pin_threads = false;
  if (adjust) adjust(config);
  return engine::TextEngine::Create(config, &NullLogSink()).status();
}

std::vector<float> AllLogits(const std::string& path, const std::vector<TokenId>& ids, const Adjust& adjust) {
  return Take(OpenEngine(path, adjust)->Logits(ids, true, false)).values;
}

std::vector<TokenId> ArchIds(const std::string& name) {
  return ReadJson("tests/golden/arch/" + name + ".json")["ids"].get<std::vector<TokenId>>();
}

std::vector<std::string> ArchNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("tests/golden/arch"))) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Variant MakeMoe(const MoeShape& s) {
  Variant v;
  v.SetString("general.architecture", "qwen3moe");
  v.SetUint(".block_count", s.layers).SetUint(".context_length", s.context).SetUint(".embedding_length", s.hidden);
  v.SetUint(".attention.head_count", s.heads).SetUint(".attention.head_count_kv", s.kv_heads);
  v.SetUint(".attention.key_length", s.head_dim).SetUint(".attention.value_length", s.value_dim);
  v.SetFloat(".attention.layer_norm_rms_epsilon", 1e-6).SetUint(".vocab_size", s.vocab);
  v.SetUint(".expert_count", s.experts).SetUint(".expert_used_count", s.used);
  v.SetUint(".expert_feed_forward_length", s.inner);
  std::mt19937 random(s.seed);
  std::normal_distribution<float> normal;
  // Weights scaled by their input size keep every activation near 1; norms lie around 1.
  auto put = [&](const std::string& name, std::vector<uint64_t> dims, float centre = 0) {
    uint64_t elements = 1;
    for (const uint64_t d : dims) elements *= d;
    const float scale = dims.size() == 1 ? 0.1f : 1.0f / std::sqrt(static_cast<float>(dims[0]));
    std::vector<float> values(elements);
    for (float& x : values) x = centre + scale * normal(random);
    v.Put(name, std::move(dims), values);
  };
  put("token_embd.weight", {s.hidden, s.vocab});
  put("output_norm.weight", {s.hidden}, 1);
  put("output.weight", {s.hidden, s.vocab});
  for (uint32_t l = 0; l < s.layers; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    put(blk + "attn_norm.weight", {s.hidden}, 1);
    put(blk + "attn_q.weight", {s.hidden, s.heads * s.head_dim});
    put(blk + "attn_k.weight", {s.hidden, s.kv_heads * s.head_dim});
    put(blk + "attn_v.weight", {s.hidden, s.kv_heads * s.value_dim});
    put(blk + "attn_q_norm.weight", {s.head_dim}, 1);
    put(blk + "attn_k_norm.weight", {s.head_dim}, 1);
    put(blk + "attn_output.weight", {s.heads * s.value_dim, s.hidden});
    put(blk + "ffn_norm.weight", {s.hidden}, 1);
    put(blk + "ffn_gate_inp.weight", {s.hidden, s.experts});
    put(blk + "ffn_gate_exps.weight", {s.hidden, s.inner, s.experts});
    put(blk + "ffn_up_exps.weight", {s.hidden, s.inner, s.experts});
    put(blk + "ffn_down_exps.weight", {s.inner, s.hidden, s.experts});
  }
  return v;
}

std::vector<TokenId> MixedIds(size_t count, uint32_t vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
  return ids;
}

}  // namespace bellhop::test
