// What generated text must look like: a grammar, a JSON schema, a tool call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "decode/grammar.h"
#include "text/chat_output.h"

namespace bellhop::engine {

struct OutputConstraint {
  std::shared_ptr<const decode::Grammar> grammar;
  std::vector<std::string> triggers;  // see SequenceRequest
};

// Errors name the line of the grammar, or the schema's keyword and its place. `after`: text that ends the model's
// reasoning, behind which the constraint begins; empty: it holds from the start.
Result<OutputConstraint> ConstrainToGrammar(std::string_view gbnf, const std::string& after = "");
// `schema` null: any JSON object.
Result<OutputConstraint> ConstrainToJson(const nlohmann::ordered_json* schema, const std::string& after = "");

struct ToolConstraintOptions {
  std::optional<std::string> only_function;  // none: any of the tools
  bool required = false;                     // the answer is a call, from its first character on
  bool in_reasoning = false;                 // the prompt has opened a block of reasoning
  bool parallel = true;                      // several calls may follow each other
};
// tools: OpenAI's array of {"type": "function", "function": {"name", "parameters", ...}}. kUnsupported for formats
// whose calls have no grammar here.
Result<OutputConstraint> ConstrainToTools(text::ChatFormat format, const nlohmann::ordered_json& tools,
                                          const ToolConstraintOptions& options);

}  // namespace bellhop::engine
