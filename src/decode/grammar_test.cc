#include "decode/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "decode/grammar_test_util.h"

namespace bellhop::decode {
namespace {

std::string ErrorOf(std::string_view gbnf) {
  const auto grammar = Grammar::Parse(gbnf);
  EXPECT_FALSE(grammar.ok()) << gbnf;
  if (grammar.ok()) return "";
  EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
  return std::string(grammar.status().message());
}

TEST(Gbnf, LiteralsAndEscapes) {
  EXPECT_TRUE(Matches("root ::= \"abc\"", "abc"));
  EXPECT_EQ(MatchText(MustParse("root ::= \"abc\""), "ab"), Match::kPrefix);
  EXPECT_EQ(MatchText(MustParse("root ::= \"abc\""), "abcd"), Match::kNo);
  EXPECT_TRUE(Matches(R"(root ::= "\n\t\r\\\"\x41\u00e9\U0001F600\[\]")", "\n\t\r\\\"A\u00e9\U0001F600[]"));
  EXPECT_TRUE(Matches("root ::= \"\u65E5\"", "\u65E5"));
  EXPECT_TRUE(Matches("root ::= \"\"", ""));
  EXPECT_TRUE(Matches(R"(root ::= "\xe9")", "\u00e9")) << "an escape is a code point, not a byte";
}

TEST(Gbnf, AlternativesGroupsAndLines) {
  const std::string gbnf =
      "# a comment\n"
      "root ::= first second? # another\n"
      "\n"
      "first ::= \"a\" | \"b\" |\n  \"c\"\n"
      "  | \"d\"\n"
      "second ::= (\n  \"x\"\n  | (\"y\" # inside\n) \"z\"\n)\n";
  for (const char* text : {"a", "b", "c", "d", "ax", "dyz"}) EXPECT_TRUE(Matches(gbnf, text)) << text;
  for (const char* text : {"", "e", "ay", "axx", "dz"}) EXPECT_FALSE(Matches(gbnf, text)) << text;
  EXPECT_TRUE(Matches("root ::= \"a\" | ", ""));
  EXPECT_TRUE(Matches("root ::=\r\n \"a\"\r\nb ::= \"b\"\r\n", "a"));
  EXPECT_TRUE(Matches("root ::= a-1_B\na-1_B ::= \"q\"", "q"));
}

TEST(Gbnf, Repetition) {
  const auto check = [](const std::string& operation, int min, int max) {
    const auto grammar = MustParse("root ::= \"<\" \"ab\"" + operation + " \">\"");
    std::string body;
    for (int count = 0; count < 8; ++count, body += "ab") {
      EXPECT_EQ(MatchText(grammar, "<" + body + ">") == Match::kWhole, count >= min && count <= max)
          << operation << " " << count;
    }
  };
  check("*", 0, 99);
  check("+", 1, 99);
  check("?", 0, 1);
  check("{3}", 3, 3);
  check("{0}", 0, 0);
  check("{2,}", 2, 99);
  check("{ 2 , 5 }", 2, 5);
  check("{0,3}", 0, 3);
  check("{1,2}?", 0, 2);
  EXPECT_TRUE(Matches("root ::= (\"a\"? \"b\"?)* \"c\"", "abbac")) << "a repeated element may match nothing";
}

TEST(Gbnf, Classes) {
  EXPECT_TRUE(Matches("root ::= [a-cx\\-\\]]+", "abcx-]"));
  EXPECT_FALSE(Matches("root ::= [a-c]", "d"));
  EXPECT_TRUE(Matches("root ::= [a-]+", "a-a"));
  EXPECT_TRUE(Matches("root ::= [^\"\\\\]*", "d\u00e9\u65E5\U0001F600\n"));
  EXPECT_FALSE(Matches("root ::= [^a-z]", "q"));
  EXPECT_TRUE(Matches("root ::= .", "\U0010FFFF"));
  EXPECT_FALSE(Matches("root ::= .", "ab"));
}

TEST(Gbnf, ClassesHoldExactlyTheirCodePoints) {
  const auto utf8 = [](uint32_t c) {
    std::string out;
    const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (c >> shift & 0x3F))); };
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x800) {
      out.push_back(static_cast<char>(0xC0 | c >> 6));
      tail(0);
    } else if (c < 0x10000) {
      out.push_back(static_cast<char>(0xE0 | c >> 12));
      tail(6);
      tail(0);
    } else {
      out.push_back(static_cast<char>(0xF0 | c >> 18));
      tail(12);
      tail(6);
      tail(0);
    }
    return out;
  };
  const std::vector<uint32_t> borders = {0x0,    0x41,   0x7F,   0x80,    0xE9,    0x7FF,   0x800,    0xFFF,
                                         0x1000, 0xCFFF, 0xD7FF, 0xE000,  0xFFFF,  0x10000, 0x3FFFF,  0x40000,
                                         0x4321, 0x5678, 0xABCD, 0x12345, 0x65432, 0xFFFFF, 0x100000, 0x10FFFF};
  for (const uint32_t first : borders) {
    for (const uint32_t last : borders) {
      if (last < first) continue;
      char text[64];
      snprintf(text, sizeof(text), "[\\U%08X-\\U%08X]", first, last);
      const auto inside = MustParse("root ::= " + std::string(text));
      std::vector<uint32_t> probes = borders;
      for (const uint32_t border : {first, last}) {
        for (const uint32_t step : {1u, 63u, 64u, 65u, 4095u, 4096u, 4097u}) {
          probes.push_back(border + step);
          if (border >= step) probes.push_back(border - step);
        }
      }
      for (const uint32_t probe : probes) {
        if (probe > 0x10FFFF) continue;
        const bool surrogate = probe >= 0xD800 && probe <= 0xDFFF;
        EXPECT_EQ(MatchText(inside, utf8(probe)) == Match::kWhole, probe >= first && probe <= last && !surrogate)
            << text << " " << probe;
      }
    }
  }
}

