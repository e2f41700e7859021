#include "model/step_model.h"

#include <gtest/gtest.h>

#include "cuda/device_info.h"
#include "model/gpu_model.h"

namespace bellhop::model {
namespace {

TEST(StepModelTest, ImpossibleStepsAreRefused) {
  ModelSpec spec;
  spec.vocab = 10;
  const TransformerOptions options{.max_rows = 2, .context_tokens = 65, .sequences = 3};
  const std::vector<StepRow> rows = {{nullptr, 4, 9, true}, {nullptr, 5, 10, true}, {nullptr, 6, -1, true}};
  EXPECT_TRUE(CheckStep(spec, options, {rows.data(), 1}).ok());
  const Status beyond = CheckStep(spec, options, {rows.data(), 2});
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(beyond.message().find("token 10 at position 5"), std::string_view::npos);
  EXPECT_EQ(CheckStep(spec, options, {&rows[2], 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckStep(spec, options, rows).code(), StatusCode::kInternal);
  EXPECT_EQ(KvPageCount(options), 6);
}

TEST(StepModelTest, FaultsNameTheFirstBadRow) {
  const std::vector<StepRow> rows = {{nullptr, 4, 0, true}, {nullptr, 5, 0, true}, {nullptr, 6, 0, true}};
  std::vector<uint8_t> bad = {0, 0, 0};
  EXPECT_TRUE(CheckFaults(rows, bad).ok());
  bad[2] = kBadRouter;
  EXPECT_NE(CheckFaults(rows, bad).message().find("router's scores for the token at position 6"),
            std::string_view::npos);
  bad[1] = kBadLogits;
  EXPECT_NE(CheckFaults(rows, bad).message().find("logits at position 5"), std::string_view::npos);
}

TEST(GpuModelTest, BuildsWithoutCudaSayThatTheyHaveNone) {
  if (cuda::BuiltWithCuda()) return;
  const manifest::Manifest manifest;
  const auto store = store::ExpertStore::Create(manifest);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_EQ(PlanGpuModel(manifest, {}, **store, {}).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(CreateGpuModel(manifest, {}, **store, {}, nullptr, {}, {}, nullptr).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace bellhop::model
