// POST /v1/messages, Anthropic's API.
#include <utility>

#include <fmt/format.h>

#include "frontends/server/chat_turn.h"
#include "frontends/server/json_text.h"
#include "frontends/server/sampling_fields.h"

namespace bellhop::server {
namespace {

constexpr std::string_view kCallPrefix = "toolu_";

struct MessageRequest {
  ChatInput input;
  engine::SequenceRequest base;
  bool stream = false;
};

// A tool_result's content: a string or text blocks.
void AddToolResult(FieldReader& block, Json* messages) {
  const auto id = block.String("tool_use_id");
  if (block.ok() && !id) block.Fail("tool_use_id", "is missing");
  auto content = ReadContent(block, "content", false, {"text"});
  if (block.Bool("is_error").value_or(false)) content = "Error: " + content.value_or("");
  block.Accept({"cache_control"});
  if (block.ok()) messages->push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", content.value_or("")}});
}

void AddToolUse(FieldReader& block, Json* message) {
  const auto id = block.String("id"), name = block.String("name");
  const Json* input = block.Object("input");
  if (block.ok() && (!id || !name || input == nullptr)) block.Fail("id", "a tool_use has id, name and input");
  block.Accept({"cache_control", "caller"});
  if (!block.ok()) return;
  (*message)["tool_calls"].push_back(
      {{"id", *id}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", *input}}}});
}

// One message's blocks. Tool results become messages of their own, before the text beside them.
void AddBlocks(FieldReader& reader, const Json& blocks, const std::string& role, ChatInput* input) {
  Json message = {{"role", role}, {"content", ""}};
  std::string text, reasoning;
  bool only_results = !blocks.empty();
  for (size_t i = 0; i < blocks.size(); ++i) {
    FieldReader block(blocks[i], reader.PathOf(fmt::format("content[{}]", i)));
    const auto type = block.Choice("type", {"text", "tool_use", "tool_result", "thinking", "redacted_thinking"});
    if (block.ok() && !type) block.Fail("type", "is missing");
    if (type == "text") {
      text += block.String("text").value_or("");
      block.Accept({"cache_control", "citations"});
      only_results = false;
    } else if (type == "thinking") {
      reasoning += block.String("thinking").value_or("");
      block.Accept({"signature"});
    } else if (type == "redacted_thinking") {
      block.Accept({"data"});
    } else if (type == "tool_use") {
      AddToolUse(block, &message);
      only_results = false;
    } else if (type == "tool_result") {
      AddToolResult(block, &input->messages);
    }
    block.RejectUnknown();
    if (!block.ok()) return reader.Fail(block.error());
  }
  if (only_results) return;
  message["content"] = text;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  input->messages.push_back(std::move(message));
}

void ReadMessages(FieldReader& reader, ChatInput* input) {
  if (const auto system = ReadContent(reader, "system", false, {"text"}); system && !system->empty()) {
    input->messages.push_back({{"role", "system"}, {"content", *system}});
  }
  const Json* messages = reader.Array("messages");
  if (!reader.ok()) return;
  if (messages == nullptr || messages->empty())
    return reader.Fail("messages", "must be an array of at least one message");
  for (size_t i = 0; i < messages->size() && reader.ok(); ++i) {
    FieldReader message((*messages)[i], fmt::format("messages[{}]", i));
    const auto role = message.Choice("role", {"user", "assistant"});
    const Json* content = message.Any("content");
    if (message.ok() && (!role || content == nullptr)) message.Fail("content", "a message has role and content");
    message.RejectUnknown();
    if (message.ok()) {
      if (content->is_string()) {
        input->messages.push_back({{"role", *role}, {"content", *content}});
      } else if (content->is_array()) {
        AddBlocks(message, *content, *role, input);
      } else {
        message.Fail("content", fmt::format("must be a string or an array of blocks, not {}", JsonKind(*content)));
      }
    }
    if (!message.ok()) reader.Fail(message.error());
  }
}

void ReadTools(FieldReader& reader, ChatInput* input) {
  if (const Json* tools = reader.Array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      FieldReader tool((*tools)[i], fmt::format("tools[{}]", i));
      (void)tool.Choice("type", {"custom"});
      const auto name = tool.String("name"), description = tool.String("description");
      const Json* schema = tool.Object("input_schema");
      if (tool.ok() && (!name || name->empty() || schema == nullptr))
        tool.Fail("name", "a tool has name and input_schema");
      tool.Accept({"cache_control", "strict", "eager_input_streaming"});
      tool.RejectUnknown();
      if (!tool.ok()) return reader.Fail(tool.error());
      input->tools.push_back(
          {{"type", "function"},
           {"function", {{"name", *name}, {"description", description.value_or("")}, {"parameters", *schema}}}});
    }
    if (auto error = CheckTools(input->tools, "tools")) return reader.Fail(std::move(*error));
  }
  const Json* choice = reader.Object("tool_choice");
  if (choice == nullptr) return;
  FieldReader fields(*choice, "tool_choice");
  const auto type = fields.Choice("type", {"auto", "any", "tool", "none"});
  input->parallel_calls = !fields.Bool("disable_parallel_tool_use").value_or(false);
  const auto name = fields.String("name");
  if (fields.ok() && !type) fields.Fail("type", "is missing");
  if (type == "none") input->tool_choice.kind = ToolChoice::Kind::kNone;
  if (type == "any") input->tool_choice.kind = ToolChoice::Kind::kRequired;
  if (type == "tool") input->tool_choice = {ToolChoice::Kind::kNamed, name.value_or("")};
  fields.RejectUnknown();
  if (!fields.ok()) return reader.Fail(fields.error());
  CheckToolChoice(reader, "tool_choice.name", *input);
}

void ReadThinking(FieldReader& reader, ChatInput* input) {
  const Json* thinking = reader.Object("thinking");
  if (thinking == nullptr) return;
  FieldReader fields(*thinking, "thinking");
  const auto type = fields.Choice("type", {"enabled", "disabled", "adaptive"});
  fields.Accept({"budget_tokens", "display"});
  fields.RejectUnknown();
  if (!fields.ok()) return reader.Fail(fields.error());
  input->template_arguments["enable_thinking"] = type != "disabled";
}

class MessageCall final : public ApiCall {
 public:
  MessageCall(const ApiContext& context, bool stream, ChatPlan plan)
      : context_(context), stream_(stream), id_(NewId("msg_")), choice_(plan.parser) {
    prompt_tokens_ = plan.request.prompt.size();
    sequences_.push_back(std::move(plan.request));
  }

  bool stream() const override { return stream_; }
  std::vector<engine::SequenceRequest> TakeSequences() override { return std::move(sequences_); }

  void Begin(std::string* out) override {
    if (out == nullptr) return;
    Json message = Frame();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}};
    AddEvent("message_start", {{"message", std::move(message)}}, out);
  }

