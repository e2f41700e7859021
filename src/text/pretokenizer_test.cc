#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "text/unicode.h"

namespace bellhop::text {
namespace {

constexpr uint32_t kSteps = 1'000'000;

RegexScratch NewScratch() {
  auto scratch = RegexScratch::Create();
  EXPECT_TRUE(scratch.ok());
  return std::move(scratch).value();
}

PreTokenizer Make(std::string_view name, bool jit = true) {
  auto spec = FindPreTokenizer(name);
  EXPECT_TRUE(spec.ok()) << name;
  auto made = PreTokenizer::Create(*spec, jit);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

std::vector<std::string> Pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  RegexScratch scratch = NewScratch();
  std::vector<TextPiece> pieces;
  const Status status = pre_tokenizer.Split(text, &scratch, &pieces);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<std::string> out;
  for (const TextPiece& piece : pieces) out.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return out;
}

std::string Repeat(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

// Whole characters from ranges that the classes tell apart.
std::string RandomText(std::mt19937* random, size_t characters) {
  constexpr char32_t kBases[] = {0x20,   0x20,   0x0A,   0x41,   0x61,    0x30,   0x80,   0xC0,
                                 0x300,  0x400,  0x660,  0x900,  0x2000,  0x2028, 0x20A0, 0x3000,
                                 0x3040, 0x4E00, 0xAC00, 0xFF00, 0x1F600, 0x1D400};
  std::string out;
  for (size_t i = 0; i < characters; ++i) {
    const char32_t base = kBases[(*random)() % std::size(kBases)];
    AppendUtf8(base + (*random)() % (base < 0x80 ? 6 : 40), &out);
  }
  return out;
}

TEST(RegexTest, SpaceClassIsUnicodeWhiteSpace) {
  RegexScratch scratch = NewScratch();
  const auto space = Regex::Compile("^\\s$");
  const auto other = Regex::Compile("^\\S$");
  const auto inside = Regex::Compile("^[^x\\s]$");
  ASSERT_TRUE(space.ok() && other.ok() && inside.ok());
  const auto is_white_space = [](char32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
  };
  std::string text;
  for (char32_t c = 0; c < 0x11000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text.clear();
    AppendUtf8(c, &text);
    const auto matches = [&](const Regex& regex) {
      return regex.Find(text, 0, kSteps, &scratch).outcome == RegexOutcome::kMatch;
    };
    ASSERT_EQ(matches(*space), is_white_space(c)) << static_cast<uint32_t>(c);
    ASSERT_EQ(matches(*other), !is_white_space(c)) << static_cast<uint32_t>(c);
    ASSERT_EQ(matches(*inside), !is_white_space(c) && c != 'x') << static_cast<uint32_t>(c);
  }
}

TEST(RegexTest, RunawayMatchIsStopped) {
  RegexScratch scratch = NewScratch();
  const std::string text = Repeat("a", 64);
  for (const bool jit : {true, false}) {
    const auto regex = Regex::Compile("(?:a|a)+[bc]", jit);
    ASSERT_TRUE(regex.ok());
    EXPECT_EQ(regex->Find(text, 0, 10'000, &scratch).outcome, RegexOutcome::kLimit);
  }
}

TEST(RegexTest, DeepBacktrackingFitsTheJitStackOrFallsBack) {
  RegexScratch scratch = NewScratch();
  const std::string text = Repeat("ab", 1 << 20) + "!";
  const auto jit = Regex::Compile("(?:a|b|c)*\\w!");
  const auto interpreted = Regex::Compile("(?:a|b|c)*\\w!", false);
  ASSERT_TRUE(jit.ok() && interpreted.ok());
  const RegexMatch fast = jit->Find(text, 0, UINT32_MAX, &scratch);
  const RegexMatch slow = interpreted->Find(text, 0, UINT32_MAX, &scratch);
  // Both run out of their memory caps or both match the whole text; neither crashes.
  EXPECT_EQ(fast.outcome, slow.outcome);
  EXPECT_EQ(fast.end, slow.end);
}

TEST(RegexTest, BadPatternIsAnError) {
  const auto regex = Regex::Compile("[a-");
  ASSERT_FALSE(regex.ok());
  EXPECT_EQ(regex.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(regex.status().message().find("offset"), std::string::npos);
}

TEST(PreTokenizerTest, EveryNameCompilesAndNamesAreSorted) {
  const std::vector<std::string> names = PreTokenizerNames();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) {
    EXPECT_EQ(Pieces(Make(name), "a").size(), 1u) << name;
  }
}

TEST(PreTokenizerTest, AliasesShareTheirPatterns) {
  const std::pair<const char*, std::vector<const char*>> groups[] = {
      {"llama-bpe", {"llama3", "dbrx", "smaug-bpe", "chatglm-bpe"}},
      {"qwen2", {"stablelm2", "hunyuan", "deepseek-r1-qwen", "megrez"}},
      {"gpt-4o", {"llama4", "kanana2"}},
      {"gpt-2", {"mpt", "olmo", "jais", "modern-bert"}},
      {"refact", {"starcoder", "command-r", "smollm", "codeshell", "exaone"}},
      {"deepseek-v3", {"hunyuan-dense"}},
      {"default", {""}},
  };
  for (const auto& [name, aliases] : groups) {
    const auto base = FindPreTokenizer(name);
    ASSERT_TRUE(base.ok()) << name;
    for (const char* alias : aliases) {
      const auto spec = FindPreTokenizer(alias);
      ASSERT_TRUE(spec.ok()) << alias;
      EXPECT_EQ(spec->patterns, base->patterns) << alias;
    }
  }
  for (const std::string& name : PreTokenizerNames()) {
    const auto spec = FindPreTokenizer(name);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(spec->ignore_merges, spec->adds_bos) << name;
  }
  for (const char* name : {"llama-bpe", "llama3", "tekken"}) EXPECT_TRUE(FindPreTokenizer(name)->ignore_merges) << name;
  for (const char* name : {"dbrx", "qwen2", "gpt-4o"}) EXPECT_FALSE(FindPreTokenizer(name)->ignore_merges) << name;
}

TEST(PreTokenizerTest, UnknownNameListsTheSupportedOnes) {
  const auto spec = FindPreTokenizer("rwkv-world");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(spec.status().message().find("rwkv-world"), std::string::npos);
  EXPECT_NE(spec.status().message().find("qwen35"), std::string::npos);
}

TEST(PreTokenizerTest, SplitsAsThePatternsSay) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(Pieces(Make("qwen2"), "I'll pay   $12.5\n\n x"),
            (Strings{"I", "'ll", " pay", "  ", " $", "1", "2", ".", "5", "\n\n", " x"}));
  EXPECT_EQ(Pieces(Make("llama-bpe"), "12345"), (Strings{"123", "45"}));
  EXPECT_EQ(Pieces(Make("gpt-2"), "a\nb  c 12345"), (Strings{"a", "\n", "b", " ", " c", " 12345"}));
  EXPECT_EQ(Pieces(Make("refact"), "a 123"), (Strings{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(Pieces(Make("gpt-4o"), "camelCase HTTPServer it's"), (Strings{"camel", "Case", " HTTPServer", " it's"}));
  EXPECT_EQ(Pieces(Make("tekken"), "it's 12"), (Strings{"it", "'s", " ", "1", "2"}));
  EXPECT_EQ(Pieces(Make("qwen35"), "e\u0301a"), (Strings{"e\u0301a"}));
  EXPECT_EQ(Pieces(Make("qwen2"), "e\u0301a"), (Strings{"e", "\u0301a"}));
  EXPECT_EQ(Pieces(Make("deepseek-v3"), "\u65E5\u672Cabc"), (Strings{"\u65E5\u672C", "abc"}));
  EXPECT_EQ(Pieces(Make("deepseek-llm"), "ab 12  "), (Strings{"ab", " ", "1", "2", "  "}));
  EXPECT_EQ(Pieces(Make("default"), "a,b 1234"), (Strings{"a", ",", "b", " ", "123", "4"}));
  EXPECT_TRUE(Pieces(Make("default"), "").empty());
}

TEST(PreTokenizerTest, PiecesCoverTheTextAndJitAndInterpreterAgree) {
  std::mt19937 random(5);
  for (const char* name : {"llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "gpt-2", "refact", "deepseek-v3",
                           "deepseek-llm", "default"}) {
    const PreTokenizer jit = Make(name);
    const PreTokenizer interpreted = Make(name, false);
    for (int round = 0; round < 150; ++round) {
      const std::string text = RandomText(&random, 1 + random() % 60);
      const std::vector<std::string> pieces = Pieces(jit, text);
      std::string joined;
      for (const std::string& piece : pieces) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << name;
      ASSERT_EQ(pieces, Pieces(interpreted, text)) << name;
    }
  }
}

// A regex that is not linear would need hours for one of these.
TEST(PreTokenizerTest, WorstCharactersTakeLinearTime) {
  const std::vector<std::string> units = {" ",  "\n",     "\t",     " \n",    "a",      "A",      "aA",     "1",
                                          "'",  "!",      "! ",     "\u0301", "\u01C5", "\u4E00", "\u3000", "\u00A0",
                                          "\r", "\u2581", "\u0600", "s'",     "\x01",   "/\n",    "\u02B0"};
  for (const char* name : {"llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "gpt-2", "refact", "deepseek-v3",
                           "deepseek-llm", "default"}) {
    for (const bool jit : {true, false}) {
      const PreTokenizer pre_tokenizer = Make(name, jit);
      RegexScratch scratch = NewScratch();
      for (const std::string& unit : units) {
        const std::string text = Repeat(unit, jit ? 1 << 17 : 1 << 15) + "x" + Repeat(unit, 1 << 10) + "\x02";
        std::vector<TextPiece> pieces;
        const Status status = pre_tokenizer.Split(text, &scratch, &pieces);
        ASSERT_TRUE(status.ok()) << name << testing::PrintToString(unit) << status.ToString();
        EXPECT_EQ(pieces.front().begin, 0u);
        EXPECT_EQ(pieces.back().end, text.size());
      }
    }
  }
}

}  // namespace
}  // namespace bellhop::text
