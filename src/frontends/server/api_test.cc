// The APIs on the shipped model's tokenizer and template: what is refused, and that a stream says what the whole answer
// says. What the engine would generate is made up here.
#include <cmath>
#include <sstream>

#include <gtest/gtest.h>

#include "frontends/server/json_text.h"
#include "frontends/server/text_calls.h"

namespace bellhop::server {
namespace {

class ApiTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    config::EngineConfig config;
    config.model_path = BELLHOP_SOURCE_DIR "/models/tiny-moe-q4_0.gguf";
    config.runtime.threads = 1;
    config.runtime.pin_threads = false;
    config.context.context_tokens = 256;
    engine_ = engine::TextEngine::Create(config, &NullLogSink()).value().release();
  }
  static void TearDownTestSuite() { delete engine_; }

  ApiContext context() const {
    ApiContext context;
    context.engine = engine_;
    context.model_id = "tiny";
    return context;
  }
  static Json Chat(Json more = Json::object()) {
    Json body = {{"messages", Json::array({Json{{"role", "user"}, {"content", "What can you do?"}}})}};
    body.update(more);
    return body;
  }
  std::string Error(ParsedCall (*parse)(const ApiContext&, const Json&), const Json& body, int status = 400) {
    const ApiContext shared = context();
    const ParsedCall parsed = parse(shared, body);
    const auto* error = std::get_if<ApiError>(&parsed);
    if (error == nullptr) return "accepted";
    EXPECT_EQ(error->http_status, status) << error->message;
    return error->param + "|" + error->message;
  }
  static engine::TextEngine* engine_;
};
engine::TextEngine* ApiTest::engine_ = nullptr;

// Feeds the pieces to the call as the engine would.
void Play(ApiCall& call, const std::vector<std::string>& pieces, engine::FinishReason reason, std::string* out) {
  call.Begin(out);
  for (const std::string& piece : pieces) call.Delta(0, {piece, {}}, out);
  engine::SequenceResult result;
  result.reason = reason;
  result.prompt_tokens = 9;
  result.reused_tokens = 4;
  result.generated_tokens = static_cast<int32_t>(pieces.size());
  call.End(0, result, out);
  call.Finish(out);
}

std::vector<Json> Events(const std::string& stream) {
  std::vector<Json> events;
  std::istringstream lines(stream);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: ") || line == "data: [DONE]") continue;
    events.push_back(Json::parse(line.substr(6)));
  }
  return events;
}

const Json kTools = Json::array(
    {Json{{"type", "function"},
          {"function",
           {{"name", "get"}, {"parameters", {{"type", "object"}, {"properties", {{"a", {{"type", "string"}}}}}}}}}}});

