#include "frontends/server/api_call.h"

namespace bellhop::server {

Json OpenAiErrorBody(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", error.param.empty() ? Json() : Json(error.param)},
            {"code", error.code.empty() ? Json() : Json(error.code)}}}};
}

Json AnthropicErrorBody(const ApiError& error) {
  std::string type = error.type;
  if (error.http_status == 503) type = "overloaded_error";
  if (error.http_status >= 500 && error.http_status != 503) type = "api_error";
  if (error.http_status == 404) type = "not_found_error";
  if (error.http_status == 413) type = "request_too_large";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
}

}  // namespace bellhop::server
