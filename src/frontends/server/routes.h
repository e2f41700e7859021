// Which path does what, and what every request passes first: host, origin, API key.
#pragma once

#include "frontends/server/http_server.h"
#include "frontends/server/server_state.h"

namespace bellhop::server {

void AddRoutes(HttpServer& http, ServerState& state);

}  // namespace bellhop::server
