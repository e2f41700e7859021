// Arrays of token ids in requests.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "frontends/server/api_call.h"

namespace bellhop::server {

std::optional<ApiError> ReadTokens(const ApiContext& context, const Json& list, std::string_view path,
                                   std::vector<TokenId>* ids);

}  // namespace bellhop::server