TEST_F(ApiTest, ChatRefusesWhatItCannotHonour) {
  const auto error = [&](Json more) { return Error(ParseChatCompletion, Chat(std::move(more))); };
  EXPECT_EQ(error({{"frobnicate", 1}}).substr(0, 11), "frobnicate|");
  EXPECT_EQ(error({{"temperature", -1}}).substr(0, 12), "temperature|");
  EXPECT_EQ(error({{"top_p", "x"}}).substr(0, 6), "top_p|");
  EXPECT_EQ(error({{"n", 0}}).substr(0, 2), "n|");
  EXPECT_EQ(error({{"stop", {""}}}).substr(0, 5), "stop|");
  EXPECT_EQ(error({{"logit_bias", {{"99999999", 1}}}}).substr(0, 11), "logit_bias|");
  EXPECT_EQ(error({{"top_logprobs", 3}}).substr(0, 13), "top_logprobs|");
  EXPECT_EQ(error({{"response_format", {{"type", "xml"}}}}).substr(0, 21), "response_format.type|");
  EXPECT_EQ(error({{"tools", {{{"type", "web"}}}}}).substr(0, 14), "tools[0].type|");
  EXPECT_EQ(error({{"tool_choice", "required"}}).substr(0, 12), "tool_choice|");
  EXPECT_EQ(error({{"grammar", "root ::= missing"}}).substr(0, 8), "grammar|");
  EXPECT_EQ(error({{"grammar", "root ::= \"x\""}, {"tools", kTools}}).substr(0, 8), "grammar|");
  EXPECT_EQ(error({{"messages", Json::array()}}).substr(0, 9), "messages|");
  EXPECT_EQ(error({{"messages", {{{"role", "king"}, {"content", "x"}}}}}).substr(0, 17), "messages[0].role|");
  EXPECT_EQ(error({{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}).substr(0, 28),
            "messages[0].content[0].type|");
  EXPECT_EQ(error({{"max_tokens", 4}, {"max_completion_tokens", 5}}).substr(0, 22), "max_completion_tokens|");
  EXPECT_EQ(Error(ParseChatCompletion, Chat({{"model", "other"}}), 404).substr(0, 6), "model|");
  std::string long_text;
  for (int i = 0; i < 400; ++i) long_text += "sea ";
  const std::string overflow = error({{"messages", {{{"role", "user"}, {"content", long_text}}}}});
  EXPECT_NE(overflow.find("the context 256"), std::string::npos) << overflow;
  const std::string keyword =
      error({{"response_format",
              {{"type", "json_schema"},
               {"json_schema", {{"schema", {{"type", "object"}, {"properties", {{"x", {{"multipleOf", 3}}}}}}}}}}}});
  EXPECT_NE(keyword.find("multipleOf"), std::string::npos) << keyword;
}

TEST_F(ApiTest, ChatTakesWhatItShould) {
  const ApiContext shared = context();
  const auto parsed = ParseChatCompletion(shared, Chat({{"model", "tiny"},
                                                        {"temperature", 0},
                                                        {"n", 3},
                                                        {"seed", 7},
                                                        {"stop", "x"},
                                                        {"max_tokens", 5},
                                                        {"logprobs", true},
                                                        {"top_logprobs", 2},
                                                        {"user", "me"},
                                                        {"logit_bias", {{"5", -100}}}}));
  ASSERT_TRUE(std::holds_alternative<std::unique_ptr<ApiCall>>(parsed)) << std::get<ApiError>(parsed).message;
  const auto sequences = std::get<std::unique_ptr<ApiCall>>(parsed)->TakeSequences();
  ASSERT_EQ(sequences.size(), 3u);
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(sequences[i].sequence, i);
    EXPECT_EQ(sequences[i].sampling.seed, 7u);
    EXPECT_EQ(sequences[i].max_tokens, 5);
    EXPECT_EQ(sequences[i].top_logprobs, 2);
    EXPECT_EQ(sequences[i].stop, std::vector<std::string>{"x"});
    EXPECT_TRUE(std::isinf(sequences[i].sampling.logit_bias[0].second));
  }
  EXPECT_EQ(engine_->Detokenize(sequences[0].prompt, true),
            "<|im_start|>user\nWhat can you do?<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ApiTest, ChatStreamsWhatItAnswers) {
  const ApiContext shared = context();
  const std::vector<std::string> pieces = {"Well.\n<tool", "_call>\n{\"name\": \"get\", \"argu",
                                           "ments\": {\"a\": \"b\"}}", "\n</tool_call>"};
  auto whole = std::get<std::unique_ptr<ApiCall>>(ParseChatCompletion(shared, Chat({{"tools", kTools}})));
  Play(*whole, pieces, engine::FinishReason::kEndOfGeneration, nullptr);
  const Json answer = whole->Response();
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Well.");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"a\": \"b\"}");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 4);

  auto streamed = std::get<std::unique_ptr<ApiCall>>(ParseChatCompletion(
      shared, Chat({{"tools", kTools}, {"stream", true}, {"stream_options", {{"include_usage", true}}}})));
  std::string out, content, name, arguments;
  Play(*streamed, pieces, engine::FinishReason::kEndOfGeneration, &out);
  EXPECT_TRUE(out.ends_with("data: [DONE]\n\n"));
  const std::vector<Json> events = Events(out);
  for (const Json& event : events) {
    if (event["choices"].empty()) continue;
    const Json& delta = event["choices"][0]["delta"];
    content += delta.value("content", "");
    if (!delta.contains("tool_calls")) continue;
    name += delta["tool_calls"][0]["function"].value("name", "");
    arguments += delta["tool_calls"][0]["function"].value("arguments", "");
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(name, "get");
  EXPECT_EQ(arguments, "{\"a\": \"b\"}");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(events.back()["usage"], answer["usage"]);
}

