#include "frontends/server/routes.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "frontends/server/call_handler.h"
#include "frontends/server/json_text.h"
#include "frontends/server/page/page.h"
#include "frontends/server/status_calls.h"
#include "frontends/server/text_calls.h"

namespace bellhop::server {
namespace {

using Request = httplib::Request;
using Response = httplib::Response;
using Outcome = httplib::Server::HandlerResponse;

constexpr std::string_view kMessagesPath = "/v1/messages";
// Every path that exists: what metrics may carry as a label, and the only difference between 404 and 405.
struct Route {
  std::string_view path;
  bool post = false;
  bool open = false;  // without an API key
};
constexpr Route kRoutes[] = {
    {"/", false, true},
    {"/health", false, true},
    {"/v1/health", false, true},
    {"/metrics"},
    {"/props"},
    {"/slots"},
    {"/experts"},
    {"/v1/models"},
    {"/models"},
    {"/v1/chat/completions", true},
    {"/chat/completions", true},
    {"/v1/completions", true},
    {"/completions", true},
    {"/v1/responses", true},
    {kMessagesPath, true},
    {"/tokenize", true},
    {"/detokenize", true},
    {"/apply-template", true},
};

const Route* FindRoute(std::string_view path) {
  const auto* found =
      std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) { return r.path == path; });
  return found == std::end(kRoutes) ? nullptr : found;
}

ErrorBody ErrorBodyOf(std::string_view path) { return path == kMessagesPath ? AnthropicErrorBody : OpenAiErrorBody; }

ApiError Simple(int status, std::string message, std::string type, std::string code) {
  return {.http_status = status,
          .message = std::move(message),
          .type = std::move(type),
          .param = {},
          .code = std::move(code)};
}

// The length of the body is not the same for everybody who reads the request: what follows could be taken for another
// one.
bool AmbiguousLength(const Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  return lengths > 1 || (lengths == 1 && request.has_header("Transfer-Encoding"));
}

// Status 0: the request may pass.
ApiError Refusal(const ServerState& state, const Request& request) {
  if (AmbiguousLength(request)) {
    return Simple(400, "send one Content-Length, or Transfer-Encoding, and not both", "invalid_request_error",
                  "bad_request");
  }
  const AccessPolicy& policy = state.access();
  const std::string host = request.get_header_value("Host"), origin = request.get_header_value("Origin");
  if (!HostAllowed(policy, host)) {
    return Simple(403,
                  fmt::format("this server is reached as localhost, not as '{}'; --host binds another address", host),
                  "permission_error", "host_not_allowed");
  }
  if (!origin.empty() && origin != "null" && !SameOrigin(origin, host) && AllowedOrigin(policy, origin).empty()) {
    return Simple(403, fmt::format("pages of {} may not call this server; --cors {} allows it", origin, origin),
                  "permission_error", "origin_not_allowed");
  }
  const Route* route = FindRoute(request.path);
  const bool open = request.method == "OPTIONS" || (route != nullptr && route->open);
  if (!open && !KeyAllowed(policy, request.get_header_value("Authorization"), request.get_header_value("x-api-key"))) {
    return Simple(401, "the API key is missing or wrong; send Authorization: Bearer KEY", "authentication_error",
                  "invalid_api_key");
  }
  return {.http_status = 0, .message = {}, .type = {}, .param = {}, .code = {}};
}

void AddCorsHeaders(const ServerState& state, const Request& request, Response& response) {
  const std::string origin = AllowedOrigin(state.access(), request.get_header_value("Origin"));
  if (origin.empty()) return;
  response.set_header("Access-Control-Allow-Origin", origin);
  response.set_header("Vary", "Origin");
}

void AnswerPreflight(const ServerState& state, const Request& request, Response& response) {
  response.status = 204;
  if (AllowedOrigin(state.access(), request.get_header_value("Origin")).empty()) return;
  response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type, x-api-key, anthropic-version");
  response.set_header("Access-Control-Max-Age", "600");
}

