#include "text/bpe_merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer_test_vocab.h"

namespace bellhop::text {
namespace {

// The definition, written to be read: strings, and a full scan per merge.
std::vector<TokenId> ReferenceEncode(const manifest::Vocabulary& vocabulary, std::string_view piece) {
  std::map<std::pair<std::string, std::string>, size_t> rank_of;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string& merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ', 1);
    rank_of.emplace(std::pair(merge.substr(0, space), merge.substr(space + 1)), rank);
  }
  std::map<std::string, TokenId> id_of;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.types[id] == manifest::TokenType::kNormal) id_of[vocabulary.tokens[id]] = static_cast<TokenId>(id);
  }
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.push_back(Visible({&c, 1}));
  while (true) {
    size_t best = vocabulary.merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = rank_of.find({symbols[i], symbols[i + 1]});
      if (found == rank_of.end() || found->second >= best) continue;
      best = found->second;
      best_at = i;
    }
    if (best == vocabulary.merges.size()) break;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) {
    if (id_of.count(symbol)) {
      ids.push_back(id_of[symbol]);
      continue;
    }
    for (size_t at = 0; at < symbol.size();) {
      const Utf8Step step = NextUtf8(symbol, at);
      ids.push_back(id_of[symbol.substr(at, step.length)]);
      at += step.length;
    }
  }
  return ids;
}

// Merges among the symbols made so far, in random order; some results are left out of the vocabulary.
manifest::Vocabulary RandomVocabulary(std::mt19937* random, std::string_view letters, int merges) {
  manifest::Vocabulary v = ByteVocabulary("default");
  std::vector<std::string> made;
  for (const char c : letters) made.emplace_back(1, c);
  for (int i = 0; i < merges; ++i) {
    const std::string left = made[(*random)() % made.size()];
    const std::string right = made[(*random)() % made.size()];
    if (left.size() + right.size() > 12) continue;
    if ((*random)() % 8 == 0) {
      v.merges.push_back(Visible(left) + " " + Visible(right));
    } else {
      AddMerge(&v, left, right);
    }
    made.push_back(left + right);
  }
  std::shuffle(v.merges.begin(), v.merges.end(), *random);
  return v;
}

std::vector<TokenId> Encode(const BpeMerges& merges, std::string_view piece) {
  BpeScratch scratch;
  std::vector<TokenId> ids;
  merges.Encode(piece, &scratch, &ids);
  return ids;
}

TEST(BpeMergesTest, EqualsTheReferenceOnRandomVocabularies) {
  std::mt19937 random(11);
  const std::string_view letters = "ab\xC3 ";
  for (int round = 0; round < 40; ++round) {
    const manifest::Vocabulary v = RandomVocabulary(&random, letters, 5 + static_cast<int>(random() % 60));
    const auto table = TokenTable::Create(v, {});
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    const auto merges = BpeMerges::Create(*table);
    ASSERT_TRUE(merges.ok()) << merges.status().ToString();
    for (int piece_round = 0; piece_round < 30; ++piece_round) {
      std::string piece;
      const size_t length = 1 + random() % (piece_round % 3 == 0 ? 200 : 34);
      for (size_t i = 0; i < length; ++i) piece += letters[random() % letters.size()];
      ASSERT_EQ(Encode(*merges, piece), ReferenceEncode(v, piece)) << testing::PrintToString(piece);
    }
  }
}

TEST(BpeMergesTest, RankDecidesNotPosition) {
  manifest::Vocabulary v = ByteVocabulary("default");
  for (const auto& [left, right] : std::vector<std::pair<const char*, const char*>>{
           {"a", "l"}, {"i", "s"}, {"al", "is"}, {"alis", "t"}, {"b", "r"}, {"u", "t"}, {"r", "u"}, {"t", "a"}}) {
    AddMerge(&v, left, right);
  }
  const auto table = TokenTable::Create(v, {});
  ASSERT_TRUE(table.ok());
  const auto merges = BpeMerges::Create(*table);
  ASSERT_TRUE(merges.ok());
  const auto id = [&](const char* text) { return *table->Find(text); };
  EXPECT_EQ(Encode(*merges, "brutalist"), (std::vector<TokenId>{id("br"), id("ut"), id("alist")}));
  EXPECT_EQ(Encode(*merges, "rut"), (std::vector<TokenId>{id("r"), id("ut")}));
}

