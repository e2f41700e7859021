// After warm-up a decode step (forward and sampling) allocates nothing: this binary counts every operator new.
#include <gtest/gtest.h>

#include "base/counting_new_for_test.h"
#include "decode/sampler.h"
#include "formats/gguf/gguf_model.h"
#include "formats/gguf/manifest_builder.h"
#include "model/arch/registry.h"
#include "model/transformer.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

TEST(SteadyStateTest, TheCounterCounts) {
  const int64_t before = AllocationCount();
  // volatile: the compiler may not leave the pair out.
  int* volatile p = new int(1);
  delete p;
  EXPECT_EQ(AllocationCount() - before, 1);
}

TEST(SteadyStateTest, ADecodeStepAllocatesNothing) {
  auto files = formats::GgufModel::Open(ShippedModel());
  ASSERT_TRUE(files.ok());
  auto manifest = formats::BuildManifest(*files);
  ASSERT_TRUE(manifest.ok());
  auto spec = model::BuildSpec(*manifest);
  ASSERT_TRUE(spec.ok());
  auto store = store::ExpertStore::Create(*manifest);
  ASSERT_TRUE(store.ok());
  const auto placement = plan::Placement::AllCold({32, 32, 32, 32});
  auto pool = sys::WorkerPool::Create({.cpus = {0, 0}, .pin = false});
  ASSERT_TRUE(pool.ok());
  std::vector<std::string> notes;
  auto model = model::Transformer::Create(*manifest, *spec, **store, placement, pool->get(), sys::DetectCpu(),
                                          {.max_rows = 8, .context_tokens = 512}, &notes);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto sequence = (*model)->NewSequence();
  decode::SamplingParams params;
  params.repeat_penalty = 1.1f;
  auto sampler = decode::Sampler::Create(params, 4096);
  ASSERT_TRUE(sampler.ok());
  std::vector<float> logits(4096);

  TokenId token = 1;
  auto step = [&]() -> bool {
    if (!sequence->Reserve(1).ok()) return false;
    const model::StepRow row{sequence.get(), sequence->length(), token, true};
    if (!(*model)->Forward(moe::NumericClass::kDecode, {&row, 1}, {logits.data(), 1, 4096, 4096}).ok()) return false;
    sequence->Accept(1);
    auto drawn = sampler->Sample({logits.data(), logits.size()}, 0, static_cast<uint64_t>(sequence->length()));
    if (!drawn.ok()) return false;
    token = *drawn;
    sampler->Accept(token);
    return true;
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(step());
  const int64_t before = AllocationCount();
  bool ok = true;
  for (int i = 0; i < 200; ++i) ok = ok && step();  // crosses page bounds
  const int64_t allocations = AllocationCount() - before;
  EXPECT_TRUE(ok);
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace bellhop::test
