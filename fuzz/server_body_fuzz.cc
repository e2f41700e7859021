// A request's body, then optionally a zero byte and what the model would generate. Parses it as the body of every API
// and plays the generated text through those that accept it, with and without a stream.
// Holds for any input: nothing crashes, refusals have a 4xx status and a message, what comes out is JSON and its bytes
// are UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "frontends/server/json_text.h"
#include "frontends/server/text_calls.h"

namespace {

using namespace bellhop;
using server::ApiCall;
using server::ApiContext;
using server::ApiError;
using server::Json;

constexpr size_t kPiece = 5;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

const ApiContext& Context() {
  static const std::unique_ptr<engine::TextEngine> engine = [] {
    config::EngineConfig config;
    config.model_path = BELLHOP_SOURCE_DIR "/models/tiny-moe-q4_0.gguf";
    config.runtime.threads = 1;
    config.runtime.pin_threads = false;
    config.context.context_tokens = 128;
    config.context.batch_rows = 1;
    auto made = engine::TextEngine::Create(config, &NullLogSink());
    Require(made.ok());
    return std::move(made).value();
  }();
  static const ApiContext context{
      .engine = engine.get(), .model_id = "tiny", .created = 1, .parallel = 1, .experts = true};
  return context;
}

void RequireRefusal(const ApiError& error) {
  Require(error.http_status >= 400 && error.http_status < 500 && !error.message.empty());
  Require(!server::JsonText(server::OpenAiErrorBody(error)).empty());
  Require(!server::JsonText(server::AnthropicErrorBody(error)).empty());
}

void Play(ApiCall& call, std::string_view text) {
  const size_t choices = call.TakeSequences().size();
  Require(choices > 0);
  std::string stream;
  std::string* out = call.stream() ? &stream : nullptr;
  call.Begin(out);
  for (size_t choice = 0; choice < choices; ++choice) {
    for (size_t at = 0; at < text.size(); at += kPiece) {
      engine::SequenceDelta delta;
      delta.text = text.substr(at, kPiece);
      delta.tokens.push_back({.id = static_cast<TokenId>(text[at] & 0x7f), .logprob = -1, .top = {{1, -2.0f}}});
      call.Delta(choice, delta, out);
    }
    engine::SequenceResult result;
    result.reason = text.size() % 2 == 0 ? engine::FinishReason::kLength : engine::FinishReason::kEndOfGeneration;
    call.End(choice, result, out);
  }
  call.Finish(out);
  if (out == nullptr) Require(!Json::parse(server::JsonText(call.Response()), nullptr, false).is_discarded());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string_view text = "Well. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
  if (const size_t split = input.find('\0'); split != input.npos) {
    text = input.substr(split + 1);
    input = input.substr(0, split);
  }
  const auto body = server::ParseJsonObject(input);
  if (!body.ok()) {
    Require(body.status().code() == StatusCode::kInvalidArgument && !body.status().message().empty());
    return 0;
  }
  for (const auto parse :
       {server::ParseChatCompletion, server::ParseCompletion, server::ParseResponse, server::ParseMessage}) {
    auto parsed = parse(Context(), *body);
    if (const auto* error = std::get_if<ApiError>(&parsed)) {
      RequireRefusal(*error);
    } else {
      Play(*std::get<std::unique_ptr<ApiCall>>(parsed), text);
    }
  }
  for (const auto call : {server::TokenizeCall, server::DetokenizeCall, server::ApplyTemplateCall}) {
    const auto answer = call(Context(), *body);
    if (const auto* error = std::get_if<ApiError>(&answer)) {
      RequireRefusal(*error);
    } else {
      Require(!server::JsonText(std::get<Json>(answer)).empty());
    }
  }
  return 0;
}