TEST(BpeMergesTest, EqualPairsMergeFromTheLeft) {
  manifest::Vocabulary v = ByteVocabulary("default");
  AddMerge(&v, "a", "a");
  const auto table = TokenTable::Create(v, {});
  const auto merges = BpeMerges::Create(*table);
  ASSERT_TRUE(merges.ok());
  const TokenId aa = *table->Find("aa");
  EXPECT_EQ(Encode(*merges, "aaaaa"), (std::vector<TokenId>{aa, aa, 'a'}));
  const std::vector<TokenId> many = Encode(*merges, std::string(1001, 'a'));
  ASSERT_EQ(many.size(), 501u);
  EXPECT_EQ(many.front(), aa);
  EXPECT_EQ(many.back(), 'a');
}

TEST(BpeMergesTest, MegabyteWithoutBreaks) {
  manifest::Vocabulary v = ByteVocabulary("default");
  std::string run = "a";
  for (int i = 0; i < 10; ++i) {
    AddMerge(&v, run, run);
    run += run;
  }
  const auto table = TokenTable::Create(v, {});
  const auto merges = BpeMerges::Create(*table);
  ASSERT_TRUE(merges.ok());
  const std::vector<TokenId> ids = Encode(*merges, std::string(1 << 20, 'a'));
  EXPECT_EQ(ids, std::vector<TokenId>(1 << 10, *table->Find(run)));
}

TEST(BpeMergesTest, CorruptEntriesAreNamed) {
  struct Case {
    std::vector<std::string> merges;
    const char* named;
  };
  for (const Case& c : {Case{{"a b", "ab"}, "merges[1]"}, Case{{"a "}, "merges[0]"}, Case{{""}, "merges[0]"},
                        Case{{" "}, "merges[0]"}, Case{{" a"}, "merges[0]"}}) {
    manifest::Vocabulary v = ByteVocabulary("default");
    v.merges = c.merges;
    const auto table = TokenTable::Create(v, {});
    const auto merges = BpeMerges::Create(*table);
    ASSERT_FALSE(merges.ok()) << c.named;
    EXPECT_EQ(merges.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(merges.status().message().find(c.named), std::string::npos) << merges.status().ToString();
  }
}

TEST(BpeMergesTest, MergesOutsideTheByteAlphabetAreIgnored) {
  manifest::Vocabulary v = ByteVocabulary("default");
  v.merges = {"\u2581 t", "\u65E5 \u672C"};
  AddMerge(&v, "a", "b");
  const auto table = TokenTable::Create(v, {});
  const auto merges = BpeMerges::Create(*table);
  ASSERT_TRUE(merges.ok()) << merges.status().ToString();
  EXPECT_EQ(Encode(*merges, "ab"), (std::vector<TokenId>{*table->Find("ab")}));
}

TEST(BpeMergesTest, TooManyMergesAreCorrupt) {
  manifest::Vocabulary v = ByteVocabulary("default");
  v.merges.assign(100'000, "a b");
  const auto table = TokenTable::Create(v, {});
  const auto merges = BpeMerges::Create(*table);
  ASSERT_FALSE(merges.ok());
  EXPECT_EQ(merges.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(merges.status().message().find("100000"), std::string::npos);
}

TEST(BpeMergesTest, BytesWithoutTokens) {
  manifest::Vocabulary v = ByteVocabulary("default");
  v.tokens[0xC0] = "other";  // never in valid UTF-8
  {
    const auto table = TokenTable::Create(v, {});
    const auto merges = BpeMerges::Create(*table);
    ASSERT_TRUE(merges.ok()) << merges.status().ToString();
    EXPECT_LT(merges->byte_token(0xC0), 0);
  }
  v.tokens['q'] = "another";
  {
    const auto table = TokenTable::Create(v, {});
    const auto merges = BpeMerges::Create(*table);
    ASSERT_FALSE(merges.ok());
    EXPECT_EQ(merges.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(merges.status().message().find("\"q\" for byte 0x71"), std::string::npos) << merges.status().ToString();
  }
  v.unknown = 3;
  const auto table = TokenTable::Create(v, {});
  const auto merges = BpeMerges::Create(*table);
  ASSERT_TRUE(merges.ok());
  EXPECT_EQ(merges->byte_token('q'), 3);
  EXPECT_EQ(Encode(*merges, "q"), (std::vector<TokenId>{3}));
}

}  // namespace
}  // namespace bellhop::text
