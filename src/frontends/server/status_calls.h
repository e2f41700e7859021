// What the server tells about itself: /health, /props, /slots, /experts, /v1/models.
#pragma once

#include "frontends/server/server_state.h"

namespace bellhop::server {

struct Health {
  int http_status = 503;
  Json body;
};
Health HealthOf(const ServerState& state);

// The others need a loaded model.
Json Models(const ServerState& state);
Json Props(const ServerState& state);
Json Slots(const engine::ServiceSnapshot& snapshot);
Json Experts(const ServerState& state, const engine::ServiceSnapshot& snapshot);

}  // namespace bellhop::server
