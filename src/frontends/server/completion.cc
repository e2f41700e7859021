// POST /v1/completions: text or tokens in, their continuation out.
#include <utility>

#include <fmt/format.h>

#include "engine/output_constraint.h"
#include "frontends/server/chat_turn.h"
#include "frontends/server/json_text.h"
#include "frontends/server/sampling_fields.h"
#include "frontends/server/token_list.h"
#include "sys/clock.h"

namespace bellhop::server {
namespace {

constexpr size_t kMaxPrompts = 16;
constexpr int32_t kDefaultTokens = 16;  // OpenAI's

struct CompletionRequest {
  std::vector<std::vector<TokenId>> prompts;
  engine::SequenceRequest base;
  int64_t n = 1;
  bool stream = false, include_usage = false, echo = false;
};

void AddTextPrompt(const ApiContext& context, FieldReader& reader, const std::string& prompt,
                   CompletionRequest* request) {
  auto tokens = context.engine->Tokenize(prompt, true, true);
  if (!tokens.ok()) return reader.Fail("prompt", std::string(tokens.status().message()));
  request->prompts.push_back(std::move(*tokens));
}

void AddTokenPrompt(const ApiContext& context, FieldReader& reader, const Json& list, const std::string& path,
                    CompletionRequest* request) {
  std::vector<TokenId> ids;
  if (auto error = ReadTokens(context, list, path, &ids)) return reader.Fail(std::move(*error));
  request->prompts.push_back(std::move(ids));
}

// "text", ["text", ...], [1, 2, ...] or [[1, 2], ...].
void ReadPrompts(const ApiContext& context, FieldReader& reader, CompletionRequest* request) {
  constexpr const char* kShapes = "must be a string, an array of strings, or token ids in one or several arrays";
  const Json* prompt = reader.Any("prompt");
  if (!reader.ok()) return;
  if (prompt == nullptr) return reader.Fail("prompt", fmt::format("is missing; it {}", kShapes));
  if (prompt->is_string()) return AddTextPrompt(context, reader, prompt->get<std::string>(), request);
  if (!prompt->is_array() || prompt->empty()) return reader.Fail("prompt", kShapes);
  if ((*prompt)[0].is_number()) return AddTokenPrompt(context, reader, *prompt, "prompt", request);
  if (prompt->size() > kMaxPrompts) {
    return reader.Fail("prompt", fmt::format("has {} prompts; at most {} are taken", prompt->size(), kMaxPrompts));
  }
  for (size_t i = 0; i < prompt->size() && reader.ok(); ++i) {
    const Json& entry = (*prompt)[i];
    if (entry.is_string()) {
      AddTextPrompt(context, reader, entry.get<std::string>(), request);
    } else if (entry.is_array()) {
      AddTokenPrompt(context, reader, entry, fmt::format("prompt[{}]", i), request);
    } else {
      reader.Fail("prompt", kShapes);
    }
  }
}

void CheckPrompts(const ApiContext& context, FieldReader& reader, const CompletionRequest& request) {
  for (const std::vector<TokenId>& prompt : request.prompts) {
    if (prompt.empty()) return reader.Fail("prompt", "is empty: there is nothing to continue");
    if (auto error = CheckLength(context, prompt.size(), "prompt")) return reader.Fail(std::move(*error));
  }
  if (static_cast<int64_t>(request.prompts.size()) * request.n > kMaxChoices) {
    reader.Fail("n", fmt::format("prompts times n is {}; at most {} are taken",
                                 static_cast<int64_t>(request.prompts.size()) * request.n, kMaxChoices));
  }
}

void ReadConstraint(FieldReader& reader, CompletionRequest* request) {
  const auto grammar = reader.String("grammar");
  const Json* schema = reader.Object("json_schema");
  if (!reader.ok()) return;
  if (grammar && schema != nullptr) return reader.Fail("grammar", "cannot be joined with json_schema");
  if (schema == nullptr && (!grammar || grammar->empty())) return;
  auto constraint = schema != nullptr ? engine::ConstrainToJson(schema) : engine::ConstrainToGrammar(*grammar);
  if (!constraint.ok()) {
    return reader.Fail(schema != nullptr ? "json_schema" : "grammar", std::string(constraint.status().message()));
  }
  request->base.grammar = std::move(constraint->grammar);
  request->base.grammar_triggers = std::move(constraint->triggers);
}

class CompletionCall final : public ApiCall {
 public:
  CompletionCall(const ApiContext& context, CompletionRequest request)
      : context_(context),
        request_(std::move(request)),
        id_(NewId("cmpl-")),
        choices_(request_.prompts.size() * static_cast<size_t>(request_.n)) {
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (request_.echo) choices_[i].text = context.engine->Detokenize(PromptOf(i), true);
      choices_[i].echoed = choices_[i].text.size();
    }
  }

