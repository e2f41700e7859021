// One request of an API, between HTTP and the engine: the body was parsed and every field checked; what the engine
// generates becomes the API's events or its answer. Implementations know nothing of sockets and threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text_service.h"

namespace bellhop::server {

using Json = nlohmann::ordered_json;

// What a client gets instead of an answer.
struct ApiError {
  int http_status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // the field; empty: none
  std::string code;   // empty: none
};

// What the APIs need to know of the server.
struct ApiContext {
  const engine::TextEngine* engine = nullptr;  // const calls only; thread-safe
  std::string model_id;
  int64_t created = 0;  // Unix seconds, when the model was loaded
  int32_t parallel = 1;
  bool experts = false;  // the model has experts
};

class ApiCall {
 public:
  virtual ~ApiCall() = default;

  virtual bool stream() const = 0;
  // What the engine is to run, one per choice; taken once.
  virtual std::vector<engine::SequenceRequest> TakeSequences() = 0;

  // The choices' output, in the order in which it comes. With stream(), each appends whole SSE events to `out`.
  virtual void Begin(std::string* out) = 0;
  virtual void Delta(size_t choice, const engine::SequenceDelta& delta, std::string* out) = 0;
  virtual void End(size_t choice, const engine::SequenceResult& result, std::string* out) = 0;
  virtual void Finish(std::string* out) = 0;  // after the last End
  // Without stream(): the body of the answer, after Finish.
  virtual Json Response() = 0;

  // Keeps a quiet stream open.
  virtual std::string_view Heartbeat() const = 0;
  // The API's event for an error inside a stream.
  virtual std::string ErrorEvent(const ApiError& error) const = 0;
};

using ParsedCall = std::variant<std::unique_ptr<ApiCall>, ApiError>;

// POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages.
ParsedCall ParseChatCompletion(const ApiContext& context, const Json& body);
ParsedCall ParseCompletion(const ApiContext& context, const Json& body);
ParsedCall ParseResponse(const ApiContext& context, const Json& body);
ParsedCall ParseMessage(const ApiContext& context, const Json& body);

// The body of an error: OpenAI's shape, and Anthropic's for /v1/messages.
Json OpenAiErrorBody(const ApiError& error);
Json AnthropicErrorBody(const ApiError& error);

}  // namespace bellhop::server
