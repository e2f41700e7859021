// JSON text of requests and answers.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::server {

// An object of at most kMaxJsonDepth levels. kInvalidArgument says where the text is wrong.
inline constexpr int kMaxJsonDepth = 128;
Result<nlohmann::ordered_json> ParseJsonObject(std::string_view text);

// Compact; bytes that are not UTF-8 become U+FFFD.
std::string JsonText(const nlohmann::ordered_json& value);
// The same for text that becomes a key.
std::string JsonSafe(std::string_view text);

}  // namespace bellhop::server
