// Contexts of several pages and attention spans: the same bits however the rows are cut into chunks and the work over
// threads, in every ISA, with and without a window.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "faults/variant.h"
#include "kernels/attention.h"
#include "sys/cpu_features.h"

namespace bellhop::test {
namespace {

// Beyond two span bounds, and no multiple of a page.
constexpr size_t kTokens = 2 * kernels::kAttentionSpan + 13;

// Alternating layers: one sees a window that is longer than a span, the other sees everything. Sinks, GQA.
Variant Windowed(uint64_t window) {
  Variant model = Variant::Arch("gpt-oss-f32");
  model.SetUint(".context_length", 1024).SetUint(".attention.sliding_window", window);
  return model;
}

std::vector<std::string> Isas() {
  std::vector<std::string> names = {"reference"};
  if (sys::DetectCpu().isa >= sys::Isa::kAvx2) names.push_back("avx2");
  if (sys::DetectCpu().isa >= sys::Isa::kAvx512) names.push_back("avx512");
  return names;
}

std::vector<float> Logits(const std::string& path, const std::vector<TokenId>& ids, const std::string& isa,
                          int32_t threads, uint32_t chunk, config::ActMode act) {
  return AllLogits(path, ids, [&](config::EngineConfig& c) {
    c.runtime.isa = isa;
    c.runtime.threads = threads;
    c.runtime.pin_threads = false;
    c.context.batch_rows = chunk;
    c.context.act = act;
  });
}

TEST(LongContextTest, ChunksThreadsAndIsasGiveTheSameBits) {
  const VariantDir dir;
  const std::vector<TokenId> ids = MixedIds(kTokens, 60);
  const std::string isa_of_cuts = Isas().back();
  for (const uint64_t window : {70u, 300u}) {
    const std::string path = dir.Write(Windowed(window));
    for (const config::ActMode act : {config::ActMode::kAuto, config::ActMode::kF32}) {
      SCOPED_TRACE("window " + std::to_string(window) + (act == config::ActMode::kF32 ? " exact" : ""));
      const std::vector<float> expected = Logits(path, ids, isa_of_cuts, 1, kTokens, act);
      ASSERT_FALSE(expected.empty());
      for (const auto& [threads, chunk] : {std::pair{5, 1u}, {2, 29u}, {1, 100u}, {5, 256u}}) {
        EXPECT_EQ(Logits(path, ids, isa_of_cuts, threads, chunk, act), expected) << threads << " threads, " << chunk;
      }
      for (const std::string& isa : Isas()) {
        // Slow, so each window and each numeric class once.
        if (isa == "reference" && (window == 70) != (act == config::ActMode::kAuto)) continue;
        EXPECT_EQ(Logits(path, ids, isa, 2, 100, act), expected) << isa;
      }
    }
  }
}

// The window must matter, or the test above would not see its edges.
TEST(LongContextTest, TheWindowChangesTheResult) {
  const VariantDir dir;
  const std::vector<TokenId> ids = MixedIds(kTokens, 60);
  const std::string narrow = dir.Write(Windowed(70), "narrow.gguf"), wide = dir.Write(Windowed(300), "wide.gguf");
  const std::string isa = Isas().back();
  const std::vector<float> a = Logits(narrow, ids, isa, 1, kTokens, config::ActMode::kAuto);
  const std::vector<float> b = Logits(wide, ids, isa, 1, kTokens, config::ActMode::kAuto);
  const size_t vocab = a.size() / kTokens;
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 70 * static_cast<int64_t>(vocab), b.begin()));
  EXPECT_FALSE(
      std::equal(a.begin() + 70 * static_cast<int64_t>(vocab), a.end(), b.begin() + 70 * static_cast<int64_t>(vocab)));
}

}  // namespace
}  // namespace bellhop::test
