// Engines do not see each other, leave nothing behind, and repeat themselves.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "faults/variant.h"
#include "support/model_files.h"

namespace bellhop::test {
namespace {

engine::GenerateRequest Sampled(std::vector<TokenId> prompt, int32_t max_tokens) {
  engine::GenerateRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 1;
  request.sampling.seed = 11;
  request.ignore_eos = true;
  request.max_tokens = max_tokens;
  return request;
}

struct Process {
  size_t threads, files, mappings;
  uint64_t resident_bytes;
};

size_t Entries(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

Process Measure() {
  std::ifstream maps("/proc/self/maps"), statm("/proc/self/statm");
  size_t mappings = 0;
  for (std::string line; std::getline(maps, line);) mappings += line.find(".gguf") != std::string::npos;
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return {Entries("/proc/self/task"), Entries("/proc/self/fd"), mappings,
          resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))};
}

// The sanitizer keeps freed memory for a while; it reports leaks itself.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kResidentIsMeaningful = false;
#else
constexpr bool kResidentIsMeaningful = true;
#endif

TEST(IsolationTest, EnginesInOneProcessAlternate) {
  const std::string moe = RepoPath("tests/golden/arch/qwen3moe-odd.gguf");
  const std::string oss = RepoPath("tests/golden/arch/gpt-oss-f32.gguf");
  const std::vector<TokenId> ids = ArchIds("qwen3moe-odd");
  const auto alone_moe = OpenEngine(moe)->Generate(Sampled(ids, 24));
  const auto alone_oss = OpenEngine(oss)->Generate(Sampled(ids, 24));
  ASSERT_TRUE(alone_moe.ok() && alone_oss.ok());
  const auto a = OpenEngine(moe), b = OpenEngine(oss), c = OpenEngine(moe);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(a->Generate(Sampled(ids, 24))->ids, alone_moe->ids);
    EXPECT_EQ(b->Generate(Sampled(ids, 24))->ids, alone_oss->ids);
    EXPECT_EQ(c->Generate(Sampled(ids, 24))->ids, alone_moe->ids);
  }
}

TEST(IsolationTest, EnginesOnTheirOwnThreadsRunAtTheSameTime) {
  const std::string moe = RepoPath("tests/golden/arch/qwen3moe-odd.gguf");
  const std::vector<TokenId> ids = ArchIds("qwen3moe-odd");
  const auto alone = OpenEngine(moe)->Generate(Sampled(ids, 24));
  ASSERT_TRUE(alone.ok());
  std::vector<std::vector<TokenId>> results(3);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] { result = OpenEngine(moe)->Generate(Sampled(ids, 24))->ids; });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& result : results) EXPECT_EQ(result, alone->ids);
}

TEST(IsolationTest, WhatRanBeforeDoesNotShow) {
  const auto engine = OpenEngine(ShippedModel());
  const auto ids = ReadJson("tests/golden/tiny-moe/short.json")["ids"].get<std::vector<TokenId>>();
  const auto first = engine->Generate(Sampled(ids, 16));
  const auto logits = engine->Logits(ids, true, false);
  ASSERT_TRUE(first.ok() && logits.ok());
  // Other prompts, a shared prefix, a refused request, a measurement, a longer answer.
  std::vector<TokenId> longer = ids;
  longer.insert(longer.end(), first->ids.begin(), first->ids.end());
  ASSERT_TRUE(engine->Generate(Sampled(longer, 8)).ok());
  EXPECT_EQ(engine->Generate(Sampled(ids, 16))->ids, first->ids);
  EXPECT_FALSE(engine->Generate(Sampled({-5}, 8)).ok());
  ASSERT_TRUE(engine->Generate(Sampled({ids[0], ids[1], 7, 8, 9}, 30)).ok());
  ASSERT_TRUE(engine->Perplexity(longer, 16, {}).ok());
  EXPECT_EQ(engine->Generate(Sampled(ids, 16))->ids, first->ids);
  EXPECT_EQ(engine->Logits(ids, true, false)->values, logits->values);
}

TEST(IsolationTest, EnginesLeaveNothingBehind) {
  const VariantDir dir;
  Variant broken = Variant::Arch("gpt-oss-f32");
  broken.Remove("blk.2.ffn_down_exps.bias");
  const std::string broken_path = dir.Write(broken);
  const std::vector<TokenId> ids = ArchIds("gpt-oss-f32");
  auto live_and_die = [&] {
    const auto engine = OpenEngine(ShippedModel(), [](auto& c) { c.runtime.threads = 3; });
    ASSERT_TRUE(engine->Generate(Sampled({1, 2, 3}, 4)).ok());
    // Failures at every stage: while reading, binding, planning, and before the pool.
    EXPECT_FALSE(LoadStatus(broken_path).ok());
    EXPECT_FALSE(LoadStatus(dir.Path("missing.gguf")).ok());
    EXPECT_FALSE(LoadStatus(ShippedModel(), [](auto& c) { c.runtime.ram_bytes = 1000; }).ok());
    EXPECT_FALSE(LoadStatus(ShippedModel(), [](auto& c) { c.runtime.isa = "mmx"; }).ok());
    EXPECT_FALSE(LoadStatus(ShippedModel(), [](auto& c) { c.runtime.profile_path = "/missing"; }).ok());
  };
  for (int i = 0; i < 3; ++i) live_and_die();  // allocators and locales settle
  const Process before = Measure();
  for (int i = 0; i < 20; ++i) live_and_die();
  const Process after = Measure();
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.files, before.files);
  EXPECT_EQ(after.mappings, before.mappings);
  if (kResidentIsMeaningful) {
    EXPECT_LT(after.resident_bytes, before.resident_bytes + (uint64_t{4} << 20));
  }
}

TEST(IsolationTest, TheFileMayGoWhileTheEngineLives) {
  const VariantDir dir;
  const std::string path = dir.Write(Variant::Arch("qwen3moe-odd"));
  const std::vector<TokenId> ids = ArchIds("qwen3moe-odd");
  const auto engine = OpenEngine(path);
  std::filesystem::remove(path);  // the mapping keeps its bytes
  const auto result = engine->Generate(Sampled(ids, 8));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->ids, OpenEngine(RepoPath("tests/golden/arch/qwen3moe-odd.gguf"))->Generate(Sampled(ids, 8))->ids);
}

}  // namespace
}  // namespace bellhop::test
