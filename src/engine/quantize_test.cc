#include "engine/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/quantize_convert.h"
#include "engine/quantize_plan.h"
#include "engine/text_engine.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/gguf_writer.h"
#include "quant/codec.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::engine {
namespace {

using formats::GgufModel;
using formats::GgufWriter;
using quant::Traits;
using quant::WeightFormat;

std::string Repo(const std::string& path) { return std::string(BELLHOP_SOURCE_DIR) + "/" + path; }
// Hidden and inner size 256, so that every format fits; Q4_K and Q6_K.
const std::string kWide = Repo("tests/golden/arch/qwen3moe-q4k-q6k.gguf");
// Hidden 96, inner 40: rows that are whole blocks of few formats or of none; F32 and F16.
const std::string kOdd = Repo("tests/golden/arch/qwen3moe-odd.gguf");

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

const manifest::Tensor& TensorOf(const GgufModel& model, const std::string& name) {
  for (const manifest::Tensor& tensor : model.tensors()) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return model.tensors().front();
}

std::vector<float> Values(const manifest::Tensor& tensor) {
  std::vector<float> values(tensor.elements());
  quant::DecodeRow(tensor.format, tensor.data.data(), static_cast<int64_t>(values.size()), values.data());
  return values;
}

double RelativeL2(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
    norm += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<float> LogitsOf(const std::string& path) {
  config::EngineConfig config;
  config.model_path = path;
  config.runtime.threads = 1;
  config.context.context_tokens = 64;
  config.context.act = config::ActMode::kF32;
  auto engine = TextEngine::Create(config, &NullLogSink());
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return {};
  const std::vector<TokenId> ids = {5, 17, 200, 31, 8, 8, 99, 254};
  auto logits = (*engine)->Logits(ids, true, false);
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  return logits.ok() ? logits->values : std::vector<float>();
}

class QuantizeTest : public testing::Test {
 protected:
  std::string Out(const std::string& name) const { return dir_.path() + "/" + name; }

  Result<QuantizeReport> Run(const std::string& in, const std::string& name, const std::string& type,
                             const std::function<void(QuantizeOptions&)>& adjust = {}) const {
    QuantizeOptions options;
    options.type = type;
    options.threads = 1;
    if (adjust) adjust(options);
    return Quantize(in, Out(name), options);
  }

  // The wide model with F32 matrices.
  std::string WideF32() const {
    const std::string path = Out("wide-f32.gguf");
    if (std::filesystem::exists(path)) return path;
    const auto report = Run(kWide, "wide-f32.gguf", "f32");
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return path;
  }

  void ExpectRefused(const Result<QuantizeReport>& result, StatusCode code, std::string_view part) const {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status().ToString();
    EXPECT_TRUE(Contains(result.status().message(), part)) << result.status().ToString();
  }

  sys::TempDir dir_;
};

TEST_F(QuantizeTest, DecodingToF32IsExact) {
  const std::string path = WideF32();
  const auto before = GgufModel::Open(kWide), after = GgufModel::Open(path);
  ASSERT_TRUE(before.ok() && after.ok());
  ASSERT_EQ(before->tensors().size(), after->tensors().size());
  for (const manifest::Tensor& tensor : before->tensors()) {
    const manifest::Tensor& other = TensorOf(*after, tensor.name);
    EXPECT_EQ(other.format, WeightFormat::kF32) << tensor.name;
    EXPECT_EQ(other.dims, tensor.dims);
    EXPECT_EQ(other.n_dims, tensor.n_dims);
    EXPECT_EQ(Values(other), Values(tensor)) << tensor.name;
  }
  EXPECT_LT(RelativeL2(LogitsOf(path), LogitsOf(kWide)), 1e-5);  // kernels apply a block's scale at another point
}

// Relative L2 error that no matrix of the wide model exceeds: 1.25 times the largest that was measured.
const std::map<std::string, double> kErrorBound = {{"f32", 0},
                                                   {"f16", 2.7e-4},
                                                   {"bf16", 2.2e-3},
                                                   {"q8_0", 0.0055},
                                                   {"q6_k", 0.0135},
                                                   {"q5_0", 0.046},
                                                   {"q5_1", 0.042},
                                                   {"q5_k", 0.038},
                                                   {"q4_0", 0.092},
                                                   {"q4_1", 0.087},
                                                   {"q4_k", 0.077},
                                                   {"iq4_nl", 0.083},
                                                   {"iq4_xs", 0.083},
                                                   {"mxfp4", 0.146},
                                                   {"nvfp4", 0.128},
                                                   {"q3_k", 0.148},
                                                   {"q2_k", 0.275},
                                                   // One or two bits per weight: little more than signs survives.
                                                   {"tq1_0", 0.87},
                                                   {"tq2_0", 0.87},
                                                   {"q1_0", 0.76},
                                                   {"q2_0", 0.77}};

TEST_F(QuantizeTest, EveryEncodableFormatRoundTripsWithinItsErrorAndRuns) {
  const std::string source = WideF32();
  const auto before = GgufModel::Open(source);
  ASSERT_TRUE(before.ok());
  const std::vector<float> reference = LogitsOf(source);
  int formats = 0;
  for (const quant::FormatTraits& traits : quant::AllFormats()) {
    if (!traits.weights || traits.encoder == quant::EncoderKind::kNone) continue;
    std::string type(traits.name);
    for (char& c : type) c = static_cast<char>(std::tolower(c));
    SCOPED_TRACE(type);
    ASSERT_TRUE(kErrorBound.contains(type)) << "a new format needs a bound here";
    ++formats;
    const std::string name = "out-" + type + ".gguf";
    const auto report = Run(source, name, type);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->notes.size(), 0u);
    EXPECT_EQ(report->in_bytes, std::filesystem::file_size(source));
    EXPECT_EQ(report->out_bytes, std::filesystem::file_size(Out(name)));
    EXPECT_EQ(report->tensors, before->tensors().size());
    const auto after = GgufModel::Open(Out(name));
    ASSERT_TRUE(after.ok()) << after.status().ToString();
    uint64_t converted = 0;
    for (const manifest::Tensor& tensor : before->tensors()) {
      const manifest::Tensor& other = TensorOf(*after, tensor.name);
      EXPECT_EQ(other.dims, tensor.dims);
      if (RoleOf(tensor) == TensorRole::kKept) {
        EXPECT_EQ(other.format, tensor.format) << tensor.name;
        EXPECT_EQ(Values(other), Values(tensor)) << tensor.name;
        continue;
      }
      EXPECT_EQ(other.format, traits.format) << tensor.name;
      EXPECT_LE(RelativeL2(Values(other), Values(tensor)), kErrorBound.at(type)) << tensor.name;
      converted += other.format != tensor.format ? 1 : 0;
    }
    EXPECT_EQ(report->converted, converted);

    const std::vector<float> logits = LogitsOf(Out(name));
    ASSERT_EQ(logits.size(), reference.size());
    EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }));
    if (type == "q8_0") {
      EXPECT_LT(RelativeL2(logits, reference), 0.02);
    }
    if (type == "f32") {
      EXPECT_EQ(logits, reference);
    }
  }
  EXPECT_GE(formats, 20);
}