TEST(Gbnf, RecursionOfEveryAllowedKind) {
  const std::string nested = "root ::= \"(\" root \")\" | \"x\"";
  EXPECT_TRUE(Matches(nested, "((x))"));
  EXPECT_FALSE(Matches(nested, "((x)"));
  const auto right = MustParse("root ::= \"a\" root | \"b\"");
  EXPECT_EQ(MatchText(right, std::string(20000, 'a') + "b"), Match::kWhole);
  const auto deep = MustParse(nested);
  EXPECT_EQ(MatchText(deep, std::string(20000, '(') + "x" + std::string(20000, ')')), Match::kWhole);
}

TEST(Gbnf, ErrorsNameThePlace) {
  EXPECT_EQ(ErrorOf("root ::= \"a\" thing\n").substr(0, 14), "grammar:1:14: ");
  EXPECT_NE(ErrorOf("root ::= thing\n").find("rule 'thing' is not defined"), std::string::npos);
  EXPECT_NE(ErrorOf("start ::= \"a\"\n").find("no rule 'root'"), std::string::npos);
  EXPECT_NE(ErrorOf("").find("no rule 'root'"), std::string::npos);
  EXPECT_EQ(ErrorOf("root ::= \"a\"\n\nroot ::= \"b\"").substr(0, 13), "grammar:3:1: ");
  for (const char* gbnf : {"root ::= \"a",
                           "root ::= [a",
                           "root ::= [z-a]",
                           "root ::= (\"a\"",
                           "root ::= \"a\")",
                           "root = \"a\"",
                           "root ::= *",
                           "root ::= \"a\"{",
                           "root ::= \"a\"{3,2}",
                           "root ::= \"a\"{x}",
                           "root ::= \"a\"{99999999999}",
                           "root ::= \"\\q\"",
                           "root ::= \"\\u12\"",
                           "root ::= \"\\ud800\"",
                           "root ::= \"\\U00110000\"",
                           "root ::= \"\xC3\"",
                           "root ::= \xC3",
                           "root ::= []",
                           "root ::= \"\xED\xA0\x80\"",
                           "root ::= \"a\" = \"b\"",
                           "::= \"a\"",
                           "root ::= <",
                           "root ::= <>",
                           "root ::= [^\\x00-\\U0010FFFF]",
                           "root ::= \"a\"+++++"}) {
    EXPECT_EQ(ErrorOf(gbnf).substr(0, 10), "grammar:1:") << gbnf;
  }
}

