// Grammars of tool calls, as models write them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace bellhop::decode {

enum class ToolFormat {
  kHermes,   // Qwen3 and others: <tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>
  kHarmony,  // gpt-oss: ... to=functions.NAME <|constrain|>json<|message|>{...}
};

enum class ToolStart {
  kOnTrigger,            // text is free until a call begins
  kRequired,             // a call, after at most one block of reasoning
  kRequiredInReasoning,  // the same, where the prompt has opened the block of reasoning
};

struct ToolGrammar {
  std::string gbnf;
  std::vector<std::string> triggers;  // for Constraint; empty: the grammar holds from the start
};

// `tools` as in OpenAI's chat completions: [{"type": "function", "function": {"name", "parameters", "strict"}}]. With
// `only_function` only that one may be called. With `parallel` several calls may follow each other; harmony ends the
// turn after each. Arguments follow the schema of `parameters`; where it cannot be enforced they are any JSON object,
// unless `strict` is true: then the error says what stands in the way.
Result<ToolGrammar> MakeToolGrammar(ToolFormat format, const nlohmann::ordered_json& tools,
                                    const std::optional<std::string>& only_function, bool parallel,
                                    ToolStart start = ToolStart::kOnTrigger);

}  // namespace bellhop::decode
