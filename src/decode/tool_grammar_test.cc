#include "decode/tool_grammar.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "decode/constraint.h"
#include "decode/grammar_test_util.h"

namespace bellhop::decode {
namespace {

using Json = nlohmann::ordered_json;

Json Tools() {
  return Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "description": "d", "strict": true, "parameters":
      {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"],
       "additionalProperties": false}}},
    {"type": "function", "function": {"name": "get", "parameters": {"properties": {"x": {"multipleOf": 3}}}}},
    {"type": "function", "function": {"name": "ping"}}])");
}

ToolGrammar Make(ToolFormat format, bool parallel, ToolStart start = ToolStart::kOnTrigger,
                 std::optional<std::string> only = std::nullopt) {
  const auto made = MakeToolGrammar(format, Tools(), only, parallel, start);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *made : ToolGrammar{};
}

// Text and control tokens, as a model generates them.
Status Feed(Constraint& constraint, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t length = 1;
    TokenId token = static_cast<uint8_t>(text[at]);
    const size_t close = text.find('>', at);
    if (text[at] == '<' && close != std::string_view::npos) {
      const TokenId named = Vocabulary().Id(text.substr(at, close + 1 - at));
      if (named >= 0) {
        token = named;
        length = close + 1 - at;
      }
    }
    const std::vector<TokenId> allowed = TokensOf(constraint.Mask());
    const Status status = constraint.Accept(token);
    if (constraint.active() && !allowed.empty()) {
      EXPECT_EQ(status.ok(), std::find(allowed.begin(), allowed.end(), token) != allowed.end());
    }
    if (!status.ok()) return status.WithContext(text.substr(0, at));
    at += length;
  }
  return Status();
}

bool Accepts(const ToolGrammar& grammar, std::string_view text) {
  Constraint constraint(MustParse(grammar.gbnf), Vocabulary().index, grammar.triggers);
  const Status status = Feed(constraint, text);
  return status.ok() && constraint.complete();
}

constexpr char kOslo[] =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>";

TEST(ToolGrammar, HermesCallsAsTheTemplatesWriteThem) {
  const ToolGrammar one = Make(ToolFormat::kHermes, false);
  EXPECT_EQ(one.triggers, std::vector<std::string>{"<tool_call>"});
  EXPECT_TRUE(Accepts(one, std::string("Let me see. {\n") + kOslo));
  EXPECT_TRUE(Accepts(one, "<tool_call>{\"name\":\"ping\",\"arguments\":{}}</tool_call>"));
  EXPECT_TRUE(Accepts(one, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"any\": [1]}}\n</tool_call>"))
      << "not strict, and not enforceable: any object";
  for (const char* arguments : {"{}", "{\"days\": 2}", "{\"city\": 1}", "{\"city\": \"a\", \"x\": 1}", "[]"}) {
    EXPECT_FALSE(Accepts(
        one, std::string("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ") + arguments + "}\n</tool_call>"));
  }
  EXPECT_FALSE(Accepts(one, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(Accepts(one, std::string(kOslo) + "\n" + kOslo));
  EXPECT_TRUE(Accepts(Make(ToolFormat::kHermes, true), std::string(kOslo) + "\n" + kOslo));
  EXPECT_FALSE(Accepts(Make(ToolFormat::kHermes, false, ToolStart::kOnTrigger, "ping"), kOslo));
}

TEST(ToolGrammar, HermesRequiredCalls) {
  const ToolGrammar required = Make(ToolFormat::kHermes, false, ToolStart::kRequired);
  EXPECT_TRUE(required.triggers.empty());
  EXPECT_TRUE(Accepts(required, kOslo));
  EXPECT_TRUE(Accepts(required, std::string("<think>a < b </th <</think>\n\n") + kOslo));
  EXPECT_FALSE(Accepts(required, std::string("Well. ") + kOslo));
  const ToolGrammar open = Make(ToolFormat::kHermes, true, ToolStart::kRequiredInReasoning);
  EXPECT_TRUE(Accepts(open, std::string("hm <tool_call></think>\n\n") + kOslo + kOslo));
  EXPECT_FALSE(Accepts(open, kOslo));
}

TEST(ToolGrammar, HarmonyCallsWithEveryHeader) {
  const ToolGrammar grammar = Make(ToolFormat::kHarmony, false);
  const std::string arguments = "{\"city\": \"Oslo\"}";
  for (const char* head : {"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
                           "<|channel|>analysis<|message|>think to=functions.x<|start|>assistant "
                           "to=functions.get_weather<|channel|>commentary json<|message|>",
                           " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>",
                           "<|channel|>commentary to=functions.get_weather<|message|>"}) {
    EXPECT_TRUE(Accepts(grammar, head + arguments)) << head;
    EXPECT_FALSE(Accepts(grammar, std::string(head) + "{}")) << head;
  }
  EXPECT_TRUE(Accepts(grammar, "<|channel|>commentary to=functions.get json<|message|>{\"q\": 1}"));
  EXPECT_FALSE(Accepts(grammar, "<|channel|>commentary to=functions.none json<|message|>{}"));
  const ToolGrammar only = Make(ToolFormat::kHarmony, false, ToolStart::kOnTrigger, "ping");
  EXPECT_TRUE(Accepts(only, "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}"));
  EXPECT_FALSE(Accepts(only, "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}"));
  const ToolGrammar required = Make(ToolFormat::kHarmony, false, ToolStart::kRequired);
  EXPECT_TRUE(Accepts(required, "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}"));
  EXPECT_FALSE(Accepts(required, "<|channel|>final<|message|>no"));
}

TEST(ToolGrammar, ErrorsNameTheTool) {
  const auto error = [](const Json& tools, std::optional<std::string> only = std::nullopt) {
    const auto made = MakeToolGrammar(ToolFormat::kHermes, tools, only, false);
    EXPECT_FALSE(made.ok());
    return made.ok() ? std::string() : std::string(made.status().message());
  };
  Json strict = Tools();
  strict[1]["function"]["strict"] = true;
  EXPECT_NE(error(strict).find("tools[1].function.parameters: json schema: #/properties/x/multipleOf"),
            std::string::npos)
      << error(strict);
  EXPECT_NE(error(Tools(), "absent").find("'absent'"), std::string::npos);
  EXPECT_NE(error(Json::array()).find("tools"), std::string::npos);
  EXPECT_NE(error(Json::parse("[{\"type\":\"web_search\"}]")).find("tools[0]"), std::string::npos);
  EXPECT_NE(error(Json::parse("[{\"function\":{\"name\":\"\"}}]")).find("tools[0].function.name"), std::string::npos);
  EXPECT_NE(error(Json::parse("[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"a\"}}]")).find("twice"),
            std::string::npos);
  EXPECT_NE(error(Json::parse("[{\"function\":{\"name\":\"a\",\"parameters\":[]}}]")).find("tools[0]"),
            std::string::npos);
}

}  // namespace
}  // namespace bellhop::decode
