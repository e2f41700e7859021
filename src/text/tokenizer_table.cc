#include "text/tokenizer_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <utility>

namespace bellhop::text {
namespace {

using manifest::TokenType;

// Tokens that end a turn or a document in one model family or another.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "<|end_of_text|>",
                                          "<end_of_turn>",
                                          "<\xEF\xBD\x9C"
                                          "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

// Fill-in-the-middle separators by their usual texts, for files without the ids.
constexpr std::string_view kFimPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>"};
constexpr std::string_view kFimRepTexts[] = {"<|repo_name|>", "<|fim_repo|>", "<fim-repo>", "<reponame>"};
constexpr std::string_view kFimSepTexts[] = {"<|file_sep|>"};

// gpt-oss tokens that structure its output and have to be seen there.
constexpr std::string_view kGptOssVisible[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

uint32_t HashText(std::string_view text) {
  const size_t hash = std::hash<std::string_view>()(text);
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

}  // namespace

int ByteTokenValue(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = HexDigit(text[3]);
  const int low = HexDigit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

TokenTextIndex::TokenTextIndex(const std::vector<std::string>& texts, size_t capacity)
    : texts_(&texts), slots_(std::bit_ceil(2 * capacity + 2)) {}

size_t TokenTextIndex::Locate(std::string_view text, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || (*texts_)[static_cast<size_t>(slots_[at].id)] != text)) {
    at = (at + 1) & mask;
  }
  return at;
}

std::optional<TokenId> TokenTextIndex::Insert(TokenId id) {
  const std::string& text = (*texts_)[static_cast<size_t>(id)];
  const uint32_t hash = HashText(text);
  Slot& slot = slots_[Locate(text, hash)];
  if (slot.id >= 0) return slot.id;
  slot = {hash, id};
  return std::nullopt;
}

void TokenTextIndex::Replace(TokenId old_id, TokenId new_id) {
  const std::string& text = (*texts_)[static_cast<size_t>(old_id)];
  slots_[Locate(text, HashText(text))].id = new_id;
}

std::optional<TokenId> TokenTextIndex::Find(std::string_view text) const {
  const TokenId id = slots_[Locate(text, HashText(text))].id;
  return id < 0 ? std::nullopt : std::optional<TokenId>(id);
}

Result<TokenTable> TokenTable::Create(const manifest::Vocabulary& vocabulary, const TokenTableDefaults& defaults) {
  TokenTable table;
  table.vocabulary_ = &vocabulary;
  BELLHOP_TRY(table.CheckTypes());
  BELLHOP_TRY(table.IndexTexts());
  BELLHOP_TRY(table.CheckIds(defaults));
  table.ApplyGptOssRules();
  table.CollectEndOfGeneration();
  return table;
}

Status TokenTable::CheckTypes() {
  const size_t count = vocabulary_->tokens.size();
  if (count == 0) return Corrupt("tokenizer.ggml.tokens is empty; the file needs a vocabulary");
  if (count > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return Corrupt("tokenizer.ggml.tokens has {} entries; token ids end at {}", count,
                   std::numeric_limits<TokenId>::max());
  }
  if (vocabulary_->types.empty()) {
    types_.assign(count, TokenType::kNormal);
    return {};
  }
  if (vocabulary_->types.size() != count) {
    return Corrupt("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens has {}; convert the file again",
                   vocabulary_->types.size(), count);
  }
  types_ = vocabulary_->types;
  for (size_t i = 0; i < count; ++i) {
    // 0 is "undefined" in old files; such tokens behave like normal ones.
    const auto value = static_cast<int32_t>(types_[i]);
    if (value == 0) types_[i] = TokenType::kNormal;
    if (value < 0 || value > 6) return Corrupt("tokenizer.ggml.token_type[{}] is {}; types are 1 to 6", i, value);
  }
  return {};
}

Status TokenTable::IndexTexts() {
  by_text_ = TokenTextIndex(vocabulary_->tokens, types_.size());
  for (TokenId id = 0; id < size(); ++id) {
    if (text(id).empty()) continue;  // stands for nothing; several may be empty
    const std::optional<TokenId> same = by_text_.Insert(id);
    if (!same) continue;
    // Padding is never looked up, so copies of it do no harm.
    if (type(id) == TokenType::kUnused) continue;
    if (type(*same) == TokenType::kUnused) {
      by_text_.Replace(*same, id);
      continue;
    }
    return Corrupt("tokenizer.ggml.tokens[{}] and [{}] have the same text \"{}\"; convert the file again", *same, id,
                   text(id));
  }
  return {};
}

Status TokenTable::CheckIds(const TokenTableDefaults& defaults) {
  const manifest::Vocabulary& v = *vocabulary_;
  // Padding and separator ids are not used here, and files exist in which they point past the end.
  const std::pair<const char*, std::optional<TokenId>> ids[] = {
      {"bos_token_id", v.bos},         {"eos_token_id", v.eos},         {"eot_token_id", v.eot},
      {"eom_token_id", v.eom},         {"unknown_token_id", v.unknown}, {"mask_token_id", v.mask},
      {"fim_pre_token_id", v.fim_pre}, {"fim_suf_token_id", v.fim_suf}, {"fim_mid_token_id", v.fim_mid},
      {"fim_pad_token_id", v.fim_pad}, {"fim_rep_token_id", v.fim_rep}, {"fim_sep_token_id", v.fim_sep}};
  for (const auto& [name, id] : ids) {
    if (id && !Contains(*id)) {
      return Corrupt("tokenizer.ggml.{} is {}, but the vocabulary has {} tokens; correct the key or convert again",
                     name, *id, size());
    }
  }
  const auto pick = [this](std::optional<TokenId> stated, std::optional<TokenId> fallback) {
    if (stated) return stated;
    return fallback && Contains(*fallback) ? fallback : std::nullopt;
  };
  bos_ = pick(v.bos, defaults.bos);
  eos_ = pick(v.eos, defaults.eos);
  unknown_ = pick(v.unknown, defaults.unknown);
  adds_bos_ = v.add_bos.value_or(defaults.add_bos) && bos_.has_value();
  adds_eos_ = v.add_eos.value_or(false) && eos_.has_value();
  return {};
}

void TokenTable::ApplyGptOssRules() {
  gpt_oss_ = Find("<|return|>").has_value() && Find("<|call|>").has_value();
  if (!gpt_oss_) return;
  for (const std::string_view text : kGptOssVisible) {
    if (const auto id = Find(text)) types_[static_cast<size_t>(*id)] = TokenType::kUserDefined;
  }
}

void TokenTable::CollectEndOfGeneration() {
  std::vector<TokenId>& set = end_of_generation_;
  const auto add = [&set](std::optional<TokenId> id) {
    if (id) set.push_back(*id);
  };
  const auto add_stated_or_named = [&](std::optional<TokenId> stated, const auto& texts) {
    add(stated);
    if (stated) return;
    for (const std::string_view text : texts) add(Find(text));
  };
  const manifest::Vocabulary& v = *vocabulary_;
  for (const std::string_view text : kEndTexts) add(Find(text));
  // gpt-oss ends each of its inner messages with <|end|> and goes on.
  if (gpt_oss_) std::erase(set, Find("<|end|>").value_or(-1));
  add(eos_);
  add(v.eot);
  add(v.eom);
  add_stated_or_named(v.fim_pad, kFimPadTexts);
  add_stated_or_named(v.fim_rep, kFimRepTexts);
  add_stated_or_named(v.fim_sep, kFimSepTexts);
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
}

std::optional<TokenId> TokenTable::Find(std::string_view text) const { return by_text_.Find(text); }

std::optional<TokenId> TokenTable::FindMergeable(std::string_view text) const {
  const std::optional<TokenId> id = Find(text);
  if (!id) return std::nullopt;
  switch (type(*id)) {
    case TokenType::kNormal:
    case TokenType::kUserDefined:
    case TokenType::kUnused: return id;
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kByte: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<TokenId> TokenTable::FindByte(uint8_t byte) const {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const char text[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
  return Find({text, sizeof(text)});
}

}  // namespace bellhop::text
