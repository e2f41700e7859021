// POST /v1/chat/completions.
#include <utility>

#include <fmt/format.h>

#include "engine/build_info.h"
#include "frontends/server/chat_turn.h"
#include "frontends/server/json_text.h"
#include "frontends/server/logprobs.h"
#include "frontends/server/sampling_fields.h"
#include "sys/clock.h"

namespace bellhop::server {
namespace {

constexpr std::string_view kCallPrefix = "call_";

struct ChatRequest {
  ChatInput input;
  engine::SequenceRequest base;
  int64_t n = 1;
  bool stream = false, include_usage = false;
};

// An assistant's earlier calls: arguments become objects, as templates expect.
void ReadToolCalls(FieldReader& reader, Json* message) {
  const Json* calls = reader.Array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  Json read = Json::array();
  for (size_t i = 0; i < calls->size(); ++i) {
    FieldReader call((*calls)[i], reader.PathOf(fmt::format("tool_calls[{}]", i)));
    const auto id = call.String("id");
    (void)call.Choice("type", {"function"});
    call.Accept({"index"});
    const Json* function = call.Object("function");
    if (call.ok() && function == nullptr) call.Fail("function", "is missing");
    call.RejectUnknown();
    if (!call.ok()) return reader.Fail(call.error());
    FieldReader fields(*function, call.PathOf("function"));
    const auto name = fields.String("name");
    const auto arguments = fields.String("arguments");
    if (fields.ok() && (!name || !arguments)) fields.Fail("name", "a call has a name and arguments");
    fields.RejectUnknown();
    if (!fields.ok()) return reader.Fail(fields.error());
    Json parsed = Json::parse(arguments->empty() ? "{}" : *arguments, nullptr, false);
    if (parsed.is_discarded()) return reader.Fail(FieldError(fields.PathOf("arguments"), "is not JSON"));
    read.push_back({{"id", id.value_or("")},
                    {"type", "function"},
                    {"function", {{"name", *name}, {"arguments", std::move(parsed)}}}});
  }
  (*message)["tool_calls"] = std::move(read);
}

Json ReadMessage(FieldReader& reader) {
  auto role = reader.Choice("role", {"system", "developer", "user", "assistant", "tool"});
  if (reader.ok() && !role) reader.Fail("role", "is missing");
  if (!reader.ok()) return {};
  if (*role == "developer") role = "system";
  const bool assistant = *role == "assistant";
  Json message = {{"role", *role}};
  const auto content = ReadContent(reader, "content", !assistant, {"text", "refusal"});
  message["content"] = content.value_or("");
  if (assistant) {
    for (const std::string_view name : {"reasoning_content", "reasoning"}) {
      if (const auto reasoning = reader.String(name)) message["reasoning_content"] = *reasoning;
    }
    ReadToolCalls(reader, &message);
    reader.Refuse("function_call", nullptr, "is the old form; send tool_calls");
    reader.Refuse("audio", nullptr, "is not supported; this model reads text");
    reader.Accept({"refusal", "annotations"});
  }
  if (*role == "tool") {
    if (const auto id = reader.String("tool_call_id")) message["tool_call_id"] = *id;
  }
  if (const auto name = reader.String("name")) message["name"] = *name;
  reader.RejectUnknown();
  return message;
}

void ReadMessages(FieldReader& reader, ChatInput* input) {
  const Json* messages = reader.Array("messages");
  if (!reader.ok()) return;
  if (messages == nullptr || messages->empty())
    return reader.Fail("messages", "must be an array of at least one message");
  for (size_t i = 0; i < messages->size(); ++i) {
    FieldReader message((*messages)[i], fmt::format("messages[{}]", i));
    input->messages.push_back(ReadMessage(message));
    if (!message.ok()) return reader.Fail(message.error());
  }
}

void ReadToolFields(FieldReader& reader, ChatInput* input) {
  if (const Json* tools = reader.Array("tools")) {
    if (auto error = CheckTools(*tools, "tools")) return reader.Fail(std::move(*error));
    input->tools = *tools;
  }
  input->parallel_calls = reader.Bool("parallel_tool_calls").value_or(true);
  const Json* choice = reader.Any("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    ReadToolChoiceWord(reader, input);
  } else {
    const Json name = choice->is_object() && choice->contains("function") && (*choice)["function"].is_object()
                          ? (*choice)["function"].value("name", Json())
                          : Json();
    if (!name.is_string()) {
      return reader.Fail("tool_choice",
                         "must be auto, none, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    input->tool_choice = {ToolChoice::Kind::kNamed, name.get<std::string>()};
  }
  CheckToolChoice(reader, "tool_choice", *input);
}

void ReadResponseFormat(FieldReader& reader, ChatInput* input) {
  if (const Json* format = reader.Object("response_format")) {
    FieldReader fields(*format, "response_format");
    const auto type = fields.Choice("type", {"text", "json_object", "json_schema"});
    if (fields.ok() && !type) fields.Fail("type", "is missing");
    if (type == "json_object") {
      input->output = ChatInput::Output::kJsonObject;
      // llama.cpp's clients put a schema here.
      if (const Json* schema = fields.Object("schema")) {
        input->output = ChatInput::Output::kJsonSchema;
        input->schema = *schema;
      }
    }
    if (type == "json_schema") {
      const Json* outer = fields.Object("json_schema");
      const bool found = outer != nullptr && outer->contains("schema") && (*outer)["schema"].is_object();
      if (fields.ok() && !found) fields.Fail("json_schema", "must be an object with a schema");
      if (found) {
        FieldReader schema(*outer, "response_format.json_schema");
        (void)schema.String("name");
        (void)schema.String("description");
        (void)schema.Bool("strict");
        (void)schema.Object("schema");
        schema.RejectUnknown();
        if (!schema.ok()) return reader.Fail(schema.error());
        input->output = ChatInput::Output::kJsonSchema;
        input->schema = (*outer)["schema"];
      }
    }
    fields.RejectUnknown();
    if (!fields.ok()) return reader.Fail(fields.error());
  }
  if (const auto grammar = reader.String("grammar"); grammar && !grammar->empty()) {
    if (input->output != ChatInput::Output::kText) {
      return reader.Fail("grammar", "cannot be joined with response_format; send one of them");
    }
    input->output = ChatInput::Output::kGrammar;
    input->grammar = *grammar;
  }
  const bool calls = !input->tools.empty() && input->tool_choice.kind != ToolChoice::Kind::kNone;
  if (input->output != ChatInput::Output::kText && calls) {
    reader.Fail(input->output == ChatInput::Output::kGrammar ? "grammar" : "response_format",
                "cannot be joined with tools; send one of them, or tool_choice none");
  }
}

void ReadRest(const ApiContext& context, FieldReader& reader, ChatRequest* request) {
  ReadModel(context, reader);
  ReadSampling(context, reader, &request->base);
  ReadStops(reader, "stop", &request->base);
  const auto old_limit = reader.Integer("max_tokens", -1, kMaxTokens);
  const auto limit = reader.Integer("max_completion_tokens", -1, kMaxTokens);
  if (limit && old_limit && *limit != *old_limit) {
    reader.Fail("max_completion_tokens", "differs from max_tokens; send one of them");
  }
  request->base.max_tokens = static_cast<int32_t>(limit.value_or(old_limit.value_or(-1)));
  request->n = reader.Integer("n", 1, kMaxChoices).value_or(1);
  const bool logprobs = reader.Bool("logprobs").value_or(false);
  const auto top = reader.Integer("top_logprobs", 0, 20);
  if (top && *top > 0 && !logprobs) reader.Fail("top_logprobs", "needs logprobs: true");
  if (logprobs) request->base.top_logprobs = static_cast<int32_t>(top.value_or(0));
  request->stream = reader.Bool("stream").value_or(false);
  request->include_usage = ReadIncludeUsage(reader);
  ReadEffort(reader, "reasoning_effort", &request->input);
  if (const Json* arguments = reader.Object("chat_template_kwargs")) {
    request->input.template_arguments.update(*arguments);
  }
  reader.Refuse("functions", Json::array(), "is the old form; send tools");
  reader.Refuse("function_call", nullptr, "is the old form; send tool_choice");
  reader.Refuse("modalities", Json::array({"text"}), "only text is generated");
  reader.Refuse("audio", nullptr, "only text is generated");
  reader.Refuse("prediction", nullptr, "is not supported; leave it out");
  reader.Refuse("web_search_options", nullptr, "is not supported; leave it out");
  reader.Accept({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"});
}

class ChatCompletionCall final : public ApiCall {
 public:
  ChatCompletionCall(const ApiContext& context, const ChatRequest& request, ChatPlan plan)
      : context_(context),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(plan.request.top_logprobs >= 0),
        id_(NewId("chatcmpl-")),
        sequences_(server::Choices(plan.request, request.n)) {
    for (int64_t i = 0; i < request.n; ++i) choices_.emplace_back(plan.parser);
    token_logs_.resize(choices_.size(), Json::array());
  }

  bool stream() const override { return stream_; }
  std::vector<engine::SequenceRequest> TakeSequences() override { return std::move(sequences_); }

  void Begin(std::string* out) override {
    if (out == nullptr) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      AddChunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, out);
    }
  }

  void Delta(size_t choice, const engine::SequenceDelta& delta, std::string* out) override {
    Json logs = logprobs_ ? TokenLogprobs(*context_.engine, delta.tokens) : Json::array();
    for (const Json& entry : logs) token_logs_[choice].push_back(entry);
    Send(choice, choices_[choice].Push(delta, kCallPrefix), std::move(logs), out);
  }

  void End(size_t choice, const engine::SequenceResult& result, std::string* out) override {
    Send(choice, choices_[choice].End(result, kCallPrefix), Json::array(), out);
    if (out == nullptr) return;
    if (const auto error = FailureOf(result)) {
      failed_ = true;
      *out += ErrorEvent(*error);
      return;
    }
    AddChunk(choice, Json::object(), nullptr, FinishOf(choices_[choice]), out);
  }

  void Finish(std::string* out) override {
    if (out == nullptr) return;
    if (include_usage_ && !failed_) {
      Json chunk = Frame("chat.completion.chunk");
      chunk["choices"] = Json::array();
      chunk["usage"] = Usage();
      chunk["timings"] = Timings(choices_[0].result());
      AddEvent(chunk, out);
    }
    *out += "data: [DONE]\n\n";
  }

  Json Response() override {
    Json body = Frame("chat.completion");
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ChatChoice& choice = choices_[i];
      Json message = {{"role", "assistant"}, {"content", choice.content()}, {"refusal", nullptr}};
      if (choice.content().empty() && !choice.calls().empty()) message["content"] = nullptr;
      if (!choice.reasoning().empty()) message["reasoning_content"] = choice.reasoning();
      for (const ToolCall& call : choice.calls()) {
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      body["choices"].push_back({{"index", i},
                                 {"message", std::move(message)},
                                 {"logprobs", logprobs_ ? Json{{"content", token_logs_[i]}} : Json()},
                                 {"finish_reason", FinishOf(choice)}});
    }
    body["usage"] = Usage();
    body["timings"] = Timings(choices_[0].result());
    return body;
  }

  std::string_view Heartbeat() const override { return ": still here\n\n"; }
  std::string ErrorEvent(const ApiError& error) const override {
    return "data: " + JsonText(OpenAiErrorBody(error)) + "\n\n";
  }

 private:
  static std::string FinishOf(const ChatChoice& choice) {
    if (choice.result().reason == engine::FinishReason::kLength) return "length";
    return choice.calls().empty() ? "stop" : "tool_calls";
  }

  Json Frame(std::string_view object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", context_.model_id},
            {"system_fingerprint", fmt::format("bellhop-{}", engine::GetBuildInfo().commit)}};
  }

  // Choices of one request share the prompt.
  Json Usage() const {
    const engine::SequenceResult& first = choices_[0].result();
    int64_t generated = 0;
    for (const ChatChoice& choice : choices_) generated += choice.result().generated_tokens;
    return {{"prompt_tokens", first.prompt_tokens},
            {"completion_tokens", generated},
            {"total_tokens", first.prompt_tokens + generated},
            {"prompt_tokens_details", {{"cached_tokens", first.reused_tokens}}}};
  }

  static void AddEvent(const Json& chunk, std::string* out) { *out += "data: " + JsonText(chunk) + "\n\n"; }

  void AddChunk(size_t index, Json delta, Json logprobs, Json finish, std::string* out) const {
    Json chunk = Frame("chat.completion.chunk");
    const bool last = !finish.is_null();
    chunk["choices"] = Json::array({Json{{"index", index},
                                         {"delta", std::move(delta)},
                                         {"logprobs", std::move(logprobs)},
                                         {"finish_reason", std::move(finish)}}});
    if (include_usage_) chunk["usage"] = nullptr;
    if (last) chunk["timings"] = Timings(choices_[index].result());
    AddEvent(chunk, out);
  }

  void Send(size_t index, const std::vector<text::ChatDelta>& deltas, Json logs, std::string* out) {
    if (out == nullptr) return;
    Json logprobs = logs.empty() ? Json() : Json{{"content", std::move(logs)}};
    for (const text::ChatDelta& delta : deltas) {
      Json change;
      switch (delta.kind) {
        case text::ChatDelta::Kind::kContent: change["content"] = delta.text; break;
        case text::ChatDelta::Kind::kReasoning: change["reasoning_content"] = delta.text; break;
        case text::ChatDelta::Kind::kToolBegin:
          change["tool_calls"] = Json::array({Json{{"index", delta.tool},
                                                   {"id", choices_[index].calls()[static_cast<size_t>(delta.tool)].id},
                                                   {"type", "function"},
                                                   {"function", {{"name", delta.text}, {"arguments", ""}}}}});
          break;
        case text::ChatDelta::Kind::kToolArguments:
          change["tool_calls"] = Json::array({Json{{"index", delta.tool}, {"function", {{"arguments", delta.text}}}}});
          break;
      }
      AddChunk(index, std::move(change), std::exchange(logprobs, Json()), nullptr, out);
    }
    if (!logprobs.is_null()) AddChunk(index, {{"content", ""}}, std::move(logprobs), nullptr, out);
  }

  const ApiContext& context_;
  const bool stream_, include_usage_, logprobs_;
  const std::string id_;
  const int64_t created_ = sys::UnixSeconds();
  std::vector<engine::SequenceRequest> sequences_;
  std::vector<ChatChoice> choices_;
  std::vector<Json> token_logs_;
  bool failed_ = false;
};

}  // namespace

ParsedCall ParseChatCompletion(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  ChatRequest request;
  ReadMessages(reader, &request.input);
  ReadToolFields(reader, &request.input);
  ReadResponseFormat(reader, &request.input);
  ReadRest(context, reader, &request);
  reader.RejectUnknown();
  if (!reader.ok()) return reader.error();
  auto plan = PlanChat(context, request.input, std::move(request.base));
  if (auto* error = std::get_if<ApiError>(&plan)) return std::move(*error);
  return ParsedCall(std::make_unique<ChatCompletionCall>(context, request, std::move(std::get<ChatPlan>(plan))));
}

}  // namespace bellhop::server