TEST_F(QuantizeTest, TheThreadCountDoesNotShowInTheOutput) {
  const std::string source = WideF32();
  for (const std::string type : {"q4_k", "mxfp4", "q8_0", "f16"}) {
    ASSERT_TRUE(Run(source, "one", type, [](auto& o) { o.overwrite = true; }).ok());
    for (const int32_t threads : {2, 5}) {
      const auto report = Run(source, "more", type, [&](auto& o) { o.threads = threads, o.overwrite = true; });
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_TRUE(ReadAll(Out("one")) == ReadAll(Out("more"))) << type << ", " << threads << " threads";
    }
  }
}

// Long rows are cut into pieces and big tensors into chunks; bounds must not show.
TEST_F(QuantizeTest, PiecesAndChunksJoinSeamlessly) {
  for (const auto& [cols, rows] : std::vector<std::pair<uint64_t, uint64_t>>{{65536 * 2 + 256, 40}, {32, 140000}}) {
    std::vector<float> values(cols * rows);
    uint32_t state = 7;
    for (float& v : values)
      v = static_cast<float>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) * 1e-9f;
    manifest::Tensor tensor;
    tensor.name = "t.weight";
    tensor.n_dims = 2;
    tensor.dims = {cols, rows, 1, 1};
    tensor.bytes = values.size() * 4;
    tensor.data = {reinterpret_cast<const std::byte*>(values.data()), tensor.bytes};
    auto pool = sys::WorkerPool::Create({.cpus = {0, 0, 0}, .pin = false});
    ASSERT_TRUE(pool.ok());
    std::vector<std::byte> got;
    size_t largest = 0;
    const auto emit = [&](HostSpan<const std::byte> piece) {
      got.insert(got.end(), piece.begin(), piece.end());
      largest = std::max(largest, piece.size());
      return Status();
    };
    ASSERT_TRUE(ConvertTensor(tensor, WeightFormat::kQ8_0, **pool, nullptr, emit).ok());
    std::vector<std::byte> want(values.size() / 32 * 34);
    ASSERT_TRUE(
        quant::EncodeRow(WeightFormat::kQ8_0, values.data(), static_cast<int64_t>(values.size()), nullptr, want.data())
            .ok());
    EXPECT_TRUE(got == want);
    EXPECT_LT(largest, want.size());  // really in several pieces
    EXPECT_LE(largest, size_t{16} << 20);
  }
}