// What httplib refused by itself, and paths that do not exist.
void AnswerError(const Request& request, Response& response) {
  if (!response.body.empty()) return;
  HttpServer::CloseAfterAnswer(response);
  const Route* route = FindRoute(request.path);
  const bool post = request.method == "POST";
  ApiError error;
  if (route != nullptr && response.status < 405 && route->post != post) {
    response.set_header("Allow", route->post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    error = Simple(405, fmt::format("{} takes {}", route->path, route->post ? "POST" : "GET"), "invalid_request_error",
                   "method_not_allowed");
  } else if (response.status == 404 || (route == nullptr && response.status == 400 && post)) {
    error = Simple(404, "there is no such path; /v1/models, /v1/chat/completions and others are listed in the manual",
                   "not_found_error", "not_found");
  } else if (response.status == 413) {
    error = Simple(413, "the body is larger than the server takes (--max-body)", "invalid_request_error",
                   "request_too_large");
  } else if (response.status == 500) {
    error = Simple(500, "internal error", "server_error", "internal");
  } else {
    error = Simple(response.status, "the request is not valid HTTP", "invalid_request_error", "bad_request");
  }
  SendError(response, error, ErrorBodyOf(request.path));
}

using TextCall = std::variant<Json, ApiError> (*)(const ApiContext& context, const Json& body);

void HandleText(ServerState& state, const Request& request, Response& response, TextCall call) {
  if (state.service() == nullptr) return SendError(response, NotReady(state), OpenAiErrorBody);
  const auto body = ParseJsonObject(request.body);
  if (!body.ok()) {
    return SendError(response,
                     Simple(400, std::string(body.status().message()), "invalid_request_error", "invalid_json"),
                     OpenAiErrorBody);
  }
  const auto answer = call(state.api(), *body);
  if (const auto* error = std::get_if<ApiError>(&answer)) return SendError(response, *error, OpenAiErrorBody);
  SendJson(response, std::get<Json>(answer));
}

// The page may load nothing, call nothing but this server, and be framed by nobody.
constexpr const char* kPagePolicy =
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void AddStatusRoutes(HttpServer& http, ServerState& state) {
  // With the snapshot of a loaded engine, or 503.
  const auto get = [&http, &state](const char* path, auto answer) {
    http.Get(path, [&state, answer](const Request&, Response& response) {
      if (state.service() == nullptr) return SendError(response, NotReady(state), OpenAiErrorBody);
      answer(response);
    });
  };
  get("/metrics", [&state](Response& response) {
    response.set_content(state.metrics().Render(state.service()->Snapshot(), state.predicted_ms()),
                         "text/plain; version=0.0.4; charset=utf-8");
  });
  get("/props", [&state](Response& response) { SendJson(response, Props(state)); });
  get("/slots", [&state](Response& response) { SendJson(response, Slots(state.service()->Snapshot())); });
  get("/experts", [&state](Response& response) { SendJson(response, Experts(state, state.service()->Snapshot())); });
  for (const char* path : {"/v1/models", "/models"}) {
    get(path, [&state](Response& response) { SendJson(response, Models(state)); });
  }
  for (const char* path : {"/health", "/v1/health"}) {
    http.Get(path, [&state](const Request&, Response& response) {
      const Health health = HealthOf(state);
      response.status = health.http_status;
      SendJson(response, health.body);
    });
  }
  http.Get("/", [](const Request&, Response& response) {
    response.set_header("Content-Security-Policy", kPagePolicy);
    response.set_header("Referrer-Policy", "no-referrer");
    const std::string_view page = PageHtml();
    response.set_content(page.data(), page.size(), "text/html; charset=utf-8");
  });
}

}  // namespace

void AddRoutes(HttpServer& http, ServerState& state) {
  http.set_pre_routing_handler([&state](const Request& request, Response& response) {
    response.set_header("X-Content-Type-Options", "nosniff");
    AddCorsHeaders(state, request, response);
    const ApiError refusal = Refusal(state, request);
    if (refusal.http_status != 0) {
      HttpServer::CloseAfterAnswer(response);  // the body, if there is one, was not read
      SendError(response, refusal, ErrorBodyOf(request.path));
      return Outcome::Handled;
    }
    if (request.method != "OPTIONS") return Outcome::Unhandled;
    AnswerPreflight(state, request, response);
    return Outcome::Handled;
  });
  http.set_error_handler([](const Request& request, Response& response) { AnswerError(request, response); });
  http.set_exception_handler([](const Request& request, Response& response, std::exception_ptr) {
    SendError(response, Simple(500, "internal error", "server_error", "internal"), ErrorBodyOf(request.path));
  });
  http.set_logger([&state](const Request& request, const Response& response) {
    const Route* route = FindRoute(request.path);
    state.metrics().CountRequest(route == nullptr ? "other" : route->path, response.status);
  });
  AddStatusRoutes(http, state);

  const auto post = [&http, &state](const char* path, ParseCall parse, ErrorBody error_body) {
    http.Post(path, [&state, parse, error_body](const Request& request, Response& response) {
      HandleCall(state, request, response, parse, error_body);
    });
  };
  post("/v1/chat/completions", ParseChatCompletion, OpenAiErrorBody);
  post("/chat/completions", ParseChatCompletion, OpenAiErrorBody);
  post("/v1/completions", ParseCompletion, OpenAiErrorBody);
  post("/completions", ParseCompletion, OpenAiErrorBody);
  post("/v1/responses", ParseResponse, OpenAiErrorBody);
  post("/v1/messages", ParseMessage, AnthropicErrorBody);
  const auto text = [&http, &state](const char* path, TextCall call) {
    http.Post(path, [&state, call](const Request& request, Response& response) {
      HandleText(state, request, response, call);
    });
  };
  text("/tokenize", TokenizeCall);
  text("/detokenize", DetokenizeCall);
  text("/apply-template", ApplyTemplateCall);
}

}  // namespace bellhop::server
