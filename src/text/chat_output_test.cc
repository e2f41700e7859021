#include "text/chat_output.h"

#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

namespace bellhop::text {
namespace {

struct Joined {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  bool operator==(const Joined&) const = default;
};

void Join(const std::vector<ChatDelta>& deltas, Joined* joined) {
  for (const ChatDelta& delta : deltas) {
    EXPECT_FALSE(delta.text.empty());
    switch (delta.kind) {
      case ChatDelta::Kind::kContent: joined->content += delta.text; break;
      case ChatDelta::Kind::kReasoning: joined->reasoning += delta.text; break;
      case ChatDelta::Kind::kToolBegin:
        EXPECT_EQ(delta.tool, static_cast<int32_t>(joined->calls.size()));
        joined->calls.emplace_back(delta.text, "");
        break;
      case ChatDelta::Kind::kToolArguments:
        ASSERT_EQ(delta.tool + 1, static_cast<int32_t>(joined->calls.size()));
        joined->calls.back().second += delta.text;
        break;
    }
  }
}

Joined Parse(const ChatOutputParser::Options& options, const std::vector<std::string>& pieces) {
  ChatOutputParser parser(options);
  Joined joined;
  std::vector<ChatDelta> deltas;
  for (const std::string& piece : pieces) {
    deltas.clear();
    parser.Push(piece, &deltas);
    Join(deltas, &joined);
  }
  deltas.clear();
  parser.Finish(&deltas);
  Join(deltas, &joined);
  EXPECT_EQ(parser.tool_calls(), static_cast<int32_t>(joined.calls.size()));
  return joined;
}

// However the text is cut, the result is that of the whole.
Joined ParseAnyhow(const ChatOutputParser::Options& options, const std::string& text) {
  const Joined whole = Parse(options, {text});
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % (round < 2 ? 1 : 9);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(Parse(options, pieces), whole) << text;
  }
  return whole;
}

const ChatOutputParser::Options kHermes{.format = ChatFormat::kHermes, .tools = true};
const ChatOutputParser::Options kTagged{.format = ChatFormat::kTagged, .tools = true};
const ChatOutputParser::Options kHarmony{.format = ChatFormat::kHarmony, .tools = true};

TEST(ChatOutputTest, PlainTextIsContent) {
  const Joined joined = ParseAnyhow({}, "a <think>b</think> <tool_call>");
  EXPECT_EQ(joined.content, "a <think>b</think> <tool_call>");
}

TEST(ChatOutputTest, ReasoningIsTakenApart) {
  Joined joined = ParseAnyhow(kHermes, "\n<think>\nwhy not\n\n</think>\n\nBecause <b>.\n");
  EXPECT_EQ(joined.reasoning, "why not");
  EXPECT_EQ(joined.content, "Because <b>.\n");
  joined = ParseAnyhow({.format = ChatFormat::kHermes, .in_reasoning = true}, "so so\n</think>\n\nyes");
  EXPECT_EQ(joined.reasoning, "so so");
  EXPECT_EQ(joined.content, "yes");
  joined = ParseAnyhow(kHermes, "<think>\n\n</think>\n\nyes");
  EXPECT_EQ(joined.reasoning, "");
  EXPECT_EQ(joined.content, "yes");
  joined = ParseAnyhow({.format = ChatFormat::kHermes, .reasoning = false}, "<think>x</think>y");
  EXPECT_EQ(joined.content, "<think>x</think>y");
  joined = ParseAnyhow(kHermes, "an <think> inside");
  EXPECT_EQ(joined.content, "an <think> inside");
  joined = ParseAnyhow(kHermes, "<think>cut off in the mid");
  EXPECT_EQ(joined.reasoning, "cut off in the mid");
}

TEST(ChatOutputTest, CallsOfHermes) {
  Joined joined =
      ParseAnyhow(kHermes,
                  "Let me look.\n\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": \"}</tool_call>\\\"\", "
                  "\"b\": [1, {}]}}\n</tool_call>\n<tool_call>\n{\"name\":\"put\",\"arguments\":{}}\n</tool_call>");
  EXPECT_EQ(joined.content, "Let me look.");
  ASSERT_EQ(joined.calls.size(), 2u);
  EXPECT_EQ(joined.calls[0].first, "get");
  EXPECT_EQ(joined.calls[0].second, "{\"a\": \"}</tool_call>\\\"\", \"b\": [1, {}]}");
  EXPECT_EQ(joined.calls[1], (std::pair<std::string, std::string>("put", "{}")));
  joined =
      ParseAnyhow(kHermes, "<think>hm</think><tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call> done");
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_EQ(joined.calls[0], (std::pair<std::string, std::string>("f", "{\"x\":1}")));
  EXPECT_EQ(joined.content, "done");
}

TEST(ChatOutputTest, WhatIsNoCallIsNotLost) {
  EXPECT_EQ(ParseAnyhow(kHermes, "a <tool_call>nonsense</tool_call> b").content, "a <tool_call>nonsense</tool_call> b");
  EXPECT_EQ(ParseAnyhow(kHermes, "a\n<tool_call>{\"name\": 3}").content, "a\n<tool_call>{\"name\": 3}");
  EXPECT_EQ(ParseAnyhow(kHermes, "cut <tool_c").content, "cut <tool_c");
  EXPECT_EQ(ParseAnyhow({.format = ChatFormat::kHermes}, "x <tool_call>{}</tool_call>").content,
            "x <tool_call>{}</tool_call>");
}

TEST(ChatOutputTest, TaggedCalls) {
  const Joined joined = ParseAnyhow(
      kTagged,
      "Now.\n<tool_call>\n<function=run>\n<parameter=cmd>\nls -l\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
      "</function>\n</tool_call>");
  EXPECT_EQ(joined.content, "Now.");
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_EQ(joined.calls[0], (std::pair<std::string, std::string>("run", "{\"cmd\":\"ls -l\",\"n\":3}")));
}

TEST(ChatOutputTest, Harmony) {
  Joined joined =
      ParseAnyhow(kHarmony,
                  "<|channel|>analysis<|message|>think < it<|end|><|start|>assistant<|channel|>final<|message|>"
                  "Hello <|x|>!<|return|>");
  EXPECT_EQ(joined.reasoning, "think < it");
  EXPECT_EQ(joined.content, "Hello <|x|>!");
  joined = ParseAnyhow(kHarmony,
                       "<|channel|>commentary<|message|>I will call.<|end|><|start|>assistant<|channel|>commentary "
                       "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"Rome\"}<|call|>");
  EXPECT_EQ(joined.content, "I will call.");
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_EQ(joined.calls[0], (std::pair<std::string, std::string>("get_weather", "{\"city\":\"Rome\"}")));
  joined = ParseAnyhow(kHarmony, " to=functions.f<|channel|>commentary json<|message|>{}");
  ASSERT_EQ(joined.calls.size(), 1u);
  EXPECT_EQ(joined.calls[0].first, "f");
  EXPECT_EQ(ParseAnyhow(kHarmony, "no header at all").content, "no header at all");
}

TEST(ChatOutputTest, FormatsOfRealTemplates) {
  const auto detect = [](const std::string& name) {
    std::ifstream file(BELLHOP_SOURCE_DIR "/tests/golden/templates/" + name);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_FALSE(text.str().empty()) << name;
    return DetectChatFormat(text.str());
  };
  EXPECT_EQ(detect("qwen3.jinja"), ChatFormat::kHermes);
  EXPECT_EQ(detect("qwen3_coder.jinja"), ChatFormat::kTagged);
  EXPECT_EQ(detect("gpt_oss.jinja"), ChatFormat::kHarmony);
  EXPECT_EQ(detect("chatml.jinja"), ChatFormat::kPlain);
}

}  // namespace
}  // namespace bellhop::text