TEST(Gbnf, LeftRecursionIsAnError) {
  for (const char* gbnf :
       {"root ::= root \"a\" | \"b\"", "root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\"",
        "root ::= e root\ne ::= \"q\"?", "root ::= e* root \"x\" | \"y\"\ne ::= f f\nf ::= \"\" | \"g\"",
        "root ::= (root)? \"a\"", "root ::= root", "root ::= \"x\" | a\na ::= [a-z]* a"}) {
    EXPECT_NE(ErrorOf(gbnf).find("left-recursive"), std::string::npos) << gbnf;
  }
  EXPECT_TRUE(Matches("root ::= \"a\" e root? \ne ::= \"q\"?", "aaqa"));
}

TEST(Gbnf, SizeIsBounded) {
  EXPECT_NE(ErrorOf("root ::= ((\"a\"{1000}){1000}){1000}").find("too large"), std::string::npos);
  EXPECT_NE(ErrorOf("root ::= (((\"\"{60000}){60000}){60000}){60000}").find("too large"), std::string::npos);
  EXPECT_NE(ErrorOf("root ::= (((\"\"?{60000}){60000}){60000}){60000}").find("too large"), std::string::npos);
  EXPECT_NE(ErrorOf("root ::= " + std::string(100000, '(')).find("nested parentheses"), std::string::npos);
  EXPECT_TRUE(Grammar::Parse("root ::= \"\\\"\" [^\"]{0,20000} \"\\\"\"").ok());
  // A chain of rules that match nothing, each calling the next: found out in linear time.
  std::string chain = "root ::= r0 \"x\"\n";
  for (int i = 0; i < 20000; ++i) chain += fmt::format("r{} ::= r{}?\n", i, i + 1);
  EXPECT_TRUE(Grammar::Parse(chain + "r20000 ::= \"y\"").ok());
}

TEST(GrammarMatcher, CharactersMayBeSplitBetweenTokens) {
  const TestVocabulary& v = Vocabulary();
  GrammarMatcher matcher(MustParse("root ::= \"a\" [\u00e0-\u00ef] \"z\" [\u65E5] \u0022!\u0022"), v.index);
  ASSERT_TRUE(matcher.Accept(v.Plain("a\xC3")).ok());
  EXPECT_FALSE(matcher.complete());
  for (const TokenId token : AllowedOf(matcher)) {
    const uint8_t first = static_cast<uint8_t>(v.index->TokenText(token)[0]);
    EXPECT_TRUE(first >= 0xA0 && first <= 0xAF) << token;
  }
  const Status wrong = matcher.Accept(v.Plain("b"));
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(matcher.Accept(v.Plain("\xA9z")).ok()) << "a refused token leaves the state as it was";
  ASSERT_TRUE(matcher.Accept(v.Plain("\xE6\x97")).ok());
  EXPECT_FALSE(matcher.Accept(v.Plain("\xA5\xE6")).ok());
  ASSERT_TRUE(matcher.Accept(0xA5).ok());
  ASSERT_TRUE(matcher.Accept('!').ok());
  EXPECT_TRUE(matcher.complete());
  EXPECT_EQ(AllowedOf(matcher), v.tokenizer->EndOfGenerationSet()) << "at the end only end of generation";
}