  bool stream() const override { return request_.stream; }

  std::vector<engine::SequenceRequest> TakeSequences() override {
    std::vector<engine::SequenceRequest> sequences;
    for (std::vector<TokenId>& prompt : request_.prompts) {
      request_.base.prompt = request_.echo ? prompt : std::move(prompt);
      for (engine::SequenceRequest& choice : Choices(request_.base, request_.n)) sequences.push_back(std::move(choice));
    }
    return sequences;
  }

  void Begin(std::string* out) override {
    if (out == nullptr || !request_.echo) return;
    for (size_t i = 0; i < choices_.size(); ++i) AddChunk(i, choices_[i].text, Json(), Json(), out);
  }

  void Delta(size_t index, const engine::SequenceDelta& delta, std::string* out) override {
    Choice& choice = choices_[index];
    Json logs = logprobs() ? Legacy(delta.tokens, choice) : Json();
    choice.text += delta.text;
    if (out != nullptr && (!delta.text.empty() || !logs.is_null())) AddChunk(index, delta.text, logs, Json(), out);
    if (!logs.is_null()) Append(&choice.logs, logs);
  }

  void End(size_t index, const engine::SequenceResult& result, std::string* out) override {
    choices_[index].result = result;
    if (out == nullptr) return;
    if (const auto error = FailureOf(result)) {
      *out += ErrorEvent(*error);
    } else {
      AddChunk(index, "", Json(), FinishOf(result), out);
    }
  }

  void Finish(std::string* out) override {
    if (out == nullptr) return;
    if (request_.include_usage) {
      Json chunk = Frame();
      chunk["choices"] = Json::array();
      chunk["usage"] = Usage();
      *out += "data: " + JsonText(chunk) + "\n\n";
    }
    *out += "data: [DONE]\n\n";
  }

