// Counts every allocation of this program: refusing a small file must not take much memory, whatever it announces.
#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/gguf/gguf_for_test.h"

namespace {
size_t g_current = 0;
size_t g_peak = 0;
}  // namespace

void* operator new(size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) throw std::bad_alloc();
  g_current += malloc_usable_size(block);
  g_peak = std::max(g_peak, g_current);
  return block;
}
void operator delete(void* block) noexcept {
  if (block != nullptr) g_current -= malloc_usable_size(block);
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace bellhop::formats {
namespace {

// The peak over the state before.
template <typename Fn>
size_t PeakBytes(Fn&& fn) {
  const size_t before = g_current;
  g_peak = g_current;
  fn();
  return g_peak - before;
}

TEST(GgufMemory, TheCounterCounts) {
  EXPECT_GE(PeakBytes([] { std::vector<char> block(100000); }), 100000u);
  EXPECT_LT(PeakBytes([] { std::vector<char> block(100); }), 1000u);
}

TEST(GgufMemory, RefusalsTakeLittleMemory) {
  std::ifstream in(DataPath("manifest.json"));
  const nlohmann::json listing = nlohmann::json::parse(in);
  int refused = 0;
  for (const nlohmann::json& entry : listing["files"]) {
    const std::string name = entry["file"];
    const std::vector<std::byte> bytes = ReadBytes(DataPath(name));
    bool ok = false;
    const size_t peak = PeakBytes([&] { ok = ParseGguf(bytes, name).ok(); });
    if (entry["verdict"] == "reject") {
      EXPECT_FALSE(ok) << name;
      ++refused;
    }
    // At most some start-up capacity and a few bytes for each byte of the file.
    EXPECT_LE(peak, 512 * 1024 + 10 * bytes.size()) << name;
  }
  EXPECT_EQ(refused, 69);
}

// expert_count says 65536 and each layer has one tiny per-expert tensor: no table of that size before the check.
TEST(GgufMemory, AnnouncedExpertsAllocateNothing) {
  TinyMoe moe;
  moe.SetUint("expert_count", 65536);
  moe.SetUint("block_count", 4096);
  for (int layer = 0; layer < TinyMoe::kLayers; ++layer) {
    for (const char* role : {"gate", "up", "down"}) {
      moe.Without("blk." + std::to_string(layer) + ".ffn_" + role + "_exps.weight");
    }
  }
  for (int layer = 0; layer < 4096; ++layer) {
    moe.AddTensor("blk." + std::to_string(layer) + ".ffn_gate.0.weight", {32});
  }
  const std::vector<std::byte> bytes = moe.Bytes();
  bool ok = true;
  const size_t peak = PeakBytes([&] {
    const Result<GgufModel> model = GgufModel::FromMemory(bytes, "m");
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    ok = BuildManifest(*model).ok();
  });
  EXPECT_FALSE(ok);
  EXPECT_LE(peak, 16u << 20);
}

}  // namespace
}  // namespace bellhop::formats
