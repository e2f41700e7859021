// /tokenize, /detokenize and /apply-template, as llama.cpp's server has them.
#pragma once

#include <variant>

#include "frontends/server/api_call.h"

namespace bellhop::server {

// {"content", "add_special", "parse_special", "with_pieces"} → {"tokens": [...]}
std::variant<Json, ApiError> TokenizeCall(const ApiContext& context, const Json& body);
// {"tokens": [...]} → {"content"}
std::variant<Json, ApiError> DetokenizeCall(const ApiContext& context, const Json& body);
// The prompt that /v1/chat/completions would make of the same body → {"prompt"}
std::variant<Json, ApiError> ApplyTemplateCall(const ApiContext& context, const Json& body);

}  // namespace bellhop::server
