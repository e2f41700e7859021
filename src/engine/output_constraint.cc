#include "engine/output_constraint.h"

#include <fmt/format.h>

#include "decode/json_schema.h"
#include "decode/tool_grammar.h"

namespace bellhop::engine {
namespace {

// After reasoning a model begins its answer on a new line.
std::string AfterWhiteSpace(const decode::GbnfRules& rules) {
  return fmt::format("root ::= [ \\t\\r\\n]{{0,4}} {}\n{}", rules.value, rules.rules);
}

Result<OutputConstraint> FromGbnf(std::string_view gbnf, std::vector<std::string> triggers) {
  OutputConstraint constraint;
  BELLHOP_TRY_ASSIGN(constraint.grammar, decode::Grammar::Parse(gbnf));
  constraint.triggers = std::move(triggers);
  return constraint;
}

}  // namespace

Result<OutputConstraint> ConstrainToGrammar(std::string_view gbnf, const std::string& after) {
  return FromGbnf(gbnf, after.empty() ? std::vector<std::string>() : std::vector<std::string>{after});
}

Result<OutputConstraint> ConstrainToJson(const nlohmann::ordered_json* schema, const std::string& after) {
  if (after.empty()) {
    if (schema == nullptr) return FromGbnf(decode::JsonObjectGbnf(), {});
    BELLHOP_TRY_ASSIGN(const std::string gbnf, decode::JsonSchemaToGbnf(*schema));
    return FromGbnf(gbnf, {});
  }
  const nlohmann::ordered_json any = {{"type", "object"}, {"additionalProperties", true}};
  BELLHOP_TRY_ASSIGN(const decode::GbnfRules rules, decode::JsonSchemaRules(schema == nullptr ? any : *schema, "json"));
  return FromGbnf(AfterWhiteSpace(rules), {after});
}

Result<OutputConstraint> ConstrainToTools(text::ChatFormat format, const nlohmann::ordered_json& tools,
                                          const ToolConstraintOptions& options) {
  if (format == text::ChatFormat::kTagged) {
    return Unsupported("calls of this model's format (<function=...>) cannot be forced; use tool_choice auto");
  }
  const auto tool_format =
      format == text::ChatFormat::kHarmony ? decode::ToolFormat::kHarmony : decode::ToolFormat::kHermes;
  const auto start = !options.required      ? decode::ToolStart::kOnTrigger
                     : options.in_reasoning ? decode::ToolStart::kRequiredInReasoning
                                            : decode::ToolStart::kRequired;
  BELLHOP_TRY_ASSIGN(decode::ToolGrammar grammar,
                     decode::MakeToolGrammar(tool_format, tools, options.only_function, options.parallel, start));
  return FromGbnf(grammar.gbnf, std::move(grammar.triggers));
}

}  // namespace bellhop::engine
