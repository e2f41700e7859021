#include "frontends/server/chat_turn.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "frontends/server/json_text.h"
#include "frontends/server/sampling_fields.h"

namespace bellhop::server {
namespace {

using text::ChatFormat;

const std::string kGrammarField = "grammar";

// For templates that know nothing of tools: what Qwen3's own template says, in a system message.
std::string ToolInstructions(const Json& tools) {
  std::string text = "You may call these functions:\n<tools>\n";
  for (const Json& tool : tools) text += JsonText(tool) + "\n";
  text +=
      "</tools>\n\nTo call one, answer with:\n<tool_call>\n{\"name\": NAME, \"arguments\": ARGUMENTS_OBJECT}\n"
      "</tool_call>";
  return text;
}

Json WithInstructions(const Json& messages, const Json& tools) {
  Json result = messages;
  const std::string text = ToolInstructions(tools);
  if (!result.empty() && result[0].value("role", "") == "system" && result[0].contains("content") &&
      result[0]["content"].is_string()) {
    result[0]["content"] = result[0]["content"].get<std::string>() + "\n\n" + text;
    return result;
  }
  result.insert(result.begin(), Json{{"role", "system"}, {"content", text}});
  // Calls and their results as text, since the template would leave them out.
  return result;
}

Json CallsAsText(const Json& messages) {
  Json result = messages;
  for (Json& message : result) {
    if (message.contains("tool_calls")) {
      std::string text = message.contains("content") && message["content"].is_string()
                             ? message["content"].get<std::string>()
                             : std::string();
      for (const Json& call : message["tool_calls"]) {
        const Json& arguments = call["function"]["arguments"];
        text += fmt::format("{}<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                            text.empty() ? "" : "\n", JsonText(call["function"]["name"]),
                            arguments.is_string() ? arguments.get<std::string>() : JsonText(arguments));
      }
      message["content"] = text;
      message.erase("tool_calls");
    }
    if (message.value("role", "") == "tool") {
      message["role"] = "user";
      message["content"] = fmt::format("<tool_response>\n{}\n</tool_response>", message["content"].get<std::string>());
    }
  }
  return result;
}

std::string_view TrimmedEnd(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

struct Rendered {
  std::string text;
  bool in_reasoning = false;
};

Result<Rendered> Render(const ApiContext& context, const ChatInput& input, ChatFormat own_format, bool use_tools) {
  const bool inject = use_tools && own_format == ChatFormat::kPlain;
  Json extra = input.template_arguments;
  if (use_tools && !inject) extra["tools"] = input.tools;
  const Json messages = own_format == ChatFormat::kPlain ? CallsAsText(input.messages) : input.messages;
  Rendered rendered;
  BELLHOP_TRY_ASSIGN(rendered.text, context.engine->RenderChat(
                                        inject ? WithInstructions(messages, input.tools) : messages, true, extra));
  rendered.in_reasoning = TrimmedEnd(rendered.text).ends_with("<think>");
  return rendered;
}

// The answer proper is what must fit, not the thoughts before it.
std::string EndOfReasoning(ChatFormat format, bool in_reasoning) {
  if (format == ChatFormat::kHarmony) return "<|channel|>final<|message|>";
  return in_reasoning ? "</think>" : "";
}

Result<engine::OutputConstraint> Constrain(const ChatInput& input, ChatFormat format, bool use_tools,
                                           bool in_reasoning) {
  const std::string after = EndOfReasoning(format, in_reasoning);
  switch (input.output) {
    case ChatInput::Output::kGrammar: return engine::ConstrainToGrammar(input.grammar, after);
    case ChatInput::Output::kJsonObject: return engine::ConstrainToJson(nullptr, after);
    case ChatInput::Output::kJsonSchema: return engine::ConstrainToJson(&input.schema, after);
    case ChatInput::Output::kText: break;
  }
  if (!use_tools) return engine::OutputConstraint();
  const ToolChoice& choice = input.tool_choice;
  engine::ToolConstraintOptions options;
  if (choice.kind == ToolChoice::Kind::kNamed) options.only_function = choice.name;
  options.required = choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
  options.in_reasoning = in_reasoning;
  options.parallel = input.parallel_calls;
  auto constraint = engine::ConstrainToTools(format, input.tools, options);
  // A model may write calls that no grammar here describes, as long as it need not.
  if (!constraint.ok() && constraint.status().code() == StatusCode::kUnsupported && !options.required &&
      format == ChatFormat::kTagged) {
    return engine::OutputConstraint();
  }
  return constraint;
}

}  // namespace

std::variant<ChatPlan, ApiError> PlanChat(const ApiContext& context, const ChatInput& input,
                                          engine::SequenceRequest base) {
  if (!context.engine->has_chat_template()) {
    return FieldError(input.messages_field,
                      "the model has no chat template that can be used; call /v1/completions with a prompt");
  }
  const ChatFormat own_format = context.engine->chat_format();
  const bool use_tools = !input.tools.empty() && input.tool_choice.kind != ToolChoice::Kind::kNone;
  const ChatFormat format = own_format == ChatFormat::kPlain && use_tools ? ChatFormat::kHermes : own_format;
  auto rendered = Render(context, input, own_format, use_tools);
  if (!rendered.ok()) return FieldError(input.messages_field, std::string(rendered.status().message()));

  ChatPlan plan;
  plan.request = std::move(base);
  plan.parser = {.format = format, .reasoning = true, .in_reasoning = rendered->in_reasoning, .tools = use_tools};
  // The parser needs the channels of harmony, which are control tokens.
  plan.request.special = format == ChatFormat::kHarmony;

  auto constraint = Constrain(input, format, use_tools, rendered->in_reasoning);
  if (!constraint.ok()) {
    const std::string& field = input.output == ChatInput::Output::kText      ? input.tools_field
                               : input.output == ChatInput::Output::kGrammar ? kGrammarField
                                                                             : input.output_field;
    return FieldError(field, std::string(constraint.status().message()));
  }
  plan.request.grammar = std::move(constraint->grammar);
  plan.request.grammar_triggers = std::move(constraint->triggers);

  auto tokens = context.engine->TokenizeChat(rendered->text);
  if (!tokens.ok()) return FieldError(input.messages_field, std::string(tokens.status().message()));
  plan.request.prompt = std::move(*tokens);
  if (auto error = CheckLength(context, plan.request.prompt.size(), input.messages_field)) return *error;
  return plan;
}

void ChatChoice::Take(std::string_view call_prefix) {
  for (const text::ChatDelta& delta : deltas_) {
    switch (delta.kind) {
      case text::ChatDelta::Kind::kContent: content_ += delta.text; break;
      case text::ChatDelta::Kind::kReasoning: reasoning_ += delta.text; break;
      case text::ChatDelta::Kind::kToolBegin: calls_.push_back({NewId(call_prefix), delta.text, ""}); break;
      case text::ChatDelta::Kind::kToolArguments: calls_.back().arguments += delta.text; break;
    }
  }
}

const std::vector<text::ChatDelta>& ChatChoice::Push(const engine::SequenceDelta& delta, std::string_view call_prefix) {
  deltas_.clear();
  parser_.Push(delta.text, &deltas_);
  Take(call_prefix);
  return deltas_;
}

const std::vector<text::ChatDelta>& ChatChoice::End(const engine::SequenceResult& result,
                                                    std::string_view call_prefix) {
  result_ = result;
  deltas_.clear();
  parser_.Finish(&deltas_);
  Take(call_prefix);
  return deltas_;
}

std::optional<ApiError> FailureOf(const engine::SequenceResult& result) {
  ApiError error;
  error.http_status = 500;
  error.type = "server_error";
  if (!result.status.ok()) {
    error.message = std::string(result.status.message());
    error.code = "generation_failed";
    return error;
  }
  if (result.reason != engine::FinishReason::kCancelled) return std::nullopt;
  error.http_status = 503;
  error.message = "the server ended the request before its time";
  error.code = "cancelled";
  return error;
}

Json Timings(const engine::SequenceResult& result) {
  const int32_t computed = result.prompt_tokens - result.reused_tokens;
  const auto per = [](double total, double count) { return count > 0 ? total / count : 0; };
  // The first token comes from the prompt's last step.
  const int32_t steps = std::max(result.generated_tokens - 1, 0);
  return {{"cache_n", result.reused_tokens},
          {"prompt_n", computed},
          {"prompt_ms", result.prompt_ms},
          {"prompt_per_token_ms", per(result.prompt_ms, computed)},
          {"prompt_per_second", per(computed * 1e3, result.prompt_ms)},
          {"predicted_n", result.generated_tokens},
          {"predicted_ms", result.decode_ms},
          {"predicted_per_token_ms", per(result.decode_ms, steps)},
          {"predicted_per_second", per(steps * 1e3, result.decode_ms)},
          {"queue_ms", result.queue_ms},
          {"hits", result.hits},
          {"misses", result.misses},
          {"rings", result.rings},
          {"promotions", result.promotions}};
}

std::optional<std::string> ReadContent(FieldReader& reader, std::string_view name, bool required,
                                       std::initializer_list<std::string_view> text_types) {
  const Json* content = reader.Any(name);
  if (content == nullptr) {
    if (required) reader.Fail(name, "is missing; it must be a string or an array of text parts");
    return std::nullopt;
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    reader.Fail(name, fmt::format("must be a string or an array of parts, not {}", JsonKind(*content)));
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const std::string path = fmt::format("{}[{}]", name, i);
    const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                 ? part["type"].get<std::string>()
                                 : std::string();
    if (std::find(text_types.begin(), text_types.end(), type) == text_types.end()) {
      reader.Fail(path + ".type", fmt::format("'{}' is not supported; this model reads text", type));
      return std::nullopt;
    }
    if (!part.contains("text") || !part["text"].is_string()) {
      reader.Fail(path + ".text", "must be a string");
      return std::nullopt;
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

void ReadEffort(FieldReader& reader, std::string_view name, ChatInput* input) {
  const auto effort = reader.Choice(name, {"none", "minimal", "low", "medium", "high", "xhigh"});
  if (!effort) return;
  input->template_arguments["reasoning_effort"] = *effort;
  if (*effort == "none") input->template_arguments["enable_thinking"] = false;
}

void ReadToolChoiceWord(FieldReader& reader, ChatInput* input) {
  const auto word = reader.Choice("tool_choice", {"auto", "none", "required"});
  if (word == "none") input->tool_choice.kind = ToolChoice::Kind::kNone;
  if (word == "required") input->tool_choice.kind = ToolChoice::Kind::kRequired;
}

void CheckToolChoice(FieldReader& reader, std::string_view name_field, const ChatInput& input) {
  const ToolChoice& choice = input.tool_choice;
  if (choice.kind == ToolChoice::Kind::kAuto || choice.kind == ToolChoice::Kind::kNone) return;
  if (input.tools.empty()) return reader.Fail("tool_choice", "asks for a call, but there are no tools");
  const bool found = std::any_of(input.tools.begin(), input.tools.end(),
                                 [&](const Json& tool) { return tool["function"]["name"] == choice.name; });
  if (choice.kind == ToolChoice::Kind::kNamed && !found) {
    reader.Fail(name_field, fmt::format("names '{}', which is not among the tools", choice.name));
  }
}

std::optional<ApiError> CheckTools(const Json& tools, std::string_view path) {
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    FieldReader tool(tools[i], fmt::format("{}[{}]", path, i));
    const auto type = tool.String("type");
    if (tool.ok() && type.value_or("") != "function") {
      tool.Fail("type", fmt::format("'{}' is not supported; tools of type 'function' are", type.value_or("")));
    }
    const Json* function = tool.Object("function");
    if (tool.ok() && function == nullptr) tool.Fail("function", "is missing");
    tool.RejectUnknown();
    if (!tool.ok()) return tool.error();
    FieldReader reader(*function, tool.PathOf("function"));
    const auto name = reader.String("name");
    if (reader.ok() && name.value_or("").empty()) reader.Fail("name", "is missing");
    (void)reader.String("description");
    (void)reader.Object("parameters");
    (void)reader.Bool("strict");
    reader.RejectUnknown();
    if (reader.ok() && !names.insert(*name).second) reader.Fail("name", fmt::format("'{}' is there twice", *name));
    if (!reader.ok()) return reader.error();
  }
  return std::nullopt;
}

}  // namespace bellhop::server
