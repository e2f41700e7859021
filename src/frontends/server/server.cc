#include "frontends/server/server.h"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "frontends/server/http_server.h"
#include "frontends/server/routes.h"
#include "frontends/server/server_state.h"

namespace bellhop::server {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
// After the drain time cancelled streams get this long to write their last event.
constexpr std::chrono::seconds kLastWords{5};

HttpLimits LimitsOf(const config::ServeOptions& options) {
  HttpLimits limits;
  limits.connections = static_cast<size_t>(options.connections);
  limits.body_bytes = static_cast<size_t>(options.max_body_bytes);
  return limits;
}

std::string Url(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

// Milliseconds that a decode step of one row needs: with a GPU what the plan said, else for its weight bytes alone. 0
// when that cannot be measured.
double PredictStep(engine::TextEngine& engine) {
  if (engine.gpu() != nullptr) return engine.gpu()->predicted_ms;
  const auto bandwidth = engine.MeasureReadBandwidth(true);
  if (!bandwidth.ok() || *bandwidth <= 0) return 0;
  return static_cast<double>(engine.info().bytes_per_token) / (*bandwidth * 1e6);
}

Status Load(const config::ServeOptions& options, LogSink* log, const std::atomic<bool>& stop, ServerState& state,
            const ServeCallbacks& callbacks) {
  const auto progress = [&](std::string_view what, uint64_t done, uint64_t total) {
    state.SetLoading(what, done, total);
    return !stop.load(std::memory_order_relaxed);
  };
  engine::ServiceOptions service_options;
  service_options.queue_limit = options.queue;
  double predicted_ms = 0;
  service_options.before_start = [&](engine::TextEngine& engine) { predicted_ms = PredictStep(engine); };
  BELLHOP_TRY_ASSIGN(auto service, engine::TextService::Start(options.engine, service_options, log, progress));
  const std::vector<std::string> plan = service->engine().PlanLines();
  state.SetReady(std::move(service), predicted_ms);
  if (callbacks.on_ready) callbacks.on_ready(plan);
  return Status();
}

bool WaitUntil(std::chrono::milliseconds limit, const auto& done) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

// New requests get 503 while those that run finish; what still runs after the drain time is cancelled.
void Drain(const config::ServeOptions& options, LogSink* log, HttpServer& http, ServerState& state) {
  state.SetStopping();
  const auto quiet = [&http] { return http.active_requests() == 0; };
  if (WaitUntil(std::chrono::seconds(options.drain_seconds), quiet)) return;
  log->Warn("requests still run after {} s and are ended", options.drain_seconds);
  if (state.service() != nullptr) state.service()->CancelAll();
  (void)WaitUntil(kLastWords, quiet);
}

}  // namespace

Status Serve(const config::ServeOptions& options, LogSink* log, const std::atomic<bool>& stop,
             const ServeCallbacks& callbacks) {
  ServerState state(options);
  BELLHOP_TRY_ASSIGN(const auto watch, sys::HangupWatch::Start());
  HttpServer http(LimitsOf(options), *watch);
  AddRoutes(http, state);
  int port = options.port;
  if (port == 0) {
    port = http.bind_to_any_port(options.host);
  } else if (!http.bind_to_port(options.host, port)) {
    port = -1;
  }
  if (port < 0) {
    return InvalidArgument("{} cannot be bound; is another server running there? --port 0 takes any free port",
                           Url(options.host, options.port));
  }
  std::thread listener([&http] { http.listen_after_bind(); });
  if (!WaitUntil(std::chrono::seconds(10), [&http] { return http.is_running(); })) {
    http.stop();
    listener.join();
    return IoError("{}: the server does not start to listen", Url(options.host, port));
  }
  if (callbacks.on_listening) callbacks.on_listening(Url(options.host, port));

  Status status = Load(options, log, stop, state, callbacks);
  if (status.ok()) {
    while (!stop.load(std::memory_order_relaxed)) std::this_thread::sleep_for(kPoll);
    Drain(options, log, http, state);
  } else {
    state.SetFailed();
    if (status.code() == StatusCode::kCancelled && stop.load(std::memory_order_relaxed)) status = Status();
  }
  http.stop();
  http.CloseConnections();
  listener.join();
  return status;
}

}  // namespace bellhop::server
