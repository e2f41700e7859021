// Template source to tokens, with the whitespace rules of Jinja2 under trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace bellhop::text {

enum class JinjaTokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct JinjaToken {
  JinjaTokenType type = JinjaTokenType::kEnd;
  int line = 1;
  std::string text;  // data, name, decoded string, operator
  int64_t integer = 0;
  double number = 0;

  bool Is(JinjaTokenType t, std::string_view s) const { return type == t && text == s; }
  bool IsName(std::string_view s) const { return Is(JinjaTokenType::kName, s); }
  bool IsOperator(std::string_view s) const { return Is(JinjaTokenType::kOperator, s); }
};

// The last token is kEnd. Errors: "<line>: <what>".
Result<std::vector<JinjaToken>> JinjaTokenize(std::string_view source);

// For messages: what stands there.
std::string DescribeToken(const JinjaToken& token);

}  // namespace bellhop::text
