// One small random model per architecture against transformers in float32 (tests/golden/arch/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/model_files.h"
#include "support/npy.h"

namespace bellhop::test {
namespace {

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(RepoPath("tests/golden/arch"))) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ArchGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(ArchGoldenTest, MatchesTransformers) {
  const std::string base = "tests/golden/arch/" + GetParam();
  const nlohmann::json golden = ReadJson(base + ".json");
  auto engine = OpenEngine(RepoPath("tests/golden/arch/" + golden["gguf"].get<std::string>()),
                           [](auto& c) { c.context.act = config::ActMode::kF32; });
  const auto ids = golden["ids"].get<std::vector<TokenId>>();
  const auto result = engine->Logits(ids, true, true);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  const Npy expected = ReadNpy(RepoPath("tests/golden/arch/" + golden["logits"].get<std::string>()));
  ASSERT_LE(expected.values.size(), result->values.size());
  const float* ours = result->values.data() + (result->values.size() - expected.values.size());
  EXPECT_LE(RelativeL2(ours, expected.values.data(), expected.values.size()), 1e-4);

  if (golden.contains("experts")) {
    ASSERT_EQ(result->routes.size(), golden["experts"].size());
    for (size_t l = 0; l < result->routes.size(); ++l) {
      const auto& routes = result->routes[l];
      for (size_t t = 0; t < ids.size(); ++t) {
        const auto first = routes.ids.begin() + static_cast<int64_t>(t) * routes.used;
        EXPECT_EQ(std::vector<int32_t>(first, first + routes.used), golden["experts"][l][t].get<std::vector<int32_t>>())
            << "layer " << l << " token " << t;
      }
    }
  }
  engine::GenerateRequest request;
  request.prompt = ids;
  request.sampling.greedy = true;
  request.ignore_eos = true;
  const auto greedy = golden["greedy_ids"].get<std::vector<TokenId>>();
  request.max_tokens = static_cast<int32_t>(greedy.size());
  const auto generated = engine->Generate(request);
  ASSERT_TRUE(generated.ok()) << generated.status().ToString();
  EXPECT_EQ(generated->ids, greedy);
}

INSTANTIATE_TEST_SUITE_P(Models, ArchGoldenTest, testing::ValuesIn(Cases()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(ArchGoldenTest, CoversEveryArchitecture) {
  std::vector<std::string> missing = {"qwen3", "qwen3moe", "llama", "olmoe", "granitemoe", "gpt-oss"};
  for (const std::string& name : Cases()) {
    std::erase(missing, ReadJson("tests/golden/arch/" + name + ".json")["architecture"].get<std::string>());
  }
  EXPECT_TRUE(missing.empty()) << missing.front();
}

}  // namespace
}  // namespace bellhop::test
