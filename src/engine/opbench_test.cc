#include "engine/opbench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/opbench_formats.h"
#include "engine/opbench_layer.h"
#include "quant/codec.h"
#include "sys/aligned_buffer.h"
#include "sys/thread_affinity.h"

namespace bellhop::engine {
namespace {

using moe::NumericClass;

std::unique_ptr<sys::WorkerPool> MakePool(int workers) {
  sys::WorkerPool::Options options;
  options.cpus.assign(static_cast<size_t>(workers), sys::ReadThreadAffinity()->front());
  options.pin = false;
  return std::move(sys::WorkerPool::Create(options)).value();
}

OpbenchFormat Format(const std::string& name) { return ParseOpbenchFormats({name}).value().front(); }

// A layer with its memory and pool.
struct Bench {
  explicit Bench(const OpbenchLayer::Shape& shape) : pool(MakePool(2)) {
    const auto stride = OpbenchLayer::ExpertStride(shape);
    EXPECT_TRUE(stride.ok()) << stride.status().ToString();
    memory =
        std::move(sys::AlignedBuffer::Create(*stride * static_cast<uint64_t>(shape.experts), MemoryTag::kExpertWeights))
            .value();
    auto created = OpbenchLayer::Create(shape, memory.bytes(), pool.get());
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    layer = std::move(created).value();
  }
  std::unique_ptr<sys::WorkerPool> pool;
  sys::AlignedBuffer memory;
  std::unique_ptr<OpbenchLayer> layer;
};

std::vector<double> Product(const quant::QuantView& w, const std::vector<double>& x) {
  std::vector<double> y(static_cast<size_t>(w.rows));
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t r = 0; r < w.rows; ++r) {
    quant::DecodeRow(w, r, row.data());
    for (size_t c = 0; c < row.size(); ++c) y[static_cast<size_t>(r)] += static_cast<double>(row[c]) * x[c];
  }
  return y;
}

// The prepared call in double precision.
std::vector<double> Direct(const OpbenchLayer& layer) {
  const moe::Routes& routes = layer.routes();
  const int64_t hidden = layer.x().cols;
  std::vector<double> sums(static_cast<size_t>(routes.rows * hidden));
  for (int32_t m = 0; m < routes.rows; ++m) {
    const std::vector<double> x(layer.x().Row(m), layer.x().Row(m) + hidden);
    for (int32_t k = 0; k < routes.used; ++k) {
      const int32_t route = m * routes.used + k;
      const store::ExpertView& expert = layer.expert(routes.ids[route]);
      std::vector<double> h = Product(expert.gate, x);
      const std::vector<double> up = Product(expert.up, x);
      for (size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
      const std::vector<double> y = Product(expert.down, h);
      for (size_t c = 0; c < y.size(); ++c) {
        sums[static_cast<size_t>(m * hidden) + c] += static_cast<double>(routes.weights[route]) * y[c];
      }
    }
  }
  return sums;
}

double RelativeError(const std::vector<double>& expected, const MatView<const float>& y) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(y.data[i]) - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  EXPECT_GT(norm, 0);
  EXPECT_TRUE(std::isfinite(norm));
  return std::sqrt(error / norm);
}

TEST(OpbenchLayerTest, ACallComputesTheLayer) {
  for (const char* name : {"q4_0", "q4_k", "q8_0", "iq3_xxs", "mxfp4", "f16", "int4_b32", "int4_b32_zp", "int4sm80_b64",
                           "int3_b64", "int8_b32", "mxfp4_b32", "nvfp4_b16", "mxfp4kmajor_b32"}) {
    Bench bench({.format = Format(name),
                 .hidden = 256,
                 .inter = 256,
                 .experts = 8,
                 .active = 4,
                 .topk = 2,
                 .max_rows = 5,
                 .seed = 3});
    OpbenchLayer& layer = *bench.layer;
    ASSERT_TRUE(layer.UseKernels(sys::DetectCpu()).ok()) << name;
    for (const int32_t rows : {1, 5}) {
      layer.Prepare(1, rows, 4);
      layer.Run(NumericClass::kDecode);
      EXPECT_LT(RelativeError(Direct(layer), layer.y()), 1e-5) << name << " " << rows;
      layer.Run(NumericClass::kPrompt);
      EXPECT_LT(RelativeError(Direct(layer), layer.y()), 1e-2) << name << " " << rows;
    }
  }
}

TEST(OpbenchLayerTest, CallsGoThroughAllWeightsBeforeTheyRepeat) {
  // More experts than one layer of a model has, so that calls change layers too.
  constexpr int32_t kExperts = 144, kActive = 3;
  Bench bench({.format = Format("q8_0"),
               .hidden = 32,
               .inter = 32,
               .experts = kExperts,
               .active = kActive,
               .topk = kActive,
               .max_rows = 1,
               .seed = 1});
  OpbenchLayer& layer = *bench.layer;
  ASSERT_TRUE(layer.UseKernels(sys::DetectCpu()).ok());
  std::set<const std::byte*> seen;
  std::vector<float> first;
  for (int64_t call = 0; call < kExperts / kActive; ++call) {
    layer.Prepare(call, 1, kActive);
    for (int32_t k = 0; k < kActive; ++k) {
      EXPECT_TRUE(seen.insert(layer.expert(layer.routes().ids[k]).gate.planes[0].data).second) << call;
    }
    layer.Run(NumericClass::kDecode);
    if (call == 0) first.assign(layer.y().data, layer.y().data + 32);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kExperts));
  EXPECT_NE(first, std::vector<float>(layer.y().data, layer.y().data + 32));
  layer.Prepare(kExperts / kActive, 1, kActive);
  layer.Run(NumericClass::kDecode);
  EXPECT_EQ(first, std::vector<float>(layer.y().data, layer.y().data + 32));
}

