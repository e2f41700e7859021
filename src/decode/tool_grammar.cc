#include "decode/tool_grammar.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "decode/constraint.h"
#include "decode/grammar.h"
#include "decode/json_schema.h"

namespace bellhop::decode {
namespace {

using Json = nlohmann::ordered_json;

struct Function {
  std::string name;
  std::string arguments;  // rule
};

std::string Quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

// The arguments' rule; appends the rules that it needs.
Result<std::string> Arguments(const Json& function, const std::string& prefix, std::string* rules) {
  const bool strict = function.contains("strict") && function["strict"] == Json(true);
  if (!function.contains("parameters") || function["parameters"].is_null()) return std::string("none");
  Json schema = function["parameters"];
  if (!schema.is_object()) return InvalidArgument("give an object: a JSON schema");
  if (!schema.contains("type") && !schema.contains("$ref") && !schema.contains("anyOf") && !schema.contains("oneOf") &&
      !schema.contains("allOf")) {
    schema["type"] = "object";
  }
  // Compiled on its own first, so that an error of one function does not spoil the others.
  const auto alone = JsonSchemaToGbnf(schema);
  if (!alone.ok()) {
    if (strict) return alone.status();
    return std::string("any-object");
  }
  BELLHOP_TRY_ASSIGN(const GbnfRules made, JsonSchemaRules(schema, prefix));
  *rules += made.rules;
  return made.value;
}

Result<std::vector<Function>> ReadFunctions(const Json& tools, const std::optional<std::string>& only,
                                            std::string* rules) {
  if (!tools.is_array()) return InvalidArgument("tools: give an array of tools");
  std::vector<Function> functions;
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    const Json& tool = tools[i];
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object() ||
        (tool.contains("type") && tool["type"] != Json("function"))) {
      return InvalidArgument("{}: give {{\"type\": \"function\", \"function\": {{...}}}}", where);
    }
    const Json& function = tool["function"];
    if (!function.contains("name") || !function["name"].is_string() || function["name"] == Json("")) {
      return InvalidArgument("{}.function.name: give the function's name", where);
    }
    const std::string name = function["name"].get<std::string>();
    if (!names.insert(name).second) return InvalidArgument("{}.function.name: '{}' is there twice", where, name);
    if (only && *only != name) continue;
    auto arguments = Arguments(function, fmt::format("f{}-", i), rules);
    if (!arguments.ok()) return arguments.status().WithContext(where + ".function.parameters");
    functions.push_back({name, std::move(*arguments)});
  }
  if (functions.empty() && only) return InvalidArgument("tool_choice: no tool has the name '{}'", *only);
  if (functions.empty()) return InvalidArgument("tools: give at least one function");
  return functions;
}

// Rules "{name}-0" and on: text up to and with the first `end`.
std::string TextUpTo(const std::string& name, const std::string& end) {
  std::string rules;
  for (size_t matched = 0; matched < end.size(); ++matched) {
    const std::string prefix = end.substr(0, matched);
    const bool last = matched + 1 == end.size();
    const std::string next = last ? "" : fmt::format(" {}-{}", name, matched + 1);
    rules += fmt::format("{}-{} ::= {}{}", name, matched, GbnfLiteral(end.substr(matched, 1)), next);
    // `end` begins with a byte that does not occur in it again: a mismatch starts anew, with or without that byte.
    if (matched > 0) rules += fmt::format(" | {} {}-1", GbnfLiteral(end.substr(0, 1)), name);
    const std::string expected = matched > 0 ? end.substr(0, 1) + end.substr(matched, 1) : end.substr(0, 1);
    rules += fmt::format(" | [^{}] {}-0", expected, name);
    if (matched == 0) rules += fmt::format(" | <{}>", end.substr(1, end.size() - 2));
    rules += "\n";
  }
  return rules;
}

std::string HermesGrammar(const std::vector<Function>& functions, bool parallel, ToolStart start) {
  std::string calls;
  for (const Function& function : functions) {
    calls += fmt::format("{}\"{{\" ws \"\\\"name\\\":\" ws {} \",\" ws \"\\\"arguments\\\":\" ws {} ws \"}}\"",
                         calls.empty() ? "" : " | ", GbnfLiteral(Quoted(function.name)), function.arguments);
  }
  std::string out = "call ::= " + calls + "\n";
  out += "begin ::= \"<tool_call>\" | <tool_call>\n";
  out += "finish ::= \"</tool_call>\" | </tool_call>\n";
  out += "one ::= [ \\n]{0,2} call [ \\n]{0,2} finish\n";
  out += fmt::format("calls ::= one{}\n", parallel ? " (\"\\n\"{0,2} begin one)*" : "");
  if (start == ToolStart::kOnTrigger) return out + "root ::= calls\n";
  out += TextUpTo("thought", "</think>");
  const bool open = start == ToolStart::kRequiredInReasoning;
  out += fmt::format("root ::= {} \"\\n\"{{0,2}} begin calls\n",
                     open ? "thought-0" : "((\"<think>\" | <think>) thought-0)?");
  return out;
}

std::string HarmonyGrammar(const std::vector<Function>& functions, ToolStart start) {
  std::string calls;
  for (const Function& function : functions) {
    calls += fmt::format("{}{} header {}", calls.empty() ? "" : " | ", GbnfLiteral(function.name), function.arguments);
  }
  std::string out = "call ::= " + calls + "\n";
  out += "channel ::= <|channel|> (\"commentary\" | \"analysis\")\n";
  out += "header ::= channel? \" \"? (<|constrain|>? \"json\")? <|message|>\n";
  if (start == ToolStart::kOnTrigger) return out + "root ::= call\n";
  out += "turn ::= .* <|end|> <|start|> \"assistant\"\n";
  const bool open = start == ToolStart::kRequiredInReasoning;
  out += fmt::format("root ::= {} channel? \" to=functions.\" call\n",
                     open ? "turn" : "(<|channel|> \"analysis\" <|message|> turn)?");
  return out;
}

}  // namespace

Result<ToolGrammar> MakeToolGrammar(ToolFormat format, const nlohmann::ordered_json& tools,
                                    const std::optional<std::string>& only_function, bool parallel, ToolStart start) {
  std::string rules;
  BELLHOP_TRY_ASSIGN(const std::vector<Function> functions, ReadFunctions(tools, only_function, &rules));
  ToolGrammar grammar;
  grammar.gbnf =
      format == ToolFormat::kHermes ? HermesGrammar(functions, parallel, start) : HarmonyGrammar(functions, start);
  BELLHOP_TRY_ASSIGN(const GbnfRules any, JsonSchemaRules({{"type", "object"}}, "any-"));
  grammar.gbnf += rules + any.rules + "ws ::= any-ws\nnone ::= \"{\" ws \"}\"\n";
  if (start == ToolStart::kOnTrigger && format == ToolFormat::kHermes) grammar.triggers = {"<tool_call>"};
  if (start == ToolStart::kOnTrigger && format == ToolFormat::kHarmony) {
    const std::string to = " to=functions.";
    grammar.triggers = {"<|channel|>commentary" + to, "<|channel|>analysis" + to, "<|start|>assistant" + to,
                        Constraint::kTextStart + to};
  }
  if (const auto parsed = Grammar::Parse(grammar.gbnf); !parsed.ok()) {
    return parsed.status().WithContext("tools: their grammar does not compile");
  }
  return grammar;
}

}  // namespace bellhop::decode