TEST_F(QuantizeTest, RolesDecideTheType) {
  const auto report = Run(WideF32(), "mixed", "q4_0", [](auto& o) {
    o.dense_type = "Q8_0";
    o.output_type = "bf16";
    o.tensor_types = {{"^blk\\.0\\.attn_[qk]\\.", "q5_1"}, {"attn_k", "f16"}, {"ffn_down_exps", "q6_k"}};
  });
  // "attn_k" comes too late to decide anything.
  ExpectRefused(report, StatusCode::kInvalidArgument, "pattern 'attn_k'");
  const auto good = Run(WideF32(), "mixed", "q4_0", [](auto& o) {
    o.dense_type = "Q8_0";
    o.output_type = "bf16";
    o.tensor_types = {{"^blk\\.0\\.attn_k\\.", "q5_1"}, {"attn_[qk]", "f16"}, {"ffn_down_exps", "q6_k"}};
  });
  ASSERT_TRUE(good.ok()) << good.status().ToString();
  const auto model = GgufModel::Open(Out("mixed"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(TensorOf(*model, "blk.0.attn_k.weight").format, WeightFormat::kQ5_1);
  EXPECT_EQ(TensorOf(*model, "blk.0.attn_q.weight").format, WeightFormat::kF16);
  EXPECT_EQ(TensorOf(*model, "blk.0.attn_v.weight").format, WeightFormat::kQ8_0);
  EXPECT_EQ(TensorOf(*model, "blk.0.ffn_gate_exps.weight").format, WeightFormat::kQ4_0);
  EXPECT_EQ(TensorOf(*model, "blk.0.ffn_down_exps.weight").format, WeightFormat::kQ6K);
  EXPECT_EQ(TensorOf(*model, "token_embd.weight").format, WeightFormat::kBF16);
  EXPECT_EQ(TensorOf(*model, "blk.0.ffn_gate_inp.weight").format, WeightFormat::kF32);
  EXPECT_EQ(TensorOf(*model, "blk.0.attn_q_norm.weight").format, WeightFormat::kF32);
}

manifest::Tensor Named(const std::string& name, std::vector<uint64_t> dims, WeightFormat format = WeightFormat::kF32) {
  manifest::Tensor tensor;
  tensor.name = name;
  tensor.format = format;
  tensor.n_dims = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims.begin());
  return tensor;
}

TEST(QuantizePlanTest, RolesComeFromNamesAndShapes) {
  for (const char* name : {"blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_up_exps.weight", "blk.10.ffn_down.7.weight"}) {
    EXPECT_EQ(RoleOf(Named(name, {64, 64, 2})), TensorRole::kExpert) << name;
  }
  for (const char* name :
       {"blk.1.ffn_up.weight", "blk.1.ffn_up_shexp.weight", "blk.0.attn_output.weight", "gear.weight"}) {
    EXPECT_EQ(RoleOf(Named(name, {64, 64})), TensorRole::kDense) << name;
  }
  EXPECT_EQ(RoleOf(Named("output.weight", {64, 64})), TensorRole::kOutput);
  EXPECT_EQ(RoleOf(Named("token_embd.weight", {64, 64})), TensorRole::kOutput);
  for (const char* name : {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp_shexp.weight", "blk.0.attn_norm.weight",
                           "blk.0.ssm_conv1d.weight", "blk.0.ffn_up_exps.scale", "blk.0.ffn_up_exps.bias",
                           "blk.0.exp_probs_b.bias", "blk.0.attn_sinks.weight", "output_norm.weight"}) {
    EXPECT_EQ(RoleOf(Named(name, {64, 64})), TensorRole::kKept) << name;
  }
  EXPECT_EQ(RoleOf(Named("blk.0.attn_q.weight", {64})), TensorRole::kKept);
  EXPECT_EQ(RoleOf(Named("blk.0.attn_q.weight", {64, 1})), TensorRole::kKept);
  EXPECT_EQ(RoleOf(Named("table.weight", {64, 64}, WeightFormat::kI32)), TensorRole::kKept);
}

TEST(QuantizePlanTest, FallbacksByRowLength) {
  using enum WeightFormat;
  EXPECT_EQ(FormatForRow(kQ4K, 512, kF32), kQ4K);
  EXPECT_EQ(FormatForRow(kQ4K, 96, kF32), kQ5_0);
  EXPECT_EQ(FormatForRow(kQ5K, 96, kF32), kQ5_1);
  EXPECT_EQ(FormatForRow(kQ6K, 96, kF32), kQ8_0);
  for (const WeightFormat format : {kQ2K, kQ3K, kIQ4XS, kTQ1_0, kTQ2_0, kNVFP4, kQ1_0, kQ2_0}) {
    EXPECT_EQ(FormatForRow(format, 96, kF32), kIQ4NL) << Traits(format).name;
  }
  for (const WeightFormat format : {kQ4K, kQ6K, kQ2K, kQ4_0, kQ8_0, kMXFP4}) {
    EXPECT_EQ(FormatForRow(format, 40, kF32), kF16) << Traits(format).name;
    EXPECT_EQ(FormatForRow(format, 40, kBF16), kBF16) << Traits(format).name;
  }
  EXPECT_EQ(FormatForRow(kF32, 7, kF16), kF32);
}

TEST_F(QuantizeTest, OddRowsFallBackAndAreNamed) {
  const auto report = Run(kOdd, "odd", "q4_k");
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const auto model = GgufModel::Open(Out("odd"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(TensorOf(*model, "blk.1.ffn_up_exps.weight").format, WeightFormat::kQ5_0);
  EXPECT_EQ(TensorOf(*model, "blk.1.ffn_down_exps.weight").format, WeightFormat::kF16);
  const auto noted = [&](const std::string& tensor, const std::string& format) {
    return std::any_of(report->notes.begin(), report->notes.end(), [&](const std::string& note) {
      return Contains(note, "'" + tensor + "'") && Contains(note, "written as " + format);
    });
  };
  EXPECT_TRUE(noted("blk.1.ffn_up_exps.weight", "Q5_0"));
  EXPECT_TRUE(noted("blk.1.ffn_down_exps.weight", "F16"));
  EXPECT_FALSE(noted("blk.1.ffn_gate_inp.weight", "Q5_0"));
  const std::vector<float> logits = LogitsOf(Out("odd"));
  EXPECT_LT(RelativeL2(logits, LogitsOf(kOdd)), 0.2);
}

TEST_F(QuantizeTest, MetadataIsKeptAndTheFormatKeysAreNew) {
  ASSERT_TRUE(Run(WideF32(), "q8", "q8_0").ok());
  const auto before = GgufModel::Open(kWide), after = GgufModel::Open(Out("q8"));
  ASSERT_TRUE(before.ok() && after.ok());
  for (const auto& entry : before->metadata().entries()) {
    if (entry.key == "general.file_type" || entry.key == "general.quantization_version") continue;
    const manifest::MetaValue* value = after->metadata().Find(entry.key);
    ASSERT_NE(value, nullptr) << entry.key;
    EXPECT_EQ(value->type, entry.value.type) << entry.key;
    EXPECT_EQ(ToString(*value, 1u << 20), ToString(entry.value, 1u << 20)) << entry.key;
  }
  EXPECT_EQ(*after->metadata().GetUint("general.file_type"), 7u);
  EXPECT_EQ(*after->metadata().GetUint("general.quantization_version"), 2u);
  // An F32 file has no block layout to version; NVFP4 has no file type of its own.
  const auto plain = GgufModel::Open(WideF32());
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain->metadata().GetUint("general.file_type"), 0u);
  EXPECT_FALSE(plain->metadata().Has("general.quantization_version"));
  ASSERT_TRUE(Run(WideF32(), "nv", "nvfp4").ok());
  const auto nvfp4 = GgufModel::Open(Out("nv"));
  ASSERT_TRUE(nvfp4.ok());
  EXPECT_FALSE(nvfp4->metadata().Has("general.file_type"));
}

TEST_F(QuantizeTest, SameTypeIsCopiedByteForByte) {
  const auto report = Run(kWide, "same", "q4_k", [](auto& o) {
    o.output_type = "q6_k";
    o.tensor_types = {{"ffn_down_exps", "q6_k"}};
  });
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->converted, 0u);
  const auto before = GgufModel::Open(kWide), after = GgufModel::Open(Out("same"));
  ASSERT_TRUE(before.ok() && after.ok());
  for (const manifest::Tensor& tensor : before->tensors()) {
    const manifest::Tensor& other = TensorOf(*after, tensor.name);
    ASSERT_EQ(other.bytes, tensor.bytes);
    EXPECT_EQ(std::memcmp(other.data.data(), tensor.data.data(), tensor.bytes), 0) << tensor.name;
  }
}

TEST_F(QuantizeTest, RequantizingNeedsPermission) {
  ExpectRefused(Run(kWide, "again", "q8_0"), StatusCode::kUnsupported, "--allow-requantize");
  EXPECT_FALSE(std::filesystem::exists(Out("again")));
  const auto allowed = Run(kWide, "again", "q8_0", [](auto& o) { o.allow_requantize = true; });
  ASSERT_TRUE(allowed.ok()) << allowed.status().ToString();
  EXPECT_LT(RelativeL2(LogitsOf(Out("again")), LogitsOf(kWide)), 0.03);
}

TEST_F(QuantizeTest, BadTypesAndPatternsAreRefused) {
  const std::string source = WideF32();
  ExpectRefused(Run(source, "x", "q4_k_m"), StatusCode::kInvalidArgument, "use 'q4_k'");
  ExpectRefused(Run(source, "x", "q9"), StatusCode::kInvalidArgument, "Q4_0, Q4_1");
  ExpectRefused(Run(source, "x", ""), StatusCode::kInvalidArgument, "--type");
  ExpectRefused(Run(source, "x", "iq2_xs"), StatusCode::kUnsupported, "no IQ2_XS encoder");
  ExpectRefused(Run(source, "x", "q8_k"), StatusCode::kUnsupported, "choose one of");
  ExpectRefused(Run(source, "x", "i32"), StatusCode::kUnsupported, "choose one of");
  ExpectRefused(Run(source, "x", "q4_0", [](auto& o) { o.dense_type = "zz"; }), StatusCode::kInvalidArgument,
                "--dense-type 'zz'");
  const auto pattern = [&](const std::string& text) {
    return Run(source, "x", "q4_0", [&](auto& o) { o.tensor_types = {{text, "q8_0"}}; });
  };
  ExpectRefused(pattern("no_such_tensor"), StatusCode::kInvalidArgument, "no_such_tensor");
  ExpectRefused(pattern("attn_norm"), StatusCode::kInvalidArgument, "keep their format");
  ExpectRefused(pattern("(unclosed"), StatusCode::kInvalidArgument, "(unclosed");
  ExpectRefused(Run(source, "x", "q4_0", [](auto& o) { o.threads = -1; }), StatusCode::kInvalidArgument, "threads");
  EXPECT_FALSE(std::filesystem::exists(Out("x")));
}

TEST_F(QuantizeTest, OutputsAreNotOverwrittenUnasked) {
  const std::string source = WideF32();
  const std::string before = ReadAll(source);
  const auto overwrite = [](QuantizeOptions& o) { o.overwrite = true; };
  ExpectRefused(Run(source, "wide-f32.gguf", "q4_0", overwrite), StatusCode::kInvalidArgument, "same file");
  std::filesystem::create_hard_link(source, Out("link"));
  ExpectRefused(Run(source, "link", "q4_0", overwrite), StatusCode::kInvalidArgument, "same file");
  EXPECT_TRUE(ReadAll(source) == before);

  dir_.Write("old", "something precious");
  ExpectRefused(Run(source, "old", "q4_0"), StatusCode::kInvalidArgument, "--overwrite");
  EXPECT_EQ(ReadAll(Out("old")), "something precious");
  EXPECT_TRUE(Run(source, "old", "q4_0", overwrite).ok());
  EXPECT_TRUE(GgufModel::Open(Out("old")).ok());

  std::filesystem::create_directory(Out("folder"));
  ExpectRefused(Run(source, "folder", "q4_0", overwrite), StatusCode::kInvalidArgument, "not a regular file");
  ExpectRefused(Run(source, "none/x", "q4_0"), StatusCode::kNotFound, "none/x");
  ExpectRefused(Run(Out("missing"), "x", "q4_0"), StatusCode::kNotFound, "missing");
}

TEST_F(QuantizeTest, ProgressReachesItsTotalAndCancelLeavesNothing) {
  uint64_t last = 0, total = 0;
  size_t tensors = 0;
  std::string tensor;
  const auto report = Run(WideF32(), "p", "q4_0", [&](auto& o) {
    o.progress = [&](uint64_t done, uint64_t all, const std::string& name) {
      EXPECT_GT(done, last);
      last = done;
      total = all;
      tensors += name != tensor ? 1 : 0;
      tensor = name;
    };
  });
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(last, total);
  EXPECT_EQ(tensors, report->tensors);
  EXPECT_LT(total, report->out_bytes);

  std::atomic<bool> cancel = false;
  const auto cancelled = Run(WideF32(), "c", "q4_0", [&](auto& o) {
    o.cancel = &cancel;
    o.progress = [&](uint64_t, uint64_t, const std::string&) { cancel = true; };
  });
  ExpectRefused(cancelled, StatusCode::kCancelled, "cancelled");
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_NE(entry.path().filename().string()[0], 'c') << entry.path();
  }
}