TEST(OpbenchLayerTest, RowsShareOutTheActiveExperts) {
  Bench bench({.format = Format("q8_0"),
               .hidden = 32,
               .inter = 32,
               .experts = 8,
               .active = 8,
               .topk = 3,
               .max_rows = 4,
               .seed = 1});
  OpbenchLayer& layer = *bench.layer;
  for (const int32_t rows : {1, 2, 4}) {
    layer.Prepare(0, rows, 8);
    const moe::Routes& routes = layer.routes();
    std::set<int32_t> distinct;
    for (int32_t m = 0; m < rows; ++m) {
      EXPECT_EQ(std::set<int32_t>(routes.ids + m * 3, routes.ids + m * 3 + 3).size(), 3u);
      distinct.insert(routes.ids + m * 3, routes.ids + m * 3 + 3);
    }
    EXPECT_EQ(layer.DistinctExperts(rows), static_cast<int32_t>(distinct.size()));
  }
}

config::OpbenchOptions TinyOptions() {
  config::OpbenchOptions options;
  options.hidden = 256;
  options.inter = 256;
  options.active = 4;
  options.formats = {"q4_0"};
  options.isas = {"auto"};
  options.rows = {1, 33};
  options.threads = {1};
  options.rotate_bytes = 1 << 20;
  options.repetitions = 2;
  return options;
}

TEST(OpbenchTest, ReportsEveryCaseWithWhatItRead) {
  config::OpbenchOptions options = TinyOptions();
  options.formats = {"q4_0", "int4_b32"};
  options.isas = {"reference", "auto"};
  int64_t calls = 0, last_done = 0;
  const auto report = RunOpbench(options, {.progress =
                                               [&](int64_t done, int64_t total, const std::string& what) {
                                                 ++calls;
                                                 EXPECT_LE(last_done, done);
                                                 EXPECT_LT(done, total);
                                                 EXPECT_FALSE(what.empty());
                                                 last_done = done;
                                               },
                                           .cancel = nullptr});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const bool has_vectors = sys::DetectCpu().isa != sys::Isa::kReference;
  EXPECT_EQ(report->cases.size(), has_vectors ? 8u : 4u);
  EXPECT_GE(calls, static_cast<int64_t>(report->cases.size()));
  for (const OpbenchCase& c : report->cases) {
    EXPECT_EQ(c.threads, 1);
    EXPECT_EQ(c.prompt, c.rows == 33);
    EXPECT_FALSE(c.kernel.empty());
    EXPECT_EQ(c.distinct_experts, 4);
    EXPECT_EQ(c.experts % 4, 0);
    // 4.5 bits per weight in both formats; three matrices of an expert.
    EXPECT_EQ(c.weight_bytes, uint64_t{4} * 3 * 256 * 256 * 18 / 32) << c.format;
    EXPECT_DOUBLE_EQ(c.flops, 2.0 * 3 * 256 * 256 * 4 * c.rows);
    EXPECT_GE(c.experts * c.weight_bytes / 4, options.rotate_bytes);
    if (c.isa != "reference") {
      EXPECT_EQ(c.us.size(), 2u);
    }
    for (const double us : c.us) EXPECT_GT(us, 0);
    EXPECT_FALSE(c.scalar_us.empty());
  }
  ASSERT_EQ(report->bandwidth.size(), 1u);
  EXPECT_GE(report->bandwidth[0].gbps.size(), 3u);  // per format and bundle, and at the end
  for (const double gbps : report->bandwidth[0].gbps) EXPECT_GT(gbps, 0);
  EXPECT_FALSE(report->cancelled);
}

