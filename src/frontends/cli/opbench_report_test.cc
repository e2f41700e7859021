#include "frontends/cli/opbench_report.h"

#include <gtest/gtest.h>

namespace bellhop::cli {
namespace {

using engine::GpuOpbenchCase;
using engine::OpbenchMode;

// 10 experts of 2 MB in 10 us: 2000 GB/s.
GpuOpbenchCase OneRow() {
  return {.format = "int4_b32",
          .hidden = 2560,
          .inter = 640,
          .layers = 4,
          .experts = 512,
          .topk = 10,
          .rows = 1,
          .expert_bytes = 2'000'000,
          .layer_us = {20, 19, 21},
          .kernel_us = {10, 10, 40},
          .router_us = {4, 5, 6},
          .hot_experts = 10,
          .hits = 10};
}

engine::GpuOpbenchReport Report() {
  engine::GpuOpbenchReport report;
  report.hbm_gbps = {3900, 4100};
  report.cases = {OneRow(), OneRow()};
  GpuOpbenchCase& misses = report.cases[1];
  misses.mode = OpbenchMode::kOffCpu;
  misses.hit_rate = 0.6;
  misses.hot_experts = misses.hits = 6;
  misses.cold_experts = misses.misses = 4;
  return report;
}

TEST(OpbenchReportTest, JsonHasTheKeysOfResultFilesAndTheFiguresThatFollow) {
  const nlohmann::ordered_json object = GpuCaseJson(OneRow(), 4000);
  for (const char* key : {"format", "hidden", "inter", "experts", "topk", "mode", "hit_rate", "rows", "layer_ms",
                          "layer_ms_p90", "kernel_ms", "distinct_experts", "weight_bytes", "gbps", "tflops"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object["mode"], "resident");
  EXPECT_DOUBLE_EQ(object["layer_ms"], 0.020);
  EXPECT_DOUBLE_EQ(object["kernel_ms"], 0.010);
  EXPECT_DOUBLE_EQ(object["router_ms"], 0.005);
  EXPECT_DOUBLE_EQ(object["weight_bytes"], 2e7);
  EXPECT_DOUBLE_EQ(object["gbps"], 2000);
  EXPECT_NEAR(object["tflops"], 2.0 * 3 * 2560 * 640 * 10 / 10e-6 / 1e12, 1e-6);
  EXPECT_DOUBLE_EQ(object["share"], 0.5);
  EXPECT_DOUBLE_EQ(object["seed_ms"], 0.038);
  EXPECT_DOUBLE_EQ(object["ratio_to_seed"], 0.038 / 0.020);
}

TEST(OpbenchReportTest, TheBoundIsThatOfTheProductsWhereTheyTakeLonger) {
  GpuOpbenchCase many = OneRow();
  many.rows = 8192;
  many.prompt = true;
  many.hot_experts = 512;
  many.hits = 81920;
  many.kernel_us = {2000};
  const nlohmann::ordered_json object = GpuCaseJson(many, 4000);
  EXPECT_DOUBLE_EQ(object["share"], object["tflops"].get<double>() / engine::kBf16Tflops);
  EXPECT_GT(object["share"], object["gbps"].get<double>() / 4000);
  EXPECT_EQ(object["class"], "prompt");
}

TEST(OpbenchReportTest, ResultFileAndTablesHaveEveryCase) {
  engine::GpuOpbenchReport report = Report();
  config::OpbenchOptions options;
  options.arguments = {"opbench", "--device", "cuda"};
  const nlohmann::ordered_json file = GpuResultFile(options, report);
  EXPECT_EQ(file["name"], "opbench");
  EXPECT_EQ(file["command"], "bellhop opbench --device cuda");
  EXPECT_TRUE(file.contains("machine"));
  EXPECT_TRUE(file["complete"]);
  EXPECT_DOUBLE_EQ(file["ceilings"]["hbm_gbps"], 4000);
  EXPECT_EQ(file["ceilings"]["bf16_tflops_measured"], false);
  ASSERT_EQ(file["cases"].size(), 2u);
  EXPECT_TRUE(file["cases"][1]["share"].is_null());
  EXPECT_DOUBLE_EQ(file["cases"][1]["hit_rate"], 0.6);
  EXPECT_DOUBLE_EQ(file["cases"][1]["seed_ms"], 0.109);

  const std::string text = GpuMarkdown(report);
  EXPECT_NE(text.find("| format "), std::string::npos) << text;
  EXPECT_NE(text.find("| off_cpu "), std::string::npos) << text;
  EXPECT_NE(text.find("0.0200"), std::string::npos) << text;
  EXPECT_NE(text.find("50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("4000 GB/s, 3900 to 4100 in 2 measurements"), std::string::npos) << text;
  EXPECT_NE(text.find("4 layers of hidden 2560 x inter 640: 512 experts, 10 of a row"), std::string::npos) << text;

  const std::string csv =
      CsvOfCases({GpuCaseJson(report.cases[0], 4000), GpuCaseJson(report.cases[1], 4000)}, {"topk"}).Csv();
  EXPECT_EQ(csv.rfind("format,hidden,inter,experts,layers,mode,", 0), 0u) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);

  report.failure = CudaError("lost");
  EXPECT_FALSE(GpuResultFile(options, report)["complete"]);
}

TEST(OpbenchReportTest, ARunWithoutCasesHasAHead) {
  EXPECT_NE(GpuMarkdown({}).find("| format "), std::string::npos);
  EXPECT_EQ(CsvOfCases({}).Csv(), "");
}

}  // namespace
}  // namespace bellhop::cli
