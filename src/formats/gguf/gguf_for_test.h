// Test data and small models for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/gguf/manifest_builder.h"
#include "quant/format.h"

namespace bellhop::formats {

inline std::string DataPath(const std::string& name) {
  return std::string(BELLHOP_SOURCE_DIR) + "/tests/data/gguf/" + name;
}

inline std::vector<std::byte> ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// One line that names `name` and says where: an offset, or a quoted key or tensor.
inline void ExpectClearMessage(const Status& status, std::string_view name) {
  const std::string message(status.message());
  EXPECT_TRUE(status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kUnsupported) << status.ToString();
  EXPECT_TRUE(Contains(message, name)) << message;
  EXPECT_TRUE(Contains(message, "offset ") || Contains(message, "key '") || Contains(message, "tensor '")) << message;
  EXPECT_FALSE(Contains(message, "\n")) << message;
  EXPECT_LT(message.size(), 500u) << message;
}

// Reads every byte that a model lets one see; a sanitizer objects if one is outside the file.
inline unsigned TouchAllBytes(const GgufModel& model) {
  unsigned sum = 0;
  for (const manifest::Tensor& tensor : model.tensors()) {
    for (const std::byte byte : tensor.data) sum += std::to_integer<unsigned>(byte);
  }
  for (const GgufFile& file : model.files()) {
    for (const auto& entry : file.metadata.entries()) sum += static_cast<unsigned>(ToString(entry.value, 1000).size());
  }
  return sum;
}

// A complete two-layer MoE model with zero weights. Tests take keys and tensors away, replace them or add to them.
class TinyMoe {
 public:
  using Change = std::function<Status(GgufWriter&)>;
  static constexpr uint64_t kHidden = 32, kInner = 64, kExperts = 4, kVocab = 6, kHeadLength = 8;
  static constexpr int kLayers = 2;

  explicit TinyMoe(std::string architecture = "qwen3moe") : architecture_(std::move(architecture)) {}

  std::string Key(const std::string& suffix) const { return architecture_ + "." + suffix; }
  TinyMoe& Without(const std::string& key_or_tensor) {
    without_.insert(key_or_tensor);
    return *this;
  }
  // `change` runs instead of the key's or tensor's own line.
  TinyMoe& Replace(const std::string& key_or_tensor, Change change) {
    replaced_[key_or_tensor] = std::move(change);
    return *this;
  }
  TinyMoe& Add(Change change) {
    added_.push_back(std::move(change));
    return *this;
  }
  TinyMoe& SetUint(const std::string& suffix, uint64_t value) {
    const std::string key = Key(suffix);
    return Set(key, [key, value](GgufWriter& w) { return w.AddUint(key, value, manifest::MetaType::kU64); });
  }
  TinyMoe& SetFloat(const std::string& suffix, double value) {
    const std::string key = Key(suffix);
    return Set(key, [key, value](GgufWriter& w) { return w.AddFloat(key, value); });
  }
  TinyMoe& SetString(const std::string& suffix, const std::string& value) {
    const std::string key = Key(suffix);
    return Set(key, [key, value](GgufWriter& w) { return w.AddString(key, value); });
  }
  TinyMoe& SetInts(const std::string& suffix, const std::vector<int32_t>& values) {
    const std::string key = Key(suffix);
    return Set(key, [key, values](GgufWriter& w) { return w.AddInts(key, values); });
  }
  TinyMoe& AddTensor(const std::string& name, const std::vector<uint64_t>& dims,
                     quant::WeightFormat format = quant::WeightFormat::kF32) {
    return Add([=](GgufWriter& w) { return PutTensor(w, name, dims, format); });
  }

  Status Fill(GgufWriter& w) const {
    for (const auto& [key, line] : Lines()) {
      if (without_.count(key) > 0) continue;
      const auto it = replaced_.find(key);
      BELLHOP_TRY(it == replaced_.end() ? line(w) : it->second(w));
    }
    for (const Change& change : added_) BELLHOP_TRY(change(w));
    return {};
  }