TEST(GrammarMatcher, ControlAndUnusedTokensMatchOnlyByName) {
  const TestVocabulary& v = Vocabulary();
  GrammarMatcher any(MustParse("root ::= .*"), v.index);
  const std::vector<TokenId> allowed = AllowedOf(any);
  const auto has = [&](TokenId token) { return std::find(allowed.begin(), allowed.end(), token) != allowed.end(); };
  EXPECT_TRUE(has(v.Id("<tool_call>")));
  EXPECT_TRUE(has(v.Id("<|end|>")));  // the text may end
  EXPECT_FALSE(has(v.Id("<|message|>")));
  EXPECT_FALSE(has(v.Id("<|begin|>")));
  EXPECT_FALSE(has(v.Id("unused")));
  EXPECT_FALSE(has(0xFF));
  EXPECT_FALSE(has(0x80));
  EXPECT_FALSE(any.Accept(v.Id("<|message|>")).ok());
  EXPECT_FALSE(any.AcceptText("\xFF").ok());
  EXPECT_FALSE(any.Accept(-1).ok());
  EXPECT_FALSE(any.Accept(v.index->vocab_size()).ok());

  GrammarMatcher named(MustParse("root ::= \"a\" <|message|> (<tool_call> | \"b\")"), v.index);
  EXPECT_FALSE(named.AcceptText("a\xFF<|message|>\xFF").ok());
  ASSERT_TRUE(named.Accept('a').ok());
  EXPECT_EQ(AllowedOf(named), std::vector<TokenId>{v.Id("<|message|>")});
  ASSERT_TRUE(named.Accept(v.Id("<|message|>")).ok());
  EXPECT_EQ(AllowedOf(named), (std::vector<TokenId>{'b', v.Id("<tool_call>")}));
  ASSERT_TRUE(named.Accept(v.Id("<tool_call>")).ok());
  EXPECT_TRUE(named.complete());
  EXPECT_TRUE(named.Accept(v.Id("<|end|>")).ok());
}

// Grammars with an independent test of whether a text can be continued to a sentence.
struct Language {
  std::string gbnf;
  std::function<bool(std::string_view)> prefix;
};

bool BalancedPrefix(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c != '(' && c != ')') return false;
    depth += c == '(' ? 1 : -1;
    if (depth < 0) return false;
  }
  return true;
}

bool EvenPalindromePrefix(std::string_view text) {  // w reversed(w) over a, b: any text can become one
  return std::all_of(text.begin(), text.end(), [](char c) { return c == 'a' || c == 'b'; });
}

bool CountPrefix(std::string_view text) {  // a{2,5} then b, the number of a's within the bounds
  const size_t a = std::min(text.find_first_not_of('a'), text.size());
  if (a > 5) return false;
  return a == text.size() || (a >= 2 && text.substr(a) == "b");
}

bool WordsPrefix(std::string_view text) {  // the | the in | in the, repeated
  while (true) {
    bool found = false;
    for (const std::string_view word : {"the in", "in the", "the"}) {
      if (word.substr(0, text.size()) == text) return true;
      if (text.substr(0, word.size()) == word && WordsPrefix(text.substr(word.size()))) found = true;
    }
    return found;
  }
}

