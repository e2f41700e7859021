#include "formats/gguf/vocabulary_reader.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"

namespace bellhop::formats {

using manifest::MetaArray;
using manifest::Metadata;
using manifest::MetaValue;
using manifest::TokenType;
using manifest::Vocabulary;

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string Key(std::string_view suffix) { return fmt::format("{}{}", kPrefix, suffix); }

Status CheckCount(std::string_view key, size_t count, size_t tokens) {
  if (count == tokens) return {};
  return Corrupt("key '{}': {} values for {} tokens", key, count, tokens);
}

Status ReadTokens(const Metadata& metadata, Vocabulary* vocabulary) {
  BELLHOP_TRY_ASSIGN(const std::vector<std::string_view> tokens, metadata.GetStringArray(Key("tokens")));
  vocabulary->tokens.assign(tokens.begin(), tokens.end());
  if (metadata.Has(Key("scores"))) {
    BELLHOP_TRY_ASSIGN(vocabulary->scores, metadata.GetFloatArray(Key("scores")));
    BELLHOP_TRY(CheckCount(Key("scores"), vocabulary->scores.size(), tokens.size()));
  }
  if (metadata.Has(Key("merges"))) {
    BELLHOP_TRY_ASSIGN(const std::vector<std::string_view> merges, metadata.GetStringArray(Key("merges")));
    vocabulary->merges.assign(merges.begin(), merges.end());
  }
  if (!metadata.Has(Key("token_type"))) return {};
  BELLHOP_TRY_ASSIGN(const std::vector<int64_t> types, metadata.GetIntArray(Key("token_type")));
  BELLHOP_TRY(CheckCount(Key("token_type"), types.size(), tokens.size()));
  vocabulary->types.reserve(types.size());
  for (const int64_t type : types) {
    if (type < 0 || type > static_cast<int64_t>(TokenType::kByte)) {
      return Corrupt("key '{}': type {} of token {} is not known (1 to 6 are)", Key("token_type"), type,
                     vocabulary->types.size());
    }
    vocabulary->types.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));
  }
  return {};
}

Status ReadId(const Metadata& metadata, const std::string& key, size_t tokens, std::optional<TokenId>* out) {
  if (!metadata.Has(key)) return {};
  BELLHOP_TRY_ASSIGN(const int64_t id, metadata.GetInt(key));
  if (id == -1 || id == int64_t{std::numeric_limits<uint32_t>::max()}) return {};
  if (id < 0 || id > std::numeric_limits<TokenId>::max() || static_cast<uint64_t>(id) >= tokens) {
    return Corrupt("key '{}': token {} does not exist, the vocabulary has {}", key, id, tokens);
  }
  *out = static_cast<TokenId>(id);
  return {};
}

Status ReadIds(const Metadata& metadata, Vocabulary* v) {
  // "seperator" is how the format spells it; files with the dictionary's spelling exist too.
  const std::pair<const char*, std::optional<TokenId>*> ids[] = {
      {"bos", &v->bos},
      {"eos", &v->eos},
      {"eot", &v->eot},
      {"eom", &v->eom},
      {"unknown", &v->unknown},
      {"separator", &v->separator},
      {"seperator", &v->separator},
      {"padding", &v->padding},
      {"mask", &v->mask},
      {"fim_pre", &v->fim_pre},
      {"fim_suf", &v->fim_suf},
      {"fim_mid", &v->fim_mid},
      {"fim_pad", &v->fim_pad},
      {"fim_rep", &v->fim_rep},
      {"fim_sep", &v->fim_sep},
  };
  for (const auto& [name, out] : ids) {
    BELLHOP_TRY(ReadId(metadata, Key(fmt::format("{}_token_id", name)), v->tokens.size(), out));
  }
  return {};
}

Status ReadFlags(const Metadata& metadata, Vocabulary* v) {
  const std::pair<const char*, std::optional<bool>*> flags[] = {
      {"add_bos_token", &v->add_bos},
      {"add_eos_token", &v->add_eos},
      {"add_sep_token", &v->add_sep},
      {"add_space_prefix", &v->add_space_prefix},
      {"remove_extra_whitespaces", &v->remove_extra_whitespaces},
  };
  for (const auto& [name, out] : flags) {
    const std::string key = Key(name);
    if (!metadata.Has(key)) continue;
    BELLHOP_TRY_ASSIGN(*out, metadata.GetBool(key));
  }
  return {};
}

Status ReadTemplates(const Metadata& metadata, Vocabulary* v) {
  if (metadata.Has(kTemplateKey)) {
    BELLHOP_TRY_ASSIGN(const std::string_view text, metadata.GetString(kTemplateKey));
    v->chat_template = std::string(text);
  }
  const std::string named = std::string(kTemplateKey) + ".";
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (entry.key.compare(0, named.size(), named) != 0) continue;
    BELLHOP_TRY_ASSIGN(const std::string_view text, metadata.GetString(entry.key));
    v->named_templates.emplace(entry.key.substr(named.size()), text);
  }
  return {};
}

}  // namespace

Result<Vocabulary> ReadVocabulary(const Metadata& metadata) {
  Vocabulary vocabulary;
  BELLHOP_TRY(ReadTemplates(metadata, &vocabulary));
  BELLHOP_TRY_ASSIGN(const std::string_view model, metadata.GetStringOr(Key("model"), ""));
  if (model.empty()) return vocabulary;
  vocabulary.model = std::string(model);
  BELLHOP_TRY_ASSIGN(const std::string_view pre, metadata.GetStringOr(Key("pre"), ""));
  vocabulary.pre = std::string(pre);
  // "none": the model takes token ids only.
  if (model == "none" && !metadata.Has(Key("tokens"))) return vocabulary;
  BELLHOP_TRY(ReadTokens(metadata, &vocabulary));
  BELLHOP_TRY(ReadIds(metadata, &vocabulary));
  BELLHOP_TRY(ReadFlags(metadata, &vocabulary));
  return vocabulary;
}

}  // namespace bellhop::formats