  Json Response() override {
    Json body = Frame();
    body["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      body["choices"].push_back({{"text", choices_[i].text},
                                 {"index", i},
                                 {"logprobs", choices_[i].logs},
                                 {"finish_reason", FinishOf(choices_[i].result)}});
    }
    body["usage"] = Usage();
    body["timings"] = Timings(choices_[0].result);
    return body;
  }

  std::string_view Heartbeat() const override { return ": still here\n\n"; }
  std::string ErrorEvent(const ApiError& error) const override {
    return "data: " + JsonText(OpenAiErrorBody(error)) + "\n\n";
  }

 private:
  struct Choice {
    std::string text;
    size_t echoed = 0;       // bytes of the prompt in it
    size_t token_bytes = 0;  // of the tokens so far
    Json logs;
    engine::SequenceResult result;
  };

  bool logprobs() const { return request_.base.top_logprobs >= 0; }
  const std::vector<TokenId>& PromptOf(size_t choice) const {
    return request_.prompts[choice / static_cast<size_t>(request_.n)];
  }
  static std::string FinishOf(const engine::SequenceResult& result) {
    return result.reason == engine::FinishReason::kLength ? "length" : "stop";
  }

  Json Frame() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", context_.model_id}};
  }

  Json Usage() const {
    int64_t prompt = 0, cached = 0, generated = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      generated += choices_[i].result.generated_tokens;
      if (i % static_cast<size_t>(request_.n) != 0) continue;
      prompt += choices_[i].result.prompt_tokens;
      cached += choices_[i].result.reused_tokens;
    }
    return {{"prompt_tokens", prompt},
            {"completion_tokens", generated},
            {"total_tokens", prompt + generated},
            {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  }

  // The API's older shape: parallel arrays.
  Json Legacy(const std::vector<engine::SampledToken>& tokens, Choice& choice) const {
    Json logs = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    for (const engine::SampledToken& token : tokens) {
      const std::string text = context_.engine->TokenText(token.id);
      logs["tokens"].push_back(text);
      logs["token_logprobs"].push_back(token.logprob);
      Json top = Json::object();
      for (const decode::TokenLogprob& entry : token.top) {
        top[JsonSafe(context_.engine->TokenText(entry.id))] = entry.logprob;
      }
      logs["top_logprobs"].push_back(std::move(top));
      logs["text_offset"].push_back(choice.echoed + choice.token_bytes);
      choice.token_bytes += text.size();
    }
    return logs;
  }

  static void Append(Json* logs, const Json& more) {
    if (logs->is_null()) {
      *logs = more;
      return;
    }
    for (const auto& [key, values] : more.items()) {
      for (const Json& value : values) (*logs)[key].push_back(value);
    }
  }

  void AddChunk(size_t index, const std::string& text, Json logs, Json finish, std::string* out) const {
    Json chunk = Frame();
    const bool last = !finish.is_null();
    chunk["choices"] = Json::array(
        {Json{{"text", text}, {"index", index}, {"logprobs", std::move(logs)}, {"finish_reason", std::move(finish)}}});
    if (last) chunk["timings"] = Timings(choices_[index].result);
    *out += "data: " + JsonText(chunk) + "\n\n";
  }

  const ApiContext& context_;
  CompletionRequest request_;
  const std::string id_;
  const int64_t created_ = sys::UnixSeconds();
  std::vector<Choice> choices_;
};

}  // namespace

ParsedCall ParseCompletion(const ApiContext& context, const Json& body) {
  FieldReader reader(body);
  CompletionRequest request;
  ReadModel(context, reader);
  ReadPrompts(context, reader, &request);
  ReadSampling(context, reader, &request.base);
  ReadStops(reader, "stop", &request.base);
  const auto limit = reader.Integer("max_tokens", -1, kMaxTokens);
  const auto predict = reader.Integer("n_predict", -1, kMaxTokens);  // llama.cpp's name
  request.base.max_tokens = static_cast<int32_t>(limit.value_or(predict.value_or(kDefaultTokens)));
  request.n = reader.Integer("n", 1, kMaxChoices).value_or(1);
  if (const auto top = reader.Integer("logprobs", 0, 20)) request.base.top_logprobs = static_cast<int32_t>(*top);
  request.echo = reader.Bool("echo").value_or(false);
  if (request.echo && request.base.top_logprobs >= 0) {
    reader.Fail("echo", "cannot be joined with logprobs: those of the prompt are not computed");
  }
  request.stream = reader.Bool("stream").value_or(false);
  request.include_usage = ReadIncludeUsage(reader);
  if (const auto best = reader.Integer("best_of", 1, kMaxChoices); best && *best != request.n) {
    reader.Fail("best_of", "must equal n: choices are not ranked");
  }
  reader.Refuse("suffix", "", "is not supported: text is continued at its end alone");
  ReadConstraint(reader, &request);
  reader.Accept({"user"});
  reader.RejectUnknown();
  if (reader.ok()) CheckPrompts(context, reader, request);
  if (!reader.ok()) return reader.error();
  return ParsedCall(std::make_unique<CompletionCall>(context, std::move(request)));
}

}  // namespace bellhop::server
