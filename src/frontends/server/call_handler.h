// Runs one API call: checks and queues it, then answers with one JSON object or a stream of events.
#pragma once

#include <httplib.h>

#include "frontends/server/api_call.h"
#include "frontends/server/server_state.h"

namespace bellhop::server {

using ParseCall = ParsedCall (*)(const ApiContext& context, const Json& body);
using ErrorBody = Json (*)(const ApiError& error);

void HandleCall(ServerState& state, const httplib::Request& request, httplib::Response& response, ParseCall parse,
                ErrorBody error_body);

// Answers with an error; `Retry-After` with 429 and 503.
void SendError(httplib::Response& response, const ApiError& error, ErrorBody error_body);
void SendJson(httplib::Response& response, const Json& body);

// Why the server cannot take a request now: loading, failed, stopping.
ApiError NotReady(const ServerState& state);

}  // namespace bellhop::server
