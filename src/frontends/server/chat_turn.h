// One turn of a chat, whatever API it came through: messages and tools become a prompt, what the answer must look like
// becomes a constraint, and the generated text becomes a message again.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/output_constraint.h"
#include "frontends/server/api_call.h"
#include "frontends/server/fields.h"

namespace bellhop::server {

struct ToolChoice {
  enum class Kind : uint8_t { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;
};

// Messages and tools in the shape that chat templates expect, OpenAI's.
struct ChatInput {
  Json messages = Json::array();
  Json tools = Json::array();
  ToolChoice tool_choice;
  bool parallel_calls = true;
  enum class Output : uint8_t { kText, kJsonObject, kJsonSchema, kGrammar };
  Output output = Output::kText;
  Json schema;
  std::string grammar;
  Json template_arguments = Json::object();  // enable_thinking, reasoning_effort and others
  // Names of the fields, for errors.
  std::string messages_field = "messages", output_field = "response_format", tools_field = "tools";
};

struct ChatPlan {
  engine::SequenceRequest request;
  text::ChatOutputParser::Options parser;
};
// `base` has sampling, limits and stops already.
std::variant<ChatPlan, ApiError> PlanChat(const ApiContext& context, const ChatInput& input,
                                          engine::SequenceRequest base);

struct ToolCall {
  std::string id, name, arguments;
};

// The message that one choice becomes, while it is generated.
class ChatChoice {
 public:
  explicit ChatChoice(const text::ChatOutputParser::Options& options) : parser_(options) {}

  // What is new, with calls numbered from 0; the pieces stay valid until the next call.
  const std::vector<text::ChatDelta>& Push(const engine::SequenceDelta& delta, std::string_view call_prefix);
  const std::vector<text::ChatDelta>& End(const engine::SequenceResult& result, std::string_view call_prefix);

  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<ToolCall>& calls() const { return calls_; }
  const engine::SequenceResult& result() const { return result_; }

 private:
  void Take(std::string_view call_prefix);

  text::ChatOutputParser parser_;
  std::vector<text::ChatDelta> deltas_;
  std::string content_, reasoning_;
  std::vector<ToolCall> calls_;
  engine::SequenceResult result_;
};

// A result that the client must hear of as an error: a failure, or the server's own end.
std::optional<ApiError> FailureOf(const engine::SequenceResult& result);
// llama.cpp's timings, and what happened to the experts meanwhile.
Json Timings(const engine::SequenceResult& result);
// Text of `messages[i].content`: a string, null, or text parts. Parts of other kinds are an error.
std::optional<std::string> ReadContent(FieldReader& reader, std::string_view name, bool required,
                                       std::initializer_list<std::string_view> text_types);
// How much to think: an argument of chat templates.
void ReadEffort(FieldReader& reader, std::string_view name, ChatInput* input);
// tool_choice as a word of OpenAI's APIs: auto, none or required.
void ReadToolChoiceWord(FieldReader& reader, ChatInput* input);
// A call that is asked for must be possible. `name_field`: where the request names the function.
void CheckToolChoice(FieldReader& reader, std::string_view name_field, const ChatInput& input);
// The error of a whole object of tools: {"type": "function", "function": {...}}.
std::optional<ApiError> CheckTools(const Json& tools, std::string_view path);

}  // namespace bellhop::server
