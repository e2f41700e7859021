#include "decode/constraint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/counting_new_for_test.h"
#include "decode/grammar_test_util.h"

namespace bellhop::decode {
namespace {

Constraint Make(std::string_view gbnf, const std::vector<std::string>& triggers = {}) {
  return Constraint(MustParse(gbnf), Vocabulary().index, triggers);
}

void AcceptBytes(Constraint& constraint, std::string_view text) {
  for (const char byte : text) {
    const Status status = constraint.Accept(static_cast<uint8_t>(byte));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
}

TEST(Constraint, WithoutTriggersHoldsFromTheStart) {
  Constraint constraint = Make("root ::= \"ab\"");
  EXPECT_TRUE(constraint.active());
  EXPECT_EQ(TokensOf(constraint.Mask()), (std::vector<TokenId>{'a', Vocabulary().Plain("ab")}));
  EXPECT_EQ(constraint.Accept('b').code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(constraint.status().ok()) << "a refused token changes nothing";
  ASSERT_TRUE(constraint.Accept('a').ok());
  EXPECT_FALSE(constraint.complete());
  ASSERT_TRUE(constraint.Accept('b').ok());
  EXPECT_TRUE(constraint.complete());
  EXPECT_EQ(TokensOf(constraint.Mask()), Vocabulary().tokenizer->EndOfGenerationSet());
  EXPECT_TRUE(constraint.Accept(Vocabulary().Id("<|end|>")).ok());
}

TEST(Constraint, HoldsBehindATriggerThatSpansTokens) {
  Constraint constraint = Make("root ::= \"x\"", {"aab", "<tool_call>"});
  EXPECT_TRUE(constraint.Mask().empty());
  AcceptBytes(constraint, "xxaaa");
  EXPECT_FALSE(constraint.active());
  EXPECT_TRUE(constraint.Mask().empty());
  AcceptBytes(constraint, "b");
  EXPECT_TRUE(constraint.active());
  EXPECT_EQ(TokensOf(constraint.Mask()), std::vector<TokenId>{'x'});
  AcceptBytes(constraint, "x");
  EXPECT_TRUE(constraint.complete());
  EXPECT_EQ(TokensOf(constraint.Mask()), Vocabulary().tokenizer->EndOfGenerationSet());
}

TEST(Constraint, SeesControlAndUserDefinedTokens) {
  Constraint tool = Make("root ::= \"x\"", {"<tool_call>"});
  ASSERT_TRUE(tool.Accept(Vocabulary().Id("<tool_call>")).ok());
  EXPECT_TRUE(tool.active());
  Constraint harmony = Make("root ::= \"x\"", {"<|channel|>in<|message|>"});
  ASSERT_TRUE(harmony.Accept(Vocabulary().Id("<|channel|>")).ok());
  AcceptBytes(harmony, "in");
  EXPECT_FALSE(harmony.active());
  ASSERT_TRUE(harmony.Accept(Vocabulary().Id("<|message|>")).ok());
  EXPECT_TRUE(harmony.active());
}

TEST(Constraint, FeedsTheRestOfATokenToTheGrammar) {
  Constraint good = Make("root ::= \"bab!\"", {"a"});
  ASSERT_TRUE(good.Accept(Vocabulary().Plain("abab")).ok());
  EXPECT_EQ(TokensOf(good.Mask()), std::vector<TokenId>{'!'});
  Constraint bad = Make("root ::= \"x\"", {"a"});
  const Status status = bad.Accept(Vocabulary().Plain("abab"));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("trigger"), std::string::npos);
  EXPECT_FALSE(bad.status().ok());
  EXPECT_TRUE(TokensOf(bad.Mask()).empty());
  EXPECT_FALSE(bad.Mask().empty()) << "a failed constraint allows nothing, not everything";
  EXPECT_FALSE(bad.Accept('x').ok());
}

TEST(Constraint, TextStartMatchesAtTheStartAlone) {
  const std::string trigger = std::string(1, Constraint::kTextStart) + " in";
  Constraint start = Make("root ::= \"x\"", {trigger});
  AcceptBytes(start, " in");
  EXPECT_TRUE(start.active());
  Constraint later = Make("root ::= \"x\"", {trigger});
  AcceptBytes(later, "a in");
  EXPECT_FALSE(later.active());
}

TEST(Constraint, RefusesIdsOutsideTheVocabulary) {
  for (const auto& triggers : {std::vector<std::string>{}, std::vector<std::string>{"a"}}) {
    Constraint constraint = Make("root ::= \"x\"", triggers);
    EXPECT_FALSE(constraint.Accept(-1).ok());
    EXPECT_FALSE(constraint.Accept(Vocabulary().index->vocab_size()).ok());
    EXPECT_TRUE(constraint.status().ok());
  }
}

TEST(Constraint, AllocatesNothingWhereTheGrammarHasBeen) {
  Constraint constraint = Make("root ::= (\"[\" [a-z]* \"]\")*");
  const auto round = [&] {
    for (const char byte : std::string_view("[ab][c]")) {
      EXPECT_FALSE(constraint.Mask().empty());
      EXPECT_TRUE(constraint.Accept(byte).ok());
    }
  };
  round();
  round();
  const int64_t before = AllocationCount();
  round();
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace bellhop::decode