  void Delta(size_t, const engine::SequenceDelta& delta, std::string* out) override {
    Send(choice_.Push(delta, kCallPrefix), out);
  }

  void End(size_t, const engine::SequenceResult& result, std::string* out) override {
    Send(choice_.End(result, kCallPrefix), out);
    if (out == nullptr) return;
    CloseBlock(out);
    if (const auto error = FailureOf(result)) {
      *out += ErrorEvent(*error);
      failed_ = true;
      return;
    }
    AddEvent("message_delta",
             {{"delta", {{"stop_reason", StopReason()}, {"stop_sequence", StopSequence()}}}, {"usage", Usage()}}, out);
  }

  void Finish(std::string* out) override {
    if (out != nullptr && !failed_) AddEvent("message_stop", Json::object(), out);
  }

  Json Response() override {
    Json message = Frame();
    Json content = Json::array();
    if (!choice_.reasoning().empty()) {
      content.push_back({{"type", "thinking"}, {"thinking", choice_.reasoning()}, {"signature", ""}});
    }
    if (!choice_.content().empty() || choice_.calls().empty()) {
      content.push_back({{"type", "text"}, {"text", choice_.content()}});
    }
    for (const ToolCall& call : choice_.calls()) {
      Json input = Json::parse(call.arguments, nullptr, false);
      if (input.is_discarded()) input = Json{{"unfinished", call.arguments}};  // cut off by max_tokens
      content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
    }
    message["content"] = std::move(content);
    message["stop_reason"] = StopReason();
    message["stop_sequence"] = StopSequence();
    message["usage"] = Usage();
    return message;
  }

  std::string_view Heartbeat() const override { return "event: ping\ndata: {\"type\": \"ping\"}\n\n"; }
  std::string ErrorEvent(const ApiError& error) const override {
    return fmt::format("event: error\ndata: {}\n\n", JsonText(AnthropicErrorBody(error)));
  }

