// `bellhop serve`: the HTTP server around one text service. It answers from the first moment on: while the model loads,
// /health says how far it is and every other route answers 503.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "config/options.h"

namespace bellhop::server {

struct ServeCallbacks {
  // The address is bound: "http://127.0.0.1:8080".
  std::function<void(const std::string& url)> on_listening;
  // The model is loaded; lines of the plan.
  std::function<void(const std::vector<std::string>& plan)> on_ready;
};

// Runs until `stop` is set, then lets streams finish within the drain time, ends the rest, and returns. Errors: the
// address cannot be bound, the model cannot be loaded.
Status Serve(const config::ServeOptions& options, LogSink* log, const std::atomic<bool>& stop,
             const ServeCallbacks& callbacks);

}  // namespace bellhop::server