TEST(GrammarMatcher, MasksAreWhatBruteForceFinds) {
  const std::vector<Language> languages = {
      {"root ::= (\"(\" root \")\")*", BalancedPrefix},
      {"root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"", EvenPalindromePrefix},
      {"root ::= \"a\"{2,5} \"b\"", CountPrefix},
      {"root ::= (\"the\" | \"the in\" | \"in the\")*", WordsPrefix},
  };
  const TestVocabulary& v = Vocabulary();
  std::mt19937 random(3);
  for (const Language& language : languages) {
    const auto grammar = MustParse(language.gbnf);
    for (int run = 0; run < 20; ++run) {
      GrammarMatcher matcher(grammar, v.index);
      std::string text;
      for (int step = 0; step < 10; ++step) {
        std::vector<TokenId> expected;
        for (TokenId token = 0; token < v.index->vocab_size(); ++token) {
          const std::string bytes = v.tokenizer->TokenBytes(token, false);
          if (v.tokenizer->IsEndOfGeneration(token) ? matcher.complete()
                                                    : !bytes.empty() && language.prefix(text + bytes)) {
            expected.push_back(token);
          }
        }
        EXPECT_EQ(AllowedOf(matcher), expected) << language.gbnf << "\nafter " << text;
        std::erase_if(expected, [&](TokenId token) { return v.tokenizer->IsEndOfGeneration(token); });
        if (expected.empty()) break;
        const TokenId token = expected[random() % expected.size()];
        ASSERT_TRUE(matcher.Accept(token).ok());
        text += v.index->TokenText(token);
      }
    }
  }
}

TEST(GrammarMatcher, MaskAndAcceptAgree) {
  const TestVocabulary& v = Vocabulary();
  const auto grammar = MustParse(
      "root ::= \"{\" pair (\", \" pair)* \"}\"\npair ::= \"\\\"\" [^\"\\\\]{0,6} \"\\\": \" (root | \"true\" | "
      "[0-9]+)");
  std::mt19937 random(9);
  std::string text;
  GrammarMatcher matcher(grammar, v.index);
  for (int step = 0; step < 60; ++step) {
    const std::vector<TokenId> allowed = AllowedOf(matcher);
    std::vector<TokenId> accepted;
    for (TokenId token = 0; token < v.index->vocab_size(); ++token) {
      GrammarMatcher fresh(grammar, v.index);
      ASSERT_TRUE(fresh.AcceptText(text).ok());
      if (fresh.Accept(token).ok()) accepted.push_back(token);
    }
    EXPECT_EQ(allowed, accepted) << text;
    const TokenId token = allowed[random() % allowed.size()];
    if (v.tokenizer->IsEndOfGeneration(token)) break;
    ASSERT_TRUE(matcher.Accept(token).ok());
    text += v.index->TokenText(token);
  }
}

TEST(GrammarMatcher, HostileGrammarsAreBounded) {
  const TestVocabulary& v = Vocabulary();
  // 2^n stacks after n bytes.
  for (const char* gbnf :
       {"root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"",
        "root ::= (\"a\"? \"a\"?){60} s\ns ::= \"a\" s \"x\" | \"a\" s \"y\" | \"a\" s \"z\" | \"\""}) {
    GrammarMatcher matcher(MustParse(gbnf), v.index);
    Status status;
    for (int i = 0; i < 1000 && status.ok(); ++i) status = matcher.Accept('a');
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("too ambiguous"), std::string::npos) << status.ToString();
    EXPECT_EQ(matcher.status().code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(AllowedOf(matcher).empty());
  }
  // Many ways to the same place are one.
  GrammarMatcher same(MustParse("root ::= (a | b | c)*\na ::= \"a\"\nb ::= \"a\" \"a\"?\nc ::= (\"a\" | \"a\")*"),
                      v.index);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(same.Accept('a').ok());
  EXPECT_TRUE(same.complete());
}

TEST(GrammarMatcher, LongTextsOutgrowTheCacheUnharmed) {
  const TestVocabulary& v = Vocabulary();
  // Each depth is a new place: the automaton is thrown away and begun anew on the way.
  GrammarMatcher matcher(MustParse("root ::= \"(\" root \")\" | [a-z0-9]{2} [^a-z]"), v.index);
  const std::string open(300000, '(');
  for (size_t at = 0; at < open.size(); at += 1000) ASSERT_TRUE(matcher.AcceptText(open.substr(at, 1000)).ok());
  ASSERT_TRUE(matcher.AcceptText("a0\u00e9").ok());
  EXPECT_EQ(AllowedOf(matcher), (std::vector<TokenId>{')', v.Plain("))")}));
  const std::string close(open.size() - 1, ')');
  for (size_t at = 0; at < close.size(); at += 1000) ASSERT_TRUE(matcher.AcceptText(close.substr(at, 1000)).ok());
  EXPECT_FALSE(matcher.complete());
  EXPECT_FALSE(matcher.AcceptText("))").ok());
  ASSERT_TRUE(matcher.AcceptText(")").ok());
  EXPECT_TRUE(matcher.complete());
}

}  // namespace
}  // namespace bellhop::decode
