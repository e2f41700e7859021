// Expert banks beyond 2^31 elements and 4 GiB: offsets are 64 bits from the file to the products. The file is sparse,
// so the test costs neither disk nor memory beyond the experts that it touches.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "faults/oracle.h"
#include "faults/variant.h"
#include "formats/gguf/manifest_builder.h"
#include "quant/codec.h"
#include "store/expert_store.h"
#include "store/tensor_view.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

constexpr uint64_t kHidden = 1024, kInner = 1024, kExperts = 2100, kVocab = 32, kHeadDim = 8;
static_assert(kHidden * kInner * kExperts > (uint64_t{1} << 31));
static_assert(kHidden * kInner * kExperts * 2 > (uint64_t{1} << 32));

// Writes a GGUF file tensor by tensor without touching what stays zero.
class SparseFile {
 public:
  explicit SparseFile(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {}
  ~SparseFile() { close(fd_); }

  void Uint(const std::string& key, uint32_t value) {
    Text(key);
    Number<uint32_t>(4);
    Number(value);
    ++keys_;
  }
  void Float(const std::string& key, float value) {
    Text(key);
    Number<uint32_t>(6);
    Number(value);
    ++keys_;
  }
  void String(const std::string& key, const std::string& value) {
    Text(key);
    Number<uint32_t>(8);
    Text(value);
    ++keys_;
  }
  void Tensor(const std::string& name, quant::WeightFormat format, const std::vector<uint64_t>& dims) {
    TensorInfo info{name, format, dims, data_bytes_};
    uint64_t bytes = *quant::RowBytes(format, dims[0]);
    for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];
    data_bytes_ += (bytes + 31) / 32 * 32;
    tensors_.push_back(info);
  }
  // Ends the header; afterwards rows can be filled.
  bool Finish() {
    std::string header = "GGUF";
    std::swap(header, body_);
    Number<uint32_t>(3);
    Number<uint64_t>(tensors_.size());
    Number<uint64_t>(keys_);
    body_ += header;
    for (const TensorInfo& t : tensors_) {
      Text(t.name);
      Number(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t d : t.dims) Number(d);
      Number(quant::Traits(t.format).gguf_id);
      Number(t.offset);
    }
    body_.resize((body_.size() + 31) / 32 * 32);
    data_start_ = body_.size();
    return pwrite(fd_, body_.data(), body_.size(), 0) == static_cast<ssize_t>(body_.size()) &&
           ftruncate(fd_, static_cast<off_t>(data_start_ + data_bytes_)) == 0;
  }
  // Random rows [first, first + rows) of a tensor.
  bool Fill(const std::string& name, uint64_t first, uint64_t rows, float centre, float scale) {
    for (const TensorInfo& t : tensors_) {
      if (t.name != name) continue;
      const uint64_t row_bytes = *quant::RowBytes(t.format, t.dims[0]);
      std::vector<float> values(t.dims[0]);
      std::vector<std::byte> bytes(row_bytes);
      for (uint64_t r = first; r < first + rows; ++r) {
        for (float& v : values) v = centre + scale * normal_(random_);
        const auto count = static_cast<int64_t>(values.size());
        if (!quant::EncodeRow(t.format, values.data(), count, nullptr, bytes.data()).ok()) return false;
        const auto at = static_cast<off_t>(data_start_ + t.offset + r * row_bytes);
        if (pwrite(fd_, bytes.data(), row_bytes, at) != static_cast<ssize_t>(row_bytes)) return false;
      }
      return true;
    }
    return false;
  }
  bool FillAll(const std::string& name, float centre, float scale) {
    for (const TensorInfo& t : tensors_) {
      if (t.name == name) return Fill(name, 0, t.dims.size() > 1 ? t.dims[1] : 1, centre, scale);
    }
    return false;
  }

 private:
  struct TensorInfo {
    std::string name;
    quant::WeightFormat format;
    std::vector<uint64_t> dims;
    uint64_t offset;
  };
  template <typename T>
  void Number(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    body_.append(bytes, sizeof(T));
  }
  void Text(const std::string& text) {
    Number<uint64_t>(text.size());
    body_ += text;
  }

  int fd_;
  std::string body_;
  uint64_t keys_ = 0, data_bytes_ = 0, data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
};

