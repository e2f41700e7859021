#include "frontends/server/token_list.h"

#include <fmt/format.h>

#include "frontends/server/fields.h"

namespace bellhop::server {

std::optional<ApiError> ReadTokens(const ApiContext& context, const Json& list, std::string_view path,
                                   std::vector<TokenId>* ids) {
  const int32_t vocab = context.engine->info().vocab;
  ids->reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const bool whole = list[i].is_number_integer();
    const int64_t id = whole ? list[i].get<int64_t>() : -1;
    if (id < 0 || id >= vocab) {
      return FieldError(fmt::format("{}[{}]", path, i), fmt::format("is no token; ids are 0 to {}", vocab - 1));
    }
    ids->push_back(static_cast<TokenId>(id));
  }
  return std::nullopt;
}

}  // namespace bellhop::server