 private:
  enum class Block : uint8_t { kNone, kThinking, kText, kToolUse };

  Json Frame() const { return {{"id", id_}, {"type", "message"}, {"role", "assistant"}, {"model", context_.model_id}}; }

  Json Usage() const {
    const engine::SequenceResult& result = choice_.result();
    return {{"input_tokens", result.prompt_tokens - result.reused_tokens},
            {"cache_read_input_tokens", result.reused_tokens},
            {"cache_creation_input_tokens", 0},
            {"output_tokens", result.generated_tokens}};
  }

  std::string StopReason() const {
    switch (choice_.result().reason) {
      case engine::FinishReason::kLength: return "max_tokens";
      case engine::FinishReason::kStop: return "stop_sequence";
      default: return choice_.calls().empty() ? "end_turn" : "tool_use";
    }
  }
  Json StopSequence() const {
    return choice_.result().reason == engine::FinishReason::kStop ? Json(choice_.result().stop) : Json();
  }

  static void AddEvent(std::string_view type, Json fields, std::string* out) {
    Json event = {{"type", type}};
    event.update(fields);
    *out += fmt::format("event: {}\ndata: {}\n\n", type, JsonText(event));
  }

  void OpenBlock(Block kind, Json content, std::string* out) {
    CloseBlock(out);
    open_ = kind;
    AddEvent("content_block_start", {{"index", index_}, {"content_block", std::move(content)}}, out);
  }

  void CloseBlock(std::string* out) {
    if (open_ == Block::kNone) return;
    AddEvent("content_block_stop", {{"index", index_}}, out);
    open_ = Block::kNone;
    ++index_;
  }

  void Change(Json delta, std::string* out) {
    AddEvent("content_block_delta", {{"index", index_}, {"delta", std::move(delta)}}, out);
  }

  void Send(const std::vector<text::ChatDelta>& deltas, std::string* out) {
    if (out == nullptr) return;
    for (const text::ChatDelta& delta : deltas) {
      switch (delta.kind) {
        case text::ChatDelta::Kind::kReasoning:
          if (open_ != Block::kThinking) {
            OpenBlock(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
          }
          Change({{"type", "thinking_delta"}, {"thinking", delta.text}}, out);
          break;
        case text::ChatDelta::Kind::kContent:
          if (open_ != Block::kText) OpenBlock(Block::kText, {{"type", "text"}, {"text", ""}}, out);
          Change({{"type", "text_delta"}, {"text", delta.text}}, out);
          break;
        case text::ChatDelta::Kind::kToolBegin: {
          const ToolCall& call = choice_.calls()[static_cast<size_t>(delta.tool)];
          OpenBlock(Block::kToolUse,
                    {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}}, out);
          break;
        }
        case text::ChatDelta::Kind::kToolArguments:
          Change({{"type", "input_json_delta"}, {"partial_json", delta.text}}, out);
          break;
      }
    }
  }

  const ApiContext& context_;
  const bool stream_;
  const std::string id_;
  std::vector<engine::SequenceRequest> sequences_;
  size_t prompt_tokens_ = 0;
  ChatChoice choice_;
  Block open_ = Block::kNone;
  int index_ = 0;
  bool failed_ = false;
};

}  // namespace

ParsedCall ParseMessage(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  MessageRequest request;
  ReadModel(context, reader);
  ReadMessages(reader, &request.input);
  ReadTools(reader, &request.input);
  ReadThinking(reader, &request.input);
  ReadSampling(context, reader, &request.base);
  ReadStops(reader, "stop_sequences", &request.base);
  const auto limit = reader.Integer("max_tokens", 1, kMaxTokens);
  if (reader.ok() && !limit) reader.Fail("max_tokens", "is missing");
  request.base.max_tokens = static_cast<int32_t>(limit.value_or(1));
  request.stream = reader.Bool("stream").value_or(false);
  reader.Refuse("mcp_servers", Json::array(), "is not supported; leave it out");
  reader.Refuse("container", nullptr, "is not supported; leave it out");
  reader.Accept({"metadata", "service_tier", "cache_control"});
  reader.RejectUnknown();
  if (!reader.ok()) return reader.error();
  auto plan = PlanChat(context, request.input, std::move(request.base));
  if (auto* error = std::get_if<ApiError>(&plan)) return std::move(*error);
  return ParsedCall(std::make_unique<MessageCall>(context, request.stream, std::move(std::get<ChatPlan>(plan))));
}

}  // namespace bellhop::server