// One layer whose router prefers the last expert and then the first one; all experts between are holes.
class LargeBankTest : public testing::Test {
 protected:
  void SetUp() override {
    // On disk rather than in shared memory: a hole costs nothing there.
    std::string pattern = std::filesystem::temp_directory_path().string() + "/bellhop-large-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/large.gguf";
    ASSERT_NO_FATAL_FAILURE(WriteModel());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void WriteModel() {
    using quant::WeightFormat;
    SparseFile file(path_);
    file.String("general.architecture", "qwen3moe");
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, uint64_t>>{{"block_count", 1},
                                                       {"context_length", 64},
                                                       {"embedding_length", kHidden},
                                                       {"attention.head_count", 2},
                                                       {"attention.head_count_kv", 1},
                                                       {"attention.key_length", kHeadDim},
                                                       {"attention.value_length", kHeadDim},
                                                       {"vocab_size", kVocab},
                                                       {"expert_count", kExperts},
                                                       {"expert_used_count", 2},
                                                       {"expert_feed_forward_length", kInner}}) {
      file.Uint("qwen3moe." + key, static_cast<uint32_t>(value));
    }
    file.Float("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    const std::vector<std::pair<std::string, std::vector<uint64_t>>> dense = {
        {"token_embd.weight", {kHidden, kVocab}},
        {"output_norm.weight", {kHidden}},
        {"blk.0.attn_norm.weight", {kHidden}},
        {"blk.0.attn_q.weight", {kHidden, 2 * kHeadDim}},
        {"blk.0.attn_k.weight", {kHidden, kHeadDim}},
        {"blk.0.attn_v.weight", {kHidden, kHeadDim}},
        {"blk.0.attn_q_norm.weight", {kHeadDim}},
        {"blk.0.attn_k_norm.weight", {kHeadDim}},
        {"blk.0.attn_output.weight", {2 * kHeadDim, kHidden}},
        {"blk.0.ffn_norm.weight", {kHidden}}};
    for (const auto& [name, dims] : dense) file.Tensor(name, WeightFormat::kF32, dims);
    file.Tensor("blk.0.ffn_gate_inp.weight", WeightFormat::kF32, {kHidden, kExperts});
    file.Tensor("blk.0.ffn_gate_inp.bias", WeightFormat::kF32, {kExperts});
    // More than 4 GiB; and more than 2^31 elements in less.
    file.Tensor("blk.0.ffn_gate_exps.weight", WeightFormat::kF16, {kHidden, kInner, kExperts});
    file.Tensor("blk.0.ffn_up_exps.weight", WeightFormat::kQ4_0, {kHidden, kInner, kExperts});
    file.Tensor("blk.0.ffn_down_exps.weight", WeightFormat::kF16, {kInner, kHidden, kExperts});
    ASSERT_TRUE(file.Finish());
    for (const auto& [name, dims] : dense) {
      const bool vector = dims.size() == 1;
      ASSERT_TRUE(file.FillAll(name, vector ? 1.0f : 0.0f, vector ? 0.1f : 1 / std::sqrt(static_cast<float>(dims[0]))));
    }
    for (const uint64_t expert : {uint64_t{0}, kExperts - 1}) {
      // The router has rows for these two alone; their scores are near 0 and 1 apart from the others' by the bias.
      ASSERT_TRUE(file.Fill("blk.0.ffn_gate_inp.weight", expert, 1, 0, 0.03f));
      for (const char* role : {"gate", "up", "down"}) {
        const std::string name = std::string("blk.0.ffn_") + role + "_exps.weight";
        ASSERT_TRUE(file.Fill(name, expert * kHidden, kHidden, 0, 0.03f));
      }
    }
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_));
    ASSERT_TRUE(WriteBias());
  }

  // Beside the two chosen experts, every expert's score is -20.
  bool WriteBias() const {
    auto model = formats::GgufModel::Open(path_);
    if (!model.ok()) return false;
    for (const manifest::Tensor& t : model->tensors()) {
      if (t.name != "blk.0.ffn_gate_inp.bias") continue;
      std::vector<float> bias(kExperts, -20.0f);
      bias.front() = bias.back() = 0;
      const int fd = open(path_.c_str(), O_WRONLY);
      const ssize_t written = pwrite(fd, bias.data(), t.bytes, static_cast<off_t>(t.offset));
      close(fd);
      return written == static_cast<ssize_t>(t.bytes);
    }
    return false;
  }

  std::string folder_, path_;
};

TEST_F(LargeBankTest, TheLastExpertIsReadFromItsOwnPlace) {
  const auto model = formats::GgufModel::Open(path_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_GT(model->total_bytes(), uint64_t{5} << 30);
  const auto manifest = formats::BuildManifest(*model);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  const auto store = store::ExpertStore::Create(*manifest);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_GT((*store)->TotalBytes(), uint64_t{5} << 30);

  const store::ExpertView& last = (*store)->Host(LayerId(0), ExpertId(kExperts - 1));
  const manifest::Tensor& gate = *manifest->FindTensor("blk.0.ffn_gate_exps.weight");
  const manifest::Tensor& up = *manifest->FindTensor("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(last.gate.Row(0) - gate.data.data(), static_cast<ptrdiff_t>((kExperts - 1) * kInner * kHidden * 2));
  EXPECT_EQ(last.gate.Row(kInner) - gate.data.data(), static_cast<ptrdiff_t>(gate.bytes));
  EXPECT_EQ(last.up.Row(kInner) - up.data.data(), static_cast<ptrdiff_t>(up.bytes));
  std::vector<float> row(kHidden);
  quant::DecodeRow(gate.format, last.gate.Row(kInner - 1), kHidden, row.data());
  EXPECT_NE(row, std::vector<float>(kHidden, 0.0f));
  quant::DecodeRow(gate.format, (*store)->Host(LayerId(0), ExpertId(kExperts - 2)).gate.Row(kInner - 1), kHidden,
                   row.data());
  EXPECT_EQ(row, std::vector<float>(kHidden, 0.0f));

  const auto view = store::MatrixView(gate, static_cast<int64_t>(gate.rows()) - 1, 1);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->Row(0), last.gate.Row(kInner - 1));
  EXPECT_EQ(store::MatrixView(gate, static_cast<int64_t>(gate.rows()), 1).status().code(), StatusCode::kCorrupt);
}

TEST_F(LargeBankTest, LogitsMatchTheOracle) {
  const std::vector<TokenId> ids = MixedIds(5, kVocab);
  const OracleResult oracle = RunOracle(path_, ids);
  for (const int32_t expert : oracle.chosen[0]) EXPECT_TRUE(expert == 0 || expert == kExperts - 1) << expert;
  const auto engine = OpenEngine(path_, [](auto& c) {
    Exact(c);
    c.runtime.prefault = config::PrefaultMode::kOff;  // the file is mostly holes
  });
  const auto result = engine->Logits(ids, true, true);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->routes[0].ids, oracle.chosen[0]);
  EXPECT_LT(OracleDistance(result->values, oracle), 1e-5);
  EXPECT_LT(OracleDistance(AllLogits(path_, ids), oracle), 0.05);
}

}  // namespace
}  // namespace bellhop::test
