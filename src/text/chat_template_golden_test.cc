// Templates against the outputs of Python Jinja2 (tools/make_template_golden.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "text/chat_template.h"

namespace bellhop::text {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(BELLHOP_SOURCE_DIR) / "tests/golden/templates";

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Python's exceptions other than the template's own have wordings that are not promised here; that it fails is.
void ExpectOutcome(const std::string& source, const Json& context, int64_t now, const Json& expected) {
  const Result<ChatTemplate> parsed = ChatTemplate::Parse("t", source);
  const std::string kind = expected.value("error", "");
  if (kind == "syntax") {
    EXPECT_FALSE(parsed.ok());
    return;
  }
  if (!parsed.ok()) {
    EXPECT_EQ(kind, "runtime") << parsed.status().message();
    return;
  }
  const Result<std::string> text = parsed->Render(context, now);
  if (kind.empty()) {
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, expected["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(text.ok()) << *text;
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  if (kind == "runtime") return;
  const std::string message(text.status().message());
  EXPECT_EQ(message.substr(message.find(": ") + 2), expected["message"].get<std::string>());
}

TEST(ChatTemplateGolden, Expressions) {
  const Json golden = Json::parse(ReadText(kFolder / "expressions.json"));
  ASSERT_GT(golden["cases"].size(), 300u);
  for (const Json& test : golden["cases"]) {
    const auto source = test["template"].get<std::string>();
    SCOPED_TRACE(source);
    ExpectOutcome(source, golden["context"], golden["now"].get<int64_t>(), test);
  }
}

TEST(ChatTemplateGolden, Conversations) {
  const Json conversations = Json::parse(ReadText(kFolder / "conversations.json"));
  std::set<std::string> seen;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::filesystem::path expected_path = entry.path();
    expected_path.replace_extension(".json");
    const std::string source = ReadText(entry.path());
    const Json expected = Json::parse(ReadText(expected_path));
    seen.insert(entry.path().stem().string());
    for (const auto& [name, outcome] : expected["cases"].items()) {
      SCOPED_TRACE(entry.path().filename().string() + " " + name);
      ExpectOutcome(source, conversations["contexts"][name], conversations["now"].get<int64_t>(), outcome);
    }
    EXPECT_EQ(expected["cases"].size(), conversations["contexts"].size()) << entry.path();
  }
  for (const char* name :
       {"chatml", "deepseek_r1", "deepseek_v2", "deepseek_v3", "gpt_oss", "granite3", "llama3", "llama3_1",
        "mistral_v1", "mistral_v3", "olmoe", "qwen3", "qwen3_5", "qwen3_coder", "qwen3_indexed", "qwen3_next"}) {
    EXPECT_TRUE(seen.count(name)) << name;
  }
}

TEST(ChatTemplateGolden, ShippedModel) {
  const std::string source = ReadText(kFolder / "chatml.jinja");
  const Result<ChatTemplate> parsed = ChatTemplate::Parse("tiny-moe", source);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const Json cases = Json::parse(ReadText(kFolder.parent_path() / "tiny-moe" / "chat_template_cases.json"));
  ASSERT_FALSE(cases.empty());
  for (const Json& test : cases) {
    const Result<std::string> text =
        parsed->Render({{"messages", test["messages"]}, {"add_generation_prompt", test["add_generation_prompt"]}}, 0);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, test["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace bellhop::text