  std::vector<std::byte> Bytes() const {
    GgufWriter w;
    const Status filled = Fill(w);
    EXPECT_TRUE(filled.ok()) << filled.ToString();
    Result<std::vector<std::byte>> bytes = w.ToBytes();
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    return bytes.ok() ? *bytes : std::vector<std::byte>();
  }

  static Status PutTensor(GgufWriter& w, const std::string& name, const std::vector<uint64_t>& dims,
                          quant::WeightFormat format = quant::WeightFormat::kF32) {
    return w.AddTensor(name, format, dims, [format, dims](const GgufWriter::Emit& emit) -> Status {
      BELLHOP_TRY_ASSIGN(uint64_t bytes, quant::RowBytes(format, dims[0]));
      for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];
      const std::vector<std::byte> zeros(bytes);
      return emit(zeros);
    });
  }

 private:
  // Replaces the key's line when the model has one, else adds it.
  TinyMoe& Set(const std::string& key, Change change) {
    for (const auto& [name, line] : Lines()) {
      if (name == key) return Replace(key, std::move(change));
    }
    return Add(std::move(change));
  }

  std::vector<std::pair<std::string, Change>> Lines() const {
    std::vector<std::pair<std::string, Change>> out;
    const auto text = [&](const std::string& key, const std::string& value) {
      out.emplace_back(key, [=](GgufWriter& w) { return w.AddString(key, value); });
    };
    const auto number = [&](const std::string& key, uint64_t value) {
      out.emplace_back(key, [=](GgufWriter& w) { return w.AddUint(key, value); });
    };
    const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& dims) {
      out.emplace_back(name, [=](GgufWriter& w) { return PutTensor(w, name, dims); });
    };
    text("general.architecture", architecture_);
    text("general.name", "tiny");
    number(Key("block_count"), kLayers);
    number(Key("context_length"), 64);
    number(Key("embedding_length"), kHidden);
    number(Key("attention.head_count"), 4);
    number(Key("attention.head_count_kv"), 2);
    number(Key("attention.key_length"), kHeadLength);
    number(Key("attention.value_length"), kHeadLength);
    const std::string epsilon = Key("attention.layer_norm_rms_epsilon");
    out.emplace_back(epsilon, [epsilon](GgufWriter& w) { return w.AddFloat(epsilon, 1e-6); });
    number(Key("expert_count"), kExperts);
    number(Key("expert_used_count"), 2);
    number(Key("expert_feed_forward_length"), kInner);
    text("tokenizer.ggml.model", "gpt2");
    text("tokenizer.ggml.pre", "qwen2");
    out.emplace_back("tokenizer.ggml.tokens", [](GgufWriter& w) {
      return w.AddStrings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "</s>", "\xC4\xA0"});
    });
    out.emplace_back("tokenizer.ggml.token_type", [](GgufWriter& w) {
      return w.AddInts("tokenizer.ggml.token_type", {1, 1, 1, 3, 3, 1});
    });
    out.emplace_back("tokenizer.ggml.merges",
                     [](GgufWriter& w) { return w.AddStrings("tokenizer.ggml.merges", {"a b"}); });
    number("tokenizer.ggml.eos_token_id", 4);
    tensor("token_embd.weight", {kHidden, kVocab});
    for (int i = 0; i < kLayers; ++i) {
      const std::string blk = "blk." + std::to_string(i) + ".";
      tensor(blk + "attn_norm.weight", {kHidden});
      tensor(blk + "ffn_gate_inp.weight", {kHidden, kExperts});
      tensor(blk + "ffn_gate_exps.weight", {kHidden, kInner, kExperts});
      tensor(blk + "ffn_up_exps.weight", {kHidden, kInner, kExperts});
      tensor(blk + "ffn_down_exps.weight", {kInner, kHidden, kExperts});
    }
    return out;
  }

  std::string architecture_;
  std::set<std::string> without_;
  std::map<std::string, Change> replaced_;
  std::vector<Change> added_;
};

}  // namespace bellhop::formats
