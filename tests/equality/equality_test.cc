// The same bits for every thread count, ISA and chunk size, on the shipped model and on every architecture's.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/model_files.h"

namespace bellhop::test {
namespace {

std::vector<TokenId> PromptIds(const std::string& name) {
  return ReadJson("tests/golden/tiny-moe/" + name + ".json")["ids"].get<std::vector<TokenId>>();
}

std::vector<float> AllLogits(const std::string& path, const std::vector<TokenId>& ids,
                             const std::function<void(config::EngineConfig&)>& adjust) {
  auto engine = OpenEngine(path, adjust);
  auto result = engine->Logits(ids, true, false);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? std::move(result->values) : std::vector<float>();
}

std::vector<std::string> IsasOfThisMachine() {
  std::vector<std::string> names = {"reference"};
  for (const std::string name : {"avx2", "avx512", "amx"}) {
    config::EngineConfig config;
    config.model_path = ShippedModel();
    config.runtime.isa = name;
    config.runtime.pin_threads = false;
    const auto engine = engine::TextEngine::Create(config, &NullLogSink());
    if (engine.ok()) {
      names.push_back(name);
    } else {
      EXPECT_EQ(engine.status().code(), StatusCode::kUnsupported) << engine.status().ToString();
    }
  }
  return names;
}

TEST(EqualityTest, LogitsAreTheSameBitsForEveryIsaAndThreadCount) {
  // More rows than a panel and than a pass of the decode kernels. The reference kernels are slow, more so under
  // sanitizers: they give the expected values on one thread, and the decode class again on four; their prompt class
  // runs on two threads below, for every architecture.
  std::vector<TokenId> ids = PromptIds("code");
  ids.resize(17);
  for (const config::ActMode act : {config::ActMode::kF32, config::ActMode::kAuto}) {
    const auto run = [&](const std::string& isa, int32_t threads) {
      return AllLogits(ShippedModel(), ids, [&](auto& c) {
        c.context.act = act;
        c.runtime.threads = threads;
        c.runtime.isa = isa;
      });
    };
    const std::vector<float> expected = run("reference", 1);
    ASSERT_FALSE(expected.empty());
    for (const std::string& isa : IsasOfThisMachine()) {
      const bool reference = isa == "reference";
      if (reference && act == config::ActMode::kAuto) continue;
      for (const int32_t threads : reference ? std::vector<int32_t>{4} : std::vector<int32_t>{1, 2, 4}) {
        EXPECT_EQ(run(isa, threads), expected) << isa << " with " << threads << " threads";
      }
    }
  }
}

TEST(EqualityTest, ChunkBoundsDoNotChangeAPrompt) {
  const std::vector<TokenId> ids = PromptIds("long");
  const std::vector<float> expected = AllLogits(ShippedModel(), ids, {});
  for (const uint32_t rows : {1u, 7u, 64u, 505u}) {
    EXPECT_EQ(AllLogits(ShippedModel(), ids, [&](auto& c) { c.context.batch_rows = rows; }), expected) << rows;
  }
}

TEST(EqualityTest, WhereExpertsLieDoesNotChangeATokenOrALogit) {
  const std::vector<TokenId> ids = PromptIds("short");
  const auto generate = [&](config::HugePagesMode huge_pages, config::PrefaultMode prefault) {
    auto engine = OpenEngine(ShippedModel(), [&](auto& c) {
      c.runtime.huge_pages = huge_pages;
      c.runtime.prefault = prefault;
    });
    engine::GenerateRequest request;
    request.prompt = ids;
    request.sampling.greedy = true;
    request.ignore_eos = true;
    request.max_tokens = 40;
    auto generated = engine->Generate(request);
    EXPECT_TRUE(generated.ok()) << generated.status().ToString();
    return generated.ok() ? generated->ids : std::vector<TokenId>();
  };
  const auto expected = generate(config::HugePagesMode::kOff, config::PrefaultMode::kOff);
  ASSERT_EQ(expected.size(), 40u);
  EXPECT_EQ(generate(config::HugePagesMode::kAuto, config::PrefaultMode::kAuto), expected);
  EXPECT_EQ(generate(config::HugePagesMode::kOff, config::PrefaultMode::kRequired), expected);

  size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("tests/golden/arch"))) {
    if (entry.path().extension() != ".json") continue;
    const nlohmann::json golden = ReadJson("tests/golden/arch/" + entry.path().filename().string());
    const auto path = RepoPath("tests/golden/arch/" + golden["gguf"].get<std::string>());
    const auto tokens = golden["ids"].get<std::vector<TokenId>>();
    const auto run = [&](config::HugePagesMode huge_pages) {
      return AllLogits(path, tokens, [&](auto& c) { c.runtime.huge_pages = huge_pages; });
    };
    EXPECT_EQ(run(config::HugePagesMode::kAuto), run(config::HugePagesMode::kOff)) << path;
    ++models;
  }
  EXPECT_GE(models, 10u);
}

TEST(EqualityTest, DecodeEqualsAnExactModePrompt) {
  // Decoded rows are the decode class; a prompt under --act f32 is too, so both give the same bits.
  const std::vector<TokenId> ids = PromptIds("short");
  auto engine = OpenEngine(ShippedModel(), [](auto& c) { c.context.act = config::ActMode::kF32; });
  engine::GenerateRequest request;
  request.prompt = ids;
  request.sampling.greedy = true;
  request.ignore_eos = true;
  request.max_tokens = 40;
  const auto generated = engine->Generate(request);
  ASSERT_TRUE(generated.ok());
  std::vector<TokenId> whole = ids;
  whole.insert(whole.end(), generated->ids.begin(), generated->ids.end());
  const auto logits = engine->Logits(whole, true, false);
  ASSERT_TRUE(logits.ok());
  for (size_t i = 0; i < generated->ids.size(); ++i) {
    const float* row = logits->values.data() + static_cast<int64_t>(ids.size() - 1 + i) * logits->vocab;
    EXPECT_EQ(std::max_element(row, row + logits->vocab) - row, generated->ids[i]) << i;
  }
}

TEST(EqualityTest, EveryArchitectureIsTheSameInEveryIsa) {
  size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("tests/golden/arch"))) {
    if (entry.path().extension() != ".json") continue;
    const nlohmann::json golden = ReadJson("tests/golden/arch/" + entry.path().filename().string());
    const auto path = RepoPath("tests/golden/arch/" + golden["gguf"].get<std::string>());
    auto ids = golden["ids"].get<std::vector<TokenId>>();
    ids.resize(std::min<size_t>(ids.size(), 24));
    auto run = [&](const std::string& isa, int32_t threads) {
      return AllLogits(path, ids, [&](auto& c) {
        c.runtime.isa = isa;
        c.runtime.threads = threads;
      });
    };
    const std::vector<float> expected = run("reference", 1);
    for (const std::string& isa : IsasOfThisMachine()) EXPECT_EQ(run(isa, 2), expected) << path << " " << isa;
    ++models;
  }
  EXPECT_GE(models, 10u);
}

}  // namespace
}  // namespace bellhop::test