TEST_F(ApiTest, MessagesStreamWhatTheyAnswer) {
  const ApiContext shared = context();
  const Json body = Chat({{"max_tokens", 9}, {"stop_sequences", {"!"}}});
  auto whole = std::get<std::unique_ptr<ApiCall>>(ParseMessage(shared, body));
  Play(*whole, {"Hello", " you"}, engine::FinishReason::kLength, nullptr);
  const Json answer = whole->Response();
  EXPECT_EQ(answer["content"][0]["text"], "Hello you");
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
  EXPECT_EQ(answer["usage"]["input_tokens"], 5);
  EXPECT_EQ(answer["usage"]["cache_read_input_tokens"], 4);
  Json stream_body = body;
  stream_body["stream"] = true;
  auto streamed = std::get<std::unique_ptr<ApiCall>>(ParseMessage(shared, stream_body));
  std::string out, text, types;
  Play(*streamed, {"Hello", " you"}, engine::FinishReason::kLength, &out);
  for (const Json& event : Events(out)) {
    types += event["type"].get<std::string>() + " ";
    if (event["type"] == "content_block_delta") text += event["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello you");
  EXPECT_EQ(
      types,
      "message_start content_block_start content_block_delta content_block_delta content_block_stop message_delta "
      "message_stop ");
  EXPECT_EQ(Error(ParseMessage, Chat()).substr(0, 11), "max_tokens|");
}

TEST_F(ApiTest, ResponsesStreamWhatTheyAnswer) {
  const ApiContext shared = context();
  auto whole = std::get<std::unique_ptr<ApiCall>>(ParseResponse(shared, {{"input", "hi"}}));
  Play(*whole, {"Hello", " you"}, engine::FinishReason::kEndOfGeneration, nullptr);
  const Json answer = whole->Response();
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "Hello you");
  auto streamed = std::get<std::unique_ptr<ApiCall>>(ParseResponse(shared, {{"input", "hi"}, {"stream", true}}));
  std::string out, types;
  Play(*streamed, {"Hello", " you"}, engine::FinishReason::kEndOfGeneration, &out);
  int64_t number = 0;
  for (const Json& event : Events(out)) {
    EXPECT_EQ(event["sequence_number"], number++);
    types += event["type"].get<std::string>().substr(9) + " ";
  }
  EXPECT_EQ(types,
            "created in_progress output_item.added content_part.added output_text.delta output_text.delta "
            "output_text.done content_part.done output_item.done completed ");
  EXPECT_EQ(Error(ParseResponse, {{"input", "hi"}, {"previous_response_id", "x"}}).substr(0, 21),
            "previous_response_id|");
  EXPECT_EQ(Error(ParseResponse, {{"input", "hi"}, {"store", true}}).substr(0, 6), "store|");
}

TEST_F(ApiTest, Completions) {
  const ApiContext shared = context();
  for (const Json& prompt : {Json("The sea"), Json{"The sea", "He"}, Json{1, 2, 3}, Json{{1, 2}, {3}}}) {
    const auto parsed = ParseCompletion(shared, {{"prompt", prompt}, {"n", 2}});
    ASSERT_TRUE(std::holds_alternative<std::unique_ptr<ApiCall>>(parsed)) << prompt;
    const size_t prompts = prompt.is_string() || prompt[0].is_number() ? 1 : prompt.size();
    EXPECT_EQ(std::get<std::unique_ptr<ApiCall>>(parsed)->TakeSequences().size(), 2 * prompts);
  }
  for (const Json& prompt : {Json(3), Json::array(), Json{-1}, Json{1 << 30}, Json{{"x", 1}}, Json(nullptr)}) {
    EXPECT_EQ(Error(ParseCompletion, {{"prompt", prompt}}).substr(0, 6), "prompt") << prompt;
  }
  EXPECT_EQ(Error(ParseCompletion, {{"prompt", "x"}, {"suffix", "y"}}).substr(0, 7), "suffix|");
  auto echo = std::get<std::unique_ptr<ApiCall>>(ParseCompletion(shared, {{"prompt", "The sea"}, {"echo", true}}));
  (void)echo->TakeSequences();
  Play(*echo, {" is", " wide"}, engine::FinishReason::kStop, nullptr);
  EXPECT_EQ(echo->Response()["choices"][0]["text"], "The sea is wide");
}

TEST_F(ApiTest, TokensAndText) {
  const ApiContext shared = context();
  const Json tokens = std::get<Json>(TokenizeCall(shared, {{"content", "the wide sea"}}))["tokens"];
  EXPECT_FALSE(tokens.empty());
  EXPECT_EQ(std::get<Json>(DetokenizeCall(shared, {{"tokens", tokens}}))["content"], "the wide sea");
  EXPECT_EQ(std::get<ApiError>(DetokenizeCall(shared, {{"tokens", {-1}}})).param, "tokens[0]");
  EXPECT_NE(std::get<Json>(ApplyTemplateCall(shared, Chat()))["prompt"].get<std::string>().find("What can you do?"),
            std::string::npos);
}

}  // namespace
}  // namespace bellhop::server
