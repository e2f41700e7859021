#include "frontends/server/json_text.h"

#include <algorithm>

namespace bellhop::server {
namespace {

// Levels of nesting, so that nothing later recurses deeper than its stack.
int DepthOf(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// "[json.exception.parse_error.101] parse error at line 1, column 5: ..." without its number.
std::string Words(const char* what) {
  const std::string_view text = what;
  const size_t end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace

Result<nlohmann::ordered_json> ParseJsonObject(std::string_view text) {
  if (text.empty()) return InvalidArgument("the request has no body; send a JSON object");
  if (DepthOf(text) > kMaxJsonDepth) {
    return InvalidArgument("the body is nested deeper than {} levels", kMaxJsonDepth);
  }
  try {
    nlohmann::ordered_json value = nlohmann::ordered_json::parse(text);
    if (!value.is_object()) return InvalidArgument("the body must be a JSON object, not {}", value.type_name());
    return value;
  } catch (const nlohmann::ordered_json::exception& error) {  // also a number that no double holds
    return InvalidArgument("the body is not JSON: {}", Words(error.what()));
  }
}

std::string JsonText(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string JsonSafe(std::string_view text) {
  return nlohmann::ordered_json::parse(JsonText(std::string(text))).get<std::string>();
}

}  // namespace bellhop::server