TEST(OpbenchTest, EveryBundleOnce) {
  config::OpbenchOptions options = TinyOptions();
  options.isas = {"auto", "all"};
  const auto report = RunOpbench(options, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::set<std::pair<std::string, int32_t>> cases;
  for (const OpbenchCase& c : report->cases) EXPECT_TRUE(cases.insert({c.isa, c.rows}).second) << c.isa << c.rows;
  for (const sys::Isa isa : sys::kAllIsas) {
    const bool here = isa <= sys::DetectCpu().isa;
    EXPECT_EQ(cases.contains({std::string(sys::IsaName(isa)), 33}), here);
    EXPECT_EQ(cases.contains({std::string(sys::IsaName(isa)), 1}), here && isa != sys::Isa::kAmx);
  }
}

TEST(OpbenchTest, CancellingKeepsCompleteCases) {
  config::OpbenchOptions options = TinyOptions();
  options.rows = {1, 2, 3, 4};
  std::atomic<bool> cancel{false};
  const OpbenchControl control{.progress = [&](int64_t done, int64_t, const std::string&) { cancel = done == 4 + 2; },
                               .cancel = &cancel};
  const auto report = RunOpbench(options, control);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->cancelled);
  EXPECT_EQ(report->cases.size(), 2u);
  std::atomic<bool> at_once{true};
  EXPECT_EQ(RunOpbench(options, {.progress = {}, .cancel = &at_once}).status().code(), StatusCode::kCancelled);
}

TEST(OpbenchTest, ErrorsNameTheRemedy) {
  const auto error = [](const config::OpbenchOptions& options) {
    const auto report = RunOpbench(options, {});
    return report.ok() ? "no error" : std::string(report.status().message());
  };
  config::OpbenchOptions options = TinyOptions();
  options.inter = 250;
  EXPECT_NE(error(options).find("--inter 250 with q4_0"), std::string::npos) << error(options);
  options = TinyOptions();
  options.formats = {"q4_7"};
  EXPECT_NE(error(options).find("--format 'q4_7': expects all, gguf, onnx, "), std::string::npos) << error(options);
  options = TinyOptions();
  options.rotate_bytes = uint64_t{1} << 50;
  EXPECT_NE(error(options).find("lower"), std::string::npos) << error(options);
  EXPECT_NE(error(options).find("--rotate"), std::string::npos) << error(options);
  options = TinyOptions();
  options.experts = 1 << 30;
  EXPECT_NE(error(options).find("--experts"), std::string::npos) << error(options);
  options = TinyOptions();
  options.device = config::Device::kCuda;
  EXPECT_NE(error(options).find("--device cpu"), std::string::npos) << error(options);
}

TEST(OpbenchTest, FormatsOfAListGetWholeBlocks) {
  config::OpbenchOptions options = TinyOptions();
  options.inter = 64;
  options.formats = {"gguf"};
  options.rows = {1};
  const auto report = RunOpbench(options, {});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::set<std::string> formats;
  for (const OpbenchCase& c : report->cases) {
    formats.insert(c.format);
    EXPECT_EQ(c.hidden, 256);
    EXPECT_EQ(c.inter, c.format == "q8_0" ? 64 : c.format == "q4_k" ? 256 : c.inter);
    EXPECT_DOUBLE_EQ(c.flops, 2.0 * 3 * 256 * static_cast<double>(c.inter) * 4);
  }
  EXPECT_TRUE(formats.contains("q8_0") && formats.contains("q4_k"));
  const auto note = std::find_if(report->notes.begin(), report->notes.end(), [](const std::string& n) {
    return n.starts_with("hidden 256 and inter 256, which are whole blocks, for ") &&
           n.find("q4_k") != std::string::npos;
  });
  EXPECT_NE(note, report->notes.end());
}

TEST(OpbenchFormatsTest, NamesAndLists) {
  const auto names = [](const std::vector<std::string>& given) {
    std::vector<std::string> out;
    const std::vector<OpbenchFormat> formats = ParseOpbenchFormats(given).value();
    for (const OpbenchFormat& format : formats) out.push_back(format.name);
    return out;
  };
  EXPECT_EQ(names({"Q4_K", "INT4_B64_ZP", "q4_k"}), (std::vector<std::string>{"q4_k", "int4_b64_zp"}));
  EXPECT_EQ(names({"onnx"}).front(), "int4_b32");
  const std::vector<std::string> all = names({"all"});
  EXPECT_EQ(all.size(), names({"gguf"}).size() + names({"onnx"}).size());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  for (const std::string& name : all) EXPECT_EQ(names({name}), std::vector<std::string>{name});
  for (const quant::FormatTraits& traits : quant::AllFormats()) {
    const bool listed = std::any_of(all.begin(), all.end(), [&](const std::string& name) {
      return ParseOpbenchFormats({name}).value().front().format == traits.format;
    });
    EXPECT_EQ(listed, traits.weights) << traits.name;
  }
  for (const char* bad : {"", "int4", "int4_b", "int4_b31", "int4_b32x", "mxfp4_b32_zp", "i32", "int4_sm80", "q8_1"}) {
    EXPECT_FALSE(ParseOpbenchFormats({bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace bellhop::engine