// A file of one matrix [64, 3] with `value` in its second row.
std::string OneMatrix(const std::string& path, float value) {
  std::vector<float> values(64 * 3, 0.5f);
  values[70] = value;
  GgufWriter writer;
  EXPECT_TRUE(writer.AddString("general.architecture", "clockwork").ok());
  EXPECT_TRUE(writer
                  .AddTensor("gear.weight", WeightFormat::kF32, {64, 3},
                             {reinterpret_cast<const std::byte*>(values.data()), values.size() * 4})
                  .ok());
  EXPECT_TRUE(writer.Write(path).ok());
  return path;
}

TEST_F(QuantizeTest, ValuesThatTheFormatCannotHoldAreNamed) {
  const std::string nan = OneMatrix(Out("nan"), std::numeric_limits<float>::quiet_NaN());
  const auto result = Run(nan, "x", "q8_0");
  ExpectRefused(result, StatusCode::kInvalidArgument, "gear.weight");
  EXPECT_TRUE(Contains(result.status().message(), "row 1")) << result.status().ToString();
  const std::string big = OneMatrix(Out("big"), 70000.0f);
  ExpectRefused(Run(big, "x", "f16"), StatusCode::kInvalidArgument, "row 1: value 70000");
  EXPECT_FALSE(std::filesystem::exists(Out("x")));
  EXPECT_TRUE(Run(big, "x", "bf16").ok());  // and an unknown architecture is no obstacle
}

}  // namespace
}  // namespace bellhop::engine
