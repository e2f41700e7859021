#include "frontends/server/text_calls.h"

#include <fmt/format.h>

#include "frontends/server/fields.h"
#include "frontends/server/token_list.h"

namespace bellhop::server {

std::variant<Json, ApiError> TokenizeCall(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  const auto content = reader.String("content");
  if (reader.ok() && !content) reader.Fail("content", "is missing; it must be a string");
  const bool add_special = reader.Bool("add_special").value_or(false);
  const bool parse_special = reader.Bool("parse_special").value_or(true);
  const bool pieces = reader.Bool("with_pieces").value_or(false);
  reader.RejectUnknown();
  if (!reader.ok()) return reader.error();
  const auto tokens = context.engine->Tokenize(*content, add_special, parse_special);
  if (!tokens.ok()) return FieldError("content", std::string(tokens.status().message()));
  Json list = Json::array();
  for (const TokenId id : *tokens) {
    if (pieces) {
      list.push_back({{"id", id}, {"piece", context.engine->TokenText(id)}});
    } else {
      list.push_back(id);
    }
  }
  return Json{{"tokens", std::move(list)}};
}

std::variant<Json, ApiError> DetokenizeCall(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  const Json* tokens = reader.Array("tokens");
  if (reader.ok() && tokens == nullptr) reader.Fail("tokens", "is missing; it must be an array of token ids");
  std::vector<TokenId> ids;
  if (tokens != nullptr) {
    if (auto error = ReadTokens(context, *tokens, "tokens", &ids)) reader.Fail(std::move(*error));
  }
  reader.RejectUnknown();
  if (!reader.ok()) return reader.error();
  return Json{{"content", context.engine->Detokenize(ids, true)}};
}

std::variant<Json, ApiError> ApplyTemplateCall(const ApiContext& context, const Json& body) {
  ParsedCall call = ParseChatCompletion(context, body);
  if (auto* error = std::get_if<ApiError>(&call)) return std::move(*error);
  const auto sequences = std::get<std::unique_ptr<ApiCall>>(call)->TakeSequences();
  return Json{{"prompt", context.engine->Detokenize(sequences[0].prompt, true)}};
}

}  // namespace bellhop::server
