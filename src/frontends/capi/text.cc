// Tokens and chat templates. These functions only read what does not change after loading, so they work inside
// callbacks too.
#include <nlohmann/json.hpp>

#include "bellhop/bellhop.h"
#include "frontends/capi/calls.h"

namespace bellhop::capi {
namespace {

constexpr uint32_t kAllFlags = BELLHOP_TOKENIZE_ADD_SPECIAL | BELLHOP_TOKENIZE_PARSE_SPECIAL | BELLHOP_TOKENIZE_CHAT;

Result<std::vector<TokenId>> Tokenize(const engine::TextEngine& engine, std::string_view text, uint32_t flags) {
  if ((flags & ~kAllFlags) != 0) return InvalidArgument("flags {:#x}: unknown bits {:#x}", flags, flags & ~kAllFlags);
  if ((flags & BELLHOP_TOKENIZE_CHAT) != 0) return engine.TokenizeChat(text);
  return engine.Tokenize(text, (flags & BELLHOP_TOKENIZE_ADD_SPECIAL) != 0,
                         (flags & BELLHOP_TOKENIZE_PARSE_SPECIAL) != 0);
}

Result<nlohmann::ordered_json> ToJson(const bellhop_message* messages, size_t count) {
  BELLHOP_TRY(CheckArray(messages, count, "messages"));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < count; ++i) {
    BELLHOP_TRY(CheckNotNull(messages[i].role, "a message's role"));
    BELLHOP_TRY(CheckNotNull(messages[i].content, "a message's content"));
    list.push_back({{"role", messages[i].role}, {"content", messages[i].content}});
  }
  return list;
}

Result<nlohmann::ordered_json> ParseExtra(const char* text) {
  if (text == nullptr) return nlohmann::ordered_json::object();
  nlohmann::ordered_json extra = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!extra.is_object()) return InvalidArgument("extra_json is not a JSON object");
  return extra;
}

}  // namespace
}  // namespace bellhop::capi

using namespace bellhop;        // NOLINT: this file defines C functions alone
using namespace bellhop::capi;  // NOLINT

extern "C" {

bellhop_status bellhop_tokenize(const bellhop_engine* engine, const char* text, size_t text_bytes, uint32_t flags,
                                int32_t* ids, size_t capacity, size_t* count) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    BELLHOP_TRY(CheckArray(text, text_bytes, "text"));
    BELLHOP_TRY_ASSIGN(const std::vector<TokenId> tokens,
                       Tokenize(*engine->engine, {text == nullptr ? "" : text, text_bytes}, flags));
    return CopyItems(tokens.data(), tokens.size(), ids, capacity, count);
  });
}

bellhop_status bellhop_detokenize(const bellhop_engine* engine, const int32_t* ids, size_t count, int32_t special,
                                  char* buffer, size_t capacity, size_t* bytes) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    BELLHOP_TRY(CheckArray(ids, count, "ids"));
    BELLHOP_TRY(CheckFlag(special, "special"));
    return CopyText(engine->engine->Detokenize({ids, count}, special == 1), buffer, capacity, bytes);
  });
}

bellhop_status bellhop_token_text(const bellhop_engine* engine, int32_t id, char* buffer, size_t capacity,
                                  size_t* bytes) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    const int32_t vocab = engine->engine->info().vocab;
    if (id < 0 || id >= vocab) return InvalidArgument("token {} is outside the vocabulary of {}", id, vocab);
    return CopyText(engine->engine->TokenText(id), buffer, capacity, bytes);
  });
}

bellhop_status bellhop_apply_chat_template(const bellhop_engine* engine, const bellhop_message* messages, size_t count,
                                           int32_t add_generation_prompt, const char* extra_json, char* buffer,
                                           size_t capacity, size_t* bytes) noexcept {
  return Guarded([&]() -> Outcome {
    BELLHOP_TRY(CheckNotNull(engine, "engine"));
    BELLHOP_TRY(CheckFlag(add_generation_prompt, "add_generation_prompt"));
    BELLHOP_TRY_ASSIGN(const nlohmann::ordered_json list, ToJson(messages, count));
    BELLHOP_TRY_ASSIGN(const nlohmann::ordered_json extra, ParseExtra(extra_json));
    BELLHOP_TRY_ASSIGN(const std::string text, engine->engine->RenderChat(list, add_generation_prompt == 1, extra));
    return CopyText(text, buffer, capacity, bytes);
  });
}

}  // extern "C"
