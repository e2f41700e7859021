#include "frontends/server/server_state.h"

#include <filesystem>
#include <utility>

#include "sys/clock.h"

namespace bellhop::server {
namespace {

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace

ServerState::ServerState(const config::ServeOptions& options) : options_(options) {
  access_.api_keys = options.api_keys;
  access_.cors_origins = options.cors_origins;
  access_.loopback = IsLoopback(options.host);
}

ServerState::Loading ServerState::loading() const {
  const std::lock_guard lock(mutex_);
  return loading_;
}

void ServerState::SetLoading(std::string_view what, uint64_t done, uint64_t total) {
  const std::lock_guard lock(mutex_);
  loading_.what = what;
  loading_.share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
}

void ServerState::SetReady(std::unique_ptr<engine::TextService> service, double predicted_ms) {
  service_ = std::move(service);
  predicted_ms_ = predicted_ms;
  const engine::ModelInfo& info = service_->engine().info();
  api_.engine = &service_->engine();
  api_.model_id = options_.alias.empty() ? std::filesystem::path(info.path).stem().string() : options_.alias;
  api_.created = sys::UnixSeconds();
  api_.parallel = static_cast<int32_t>(options_.engine.context.sequences);
  api_.experts = info.experts > 0;
  ready_.store(service_.get(), std::memory_order_release);
  Phase loading = Phase::kLoading;
  phase_.compare_exchange_strong(loading, Phase::kReady);
}

}  // namespace bellhop::server
