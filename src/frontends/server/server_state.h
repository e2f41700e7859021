// What the handlers share: the service once it is loaded, what happened until then, limits and counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "config/options.h"
#include "engine/text_service.h"
#include "frontends/server/access.h"
#include "frontends/server/api_call.h"
#include "frontends/server/metrics.h"

namespace bellhop::server {

class ServerState {
 public:
  explicit ServerState(const config::ServeOptions& options);

  enum class Phase : uint8_t { kLoading, kReady, kFailed, kStopping };
  struct Loading {
    std::string what;  // "reading the model"; empty: not yet known
    double share = 0;  // 0 to 1
  };

  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  Loading loading() const;
  void SetLoading(std::string_view what, uint64_t done, uint64_t total);
  void SetReady(std::unique_ptr<engine::TextService> service, double predicted_ms);
  void SetFailed() { phase_.store(Phase::kFailed, std::memory_order_release); }
  void SetStopping() { phase_.store(Phase::kStopping, std::memory_order_release); }

  // Null until the model is loaded.
  engine::TextService* service() const { return ready_.load(std::memory_order_acquire); }
  const ApiContext& api() const { return api_; }  // once there is a service
  double predicted_ms() const { return predicted_ms_; }

  const config::ServeOptions& options() const { return options_; }
  const AccessPolicy& access() const { return access_; }
  Metrics& metrics() { return metrics_; }

 private:
  const config::ServeOptions& options_;
  AccessPolicy access_;
  Metrics metrics_;
  std::atomic<Phase> phase_{Phase::kLoading};
  std::atomic<engine::TextService*> ready_{nullptr};
  std::unique_ptr<engine::TextService> service_;
  ApiContext api_;
  double predicted_ms_ = 0;
  mutable std::mutex mutex_;
  Loading loading_;
};

}  // namespace bellhop::server
