// POST /v1/responses, OpenAI's newer API. Nothing is stored: a conversation is sent whole each time.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "frontends/server/chat_turn.h"
#include "frontends/server/json_text.h"
#include "frontends/server/sampling_fields.h"
#include "sys/clock.h"

namespace bellhop::server {
namespace {

constexpr std::string_view kCallPrefix = "call_";

struct ResponseRequest {
  ChatInput input;
  engine::SequenceRequest base;
  bool stream = false;
  Json echoed = Json::object();  // fields that the answer repeats
};

void AddMessageItem(FieldReader& item, Json* messages) {
  auto role = item.Choice("role", {"system", "developer", "user", "assistant"});
  if (item.ok() && !role) item.Fail("role", "is missing");
  const auto content = ReadContent(item, "content", true, {"input_text", "output_text", "text", "refusal"});
  item.Accept({"id", "status", "type", "phase"});
  if (!item.ok()) return;
  if (*role == "developer") role = "system";
  messages->push_back({{"role", *role}, {"content", *content}});
}

void AddCallItem(FieldReader& item, Json* messages) {
  const auto id = item.String("call_id"), name = item.String("name"), arguments = item.String("arguments");
  if (item.ok() && (!id || !name || !arguments))
    item.Fail("call_id", "a function_call has call_id, name and arguments");
  item.Accept({"id", "status", "type"});
  if (!item.ok()) return;
  Json parsed = Json::parse(arguments->empty() ? "{}" : *arguments, nullptr, false);
  if (parsed.is_discarded()) return item.Fail("arguments", "is not JSON");
  // Calls that follow each other are one message of the assistant.
  if (messages->empty() || messages->back().value("role", "") != "assistant") {
    messages->push_back({{"role", "assistant"}, {"content", ""}});
  }
  messages->back()["tool_calls"].push_back(
      {{"id", *id}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", std::move(parsed)}}}});
}

void AddCallOutputItem(FieldReader& item, Json* messages) {
  const auto id = item.String("call_id");
  const auto output = ReadContent(item, "output", true, {"input_text", "output_text", "text", "refusal"});
  if (item.ok() && !id) item.Fail("call_id", "is missing");
  item.Accept({"id", "status", "type"});
  if (item.ok()) messages->push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", *output}});
}

void ReadInput(FieldReader& reader, ChatInput* input) {
  if (const auto instructions = reader.String("instructions"); instructions && !instructions->empty()) {
    input->messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json* items = reader.Any("input");
  if (!reader.ok()) return;
  if (items != nullptr && items->is_string()) {
    input->messages.push_back({{"role", "user"}, {"content", *items}});
    return;
  }
  if (items == nullptr || !items->is_array() || items->empty()) {
    return reader.Fail("input", "must be a string or an array of at least one item");
  }
  for (size_t i = 0; i < items->size(); ++i) {
    FieldReader item((*items)[i], fmt::format("input[{}]", i));
    const std::string type =
        item.Choice("type", {"message", "function_call", "function_call_output", "reasoning"}).value_or("message");
    if (type == "message") AddMessageItem(item, &input->messages);
    if (type == "function_call") AddCallItem(item, &input->messages);
    if (type == "function_call_output") AddCallOutputItem(item, &input->messages);
    if (type == "reasoning") item.Accept({"id", "summary", "content", "encrypted_content", "status"});
    item.RejectUnknown();
    if (!item.ok()) return reader.Fail(item.error());
  }
}

void ReadTools(FieldReader& reader, ChatInput* input) {
  if (const Json* tools = reader.Array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      FieldReader tool((*tools)[i], path);
      const auto type = tool.String("type");
      if (tool.ok() && type.value_or("") != "function") {
        tool.Fail("type", fmt::format("'{}' is not supported; tools of type 'function' are", type.value_or("")));
      }
      if (!tool.ok()) return reader.Fail(tool.error());
      Json function = (*tools)[i];
      function.erase("type");
      input->tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    if (auto error = CheckTools(input->tools, "tools")) return reader.Fail(std::move(*error));
  }
  input->parallel_calls = reader.Bool("parallel_tool_calls").value_or(true);
  const Json* choice = reader.Any("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    ReadToolChoiceWord(reader, input);
    return CheckToolChoice(reader, "tool_choice", *input);
  }
  const Json name = choice->is_object() ? choice->value("name", Json()) : Json();
  for (const Json& tool : input->tools) {
    if (name == tool["function"]["name"]) {
      input->tool_choice = {ToolChoice::Kind::kNamed, name.get<std::string>()};
      return;
    }
  }
  reader.Fail("tool_choice", "must be auto, none, required, or name one of the tools");
}

void ReadTextFormat(FieldReader& reader, ChatInput* input) {
  const Json* text = reader.Object("text");
  if (text == nullptr) return;
  FieldReader outer(*text, "text");
  outer.Accept({"verbosity"});
  const Json* format = outer.Object("format");
  outer.RejectUnknown();
  if (!outer.ok()) return reader.Fail(outer.error());
  if (format == nullptr) return;
  FieldReader fields(*format, "text.format");
  const auto type = fields.Choice("type", {"text", "json_object", "json_schema"});
  if (type == "json_object") input->output = ChatInput::Output::kJsonObject;
  if (type == "json_schema") {
    (void)fields.String("name");
    (void)fields.String("description");
    (void)fields.Bool("strict");
    const Json* schema = fields.Object("schema");
    if (fields.ok() && schema == nullptr) fields.Fail("schema", "is missing");
    if (schema != nullptr) input->schema = *schema;
    input->output = ChatInput::Output::kJsonSchema;
  }
  fields.RejectUnknown();
  if (!fields.ok()) return reader.Fail(fields.error());
  if (input->output != ChatInput::Output::kText && !input->tools.empty() &&
      input->tool_choice.kind != ToolChoice::Kind::kNone) {
    reader.Fail("text.format", "cannot be joined with tools; send one of them, or tool_choice none");
  }
}

void ReadReasoning(FieldReader& reader, ChatInput* input) {
  const Json* reasoning = reader.Object("reasoning");
  if (reasoning == nullptr) return;
  FieldReader fields(*reasoning, "reasoning");
  ReadEffort(fields, "effort", input);
  fields.Accept({"summary", "generate_summary"});
  fields.RejectUnknown();
  if (!fields.ok()) reader.Fail(fields.error());
}

class ResponseCall final : public ApiCall {
 public:
  ResponseCall(const ApiContext& context, ResponseRequest request, ChatPlan plan)
      : context_(context), request_(std::move(request)), id_(NewId("resp_")), choice_(plan.parser) {
    sequences_.push_back(std::move(plan.request));
  }

  bool stream() const override { return request_.stream; }
  std::vector<engine::SequenceRequest> TakeSequences() override { return std::move(sequences_); }

  void Begin(std::string* out) override {
    if (out == nullptr) return;
    AddEvent("response.created", {{"response", Body("in_progress")}}, out);
    AddEvent("response.in_progress", {{"response", Body("in_progress")}}, out);
  }

  void Delta(size_t, const engine::SequenceDelta& delta, std::string* out) override {
    Take(choice_.Push(delta, kCallPrefix), out);
  }

  void End(size_t, const engine::SequenceResult& result, std::string* out) override {
    Take(choice_.End(result, kCallPrefix), out);
    CloseItem(out);
    if (out == nullptr) return;
    if (const auto error = FailureOf(result)) {
      failed_ = true;
      Json body = Body("failed");
      body["error"] = {{"code", "server_error"}, {"message", error->message}};
      AddEvent("response.failed", {{"response", std::move(body)}}, out);
    }
  }

  void Finish(std::string* out) override {
    if (out == nullptr || failed_) return;
    const std::string status = Status();
    AddEvent("response." + status, {{"response", Body(status)}}, out);
  }

  Json Response() override { return Body(Status()); }

  std::string_view Heartbeat() const override { return ": still here\n\n"; }
  std::string ErrorEvent(const ApiError& error) const override {
    const Json event = {{"type", "error"},
                        {"code", error.code},
                        {"message", error.message},
                        {"param", nullptr},
                        {"sequence_number", sequence_}};
    return fmt::format("event: error\ndata: {}\n\n", JsonText(event));
  }

 private:
  enum class Item : uint8_t { kNone, kReasoning, kMessage, kCall };

  std::string Status() const {
    return choice_.result().reason == engine::FinishReason::kLength ? "incomplete" : "completed";
  }

  Json Body(const std::string& status) const {
    Json body = {{"id", id_},
                 {"object", "response"},
                 {"created_at", created_},
                 {"status", status},
                 {"error", nullptr},
                 {"incomplete_details", status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()},
                 {"model", context_.model_id},
                 {"output", output_},
                 {"previous_response_id", nullptr},
                 {"store", false}};
    body.update(request_.echoed);
    if (status == "in_progress") {
      body["usage"] = nullptr;
      return body;
    }
    const engine::SequenceResult& result = choice_.result();
    body["usage"] = {{"input_tokens", result.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", result.reused_tokens}}},
                     {"output_tokens", result.generated_tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", result.prompt_tokens + result.generated_tokens}};
    body["timings"] = Timings(result);
    return body;
  }

  void AddEvent(std::string_view type, Json fields, std::string* out) {
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    event.update(fields);
    *out += fmt::format("event: {}\ndata: {}\n\n", type, JsonText(event));
  }

  // The item that is being written is the output's last.
  Json& item() { return output_.back(); }
  size_t index() const { return output_.size() - 1; }

  void OpenItem(Item kind, Json value, std::string* out) {
    CloseItem(out);
    open_ = kind;
    output_.push_back(std::move(value));
    if (out == nullptr) return;
    AddEvent("response.output_item.added", {{"output_index", index()}, {"item", item()}}, out);
    if (kind == Item::kMessage) {
      AddEvent("response.content_part.added",
               {{"item_id", item()["id"]}, {"output_index", index()}, {"content_index", 0}, {"part", Part("")}}, out);
    }
  }

  static Json Part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  void CloseItem(std::string* out) {
    const Item kind = std::exchange(open_, Item::kNone);
    if (kind == Item::kNone) return;
    item()["status"] = "completed";
    Json place = {{"item_id", item()["id"]}, {"output_index", index()}};
    if (kind == Item::kReasoning) {
      item()["content"] = Json::array({Json{{"type", "reasoning_text"}, {"text", text_}}});
      place.update({{"content_index", 0}, {"text", text_}});
      if (out != nullptr) AddEvent("response.reasoning_text.done", place, out);
    } else if (kind == Item::kMessage) {
      item()["content"] = Json::array({Part(text_)});
      place["content_index"] = 0;
      if (out != nullptr) {
        Json done = place;
        done.update({{"text", text_}, {"logprobs", Json::array()}});
        AddEvent("response.output_text.done", done, out);
        place["part"] = Part(text_);
        AddEvent("response.content_part.done", place, out);
      }
    } else {
      item()["arguments"] = text_;
      place.update({{"name", item()["name"]}, {"arguments", text_}});
      if (out != nullptr) AddEvent("response.function_call_arguments.done", place, out);
    }
    text_.clear();
    if (out != nullptr) AddEvent("response.output_item.done", {{"output_index", index()}, {"item", item()}}, out);
  }

  void Change(std::string_view type, const std::string& text, std::string* out) {
    text_ += text;
    if (out == nullptr) return;
    Json fields = {{"item_id", item()["id"]}, {"output_index", index()}};
    if (open_ != Item::kCall) fields["content_index"] = 0;
    fields["delta"] = text;
    if (open_ == Item::kMessage) fields["logprobs"] = Json::array();
    AddEvent(type, std::move(fields), out);
  }

  void Take(const std::vector<text::ChatDelta>& deltas, std::string* out) {
    for (const text::ChatDelta& delta : deltas) {
      switch (delta.kind) {
        case text::ChatDelta::Kind::kReasoning:
          if (open_ != Item::kReasoning) {
            OpenItem(
                Item::kReasoning,
                {{"id", NewId("rs_")}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", Json::array()}},
                out);
          }
          Change("response.reasoning_text.delta", delta.text, out);
          break;
        case text::ChatDelta::Kind::kContent:
          if (open_ != Item::kMessage) {
            OpenItem(Item::kMessage,
                     {{"id", NewId("msg_")},
                      {"type", "message"},
                      {"status", "in_progress"},
                      {"role", "assistant"},
                      {"content", Json::array()}},
                     out);
          }
          Change("response.output_text.delta", delta.text, out);
          break;
        case text::ChatDelta::Kind::kToolBegin: {
          const ToolCall& call = choice_.calls()[static_cast<size_t>(delta.tool)];
          OpenItem(Item::kCall,
                   {{"id", NewId("fc_")},
                    {"type", "function_call"},
                    {"status", "in_progress"},
                    {"call_id", call.id},
                    {"name", call.name},
                    {"arguments", ""}},
                   out);
          break;
        }
        case text::ChatDelta::Kind::kToolArguments:
          Change("response.function_call_arguments.delta", delta.text, out);
          break;
      }
    }
  }

  const ApiContext& context_;
  ResponseRequest request_;
  const std::string id_;
  const int64_t created_ = sys::UnixSeconds();
  std::vector<engine::SequenceRequest> sequences_;
  ChatChoice choice_;
  Json output_ = Json::array();
  Item open_ = Item::kNone;
  std::string text_;  // of the open item
  int64_t sequence_ = 0;
  bool failed_ = false;
};

// What the answer repeats of the request, as clients expect.
Json Echo(const Json& body, const ResponseRequest& request) {
  const auto or_default = [&](const char* name, Json value) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? value : *found;
  };
  return {{"instructions", or_default("instructions", nullptr)},
          {"max_output_tokens", or_default("max_output_tokens", nullptr)},
          {"metadata", or_default("metadata", Json::object())},
          {"parallel_tool_calls", request.input.parallel_calls},
          {"temperature", request.base.sampling.temperature},
          {"top_p", request.base.sampling.top_p},
          {"tool_choice", or_default("tool_choice", "auto")},
          {"tools", or_default("tools", Json::array())},
          {"text", or_default("text", {{"format", {{"type", "text"}}}})},
          {"reasoning", or_default("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"truncation", "disabled"}};
}

}  // namespace

ParsedCall ParseResponse(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  ResponseRequest request;
  request.input.messages_field = "input";
  request.input.output_field = "text.format";
  ReadModel(context, reader);
  ReadInput(reader, &request.input);
  ReadTools(reader, &request.input);
  ReadTextFormat(reader, &request.input);
  ReadReasoning(reader, &request.input);
  ReadSampling(context, reader, &request.base);
  request.base.max_tokens = static_cast<int32_t>(reader.Integer("max_output_tokens", 1, kMaxTokens).value_or(-1));
  request.stream = reader.Bool("stream").value_or(false);
  constexpr const char* kNothingStored =
      "needs stored answers, and this server stores none; send the whole conversation";
  reader.Refuse("previous_response_id", nullptr, kNothingStored);
  reader.Refuse("conversation", nullptr, kNothingStored);
  reader.Refuse("store", false, kNothingStored);
  reader.Refuse("background", false, "is not supported; leave it out");
  reader.Refuse("truncation", "disabled", "only 'disabled' is supported");
  reader.Refuse("include", Json::array(), "is not supported; leave it out");
  reader.Refuse("top_logprobs", 0, "is not supported here; /v1/chat/completions has it");
  reader.Refuse("prompt", nullptr, "needs stored prompts; send input");
  reader.Refuse("max_tool_calls", nullptr, "concerns tools of the server, and there are none");
  reader.Accept({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "stream_options"});
  reader.RejectUnknown();
  if (!reader.ok()) return reader.error();
  request.echoed = Echo(body, request);
  auto plan = PlanChat(context, request.input, request.base);
  if (auto* error = std::get_if<ApiError>(&plan)) return std::move(*error);
  return ParsedCall(std::make_unique<ResponseCall>(context, std::move(request), std::move(std::get<ChatPlan>(plan))));
}

}  // namespace bellhop::server
