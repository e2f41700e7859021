// The doorbell between a model's layers on a GPU and its misses on the CPU: the channel's memory, and the thread that
// answers on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/doorbell_channel.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "moe/doorbell_service.h"
#include "store/expert_store.h"
#include "sys/cpu_features.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

class DoorbellHost {
 public:
  DoorbellHost() = default;
  ~DoorbellHost() { Stop(); }
  DoorbellHost(const DoorbellHost&) = delete;
  DoorbellHost& operator=(const DoorbellHost&) = delete;

  // `first`: what the device's state is to begin with; `pinned` is copied to `device` in stream order.
  struct State {
    cuda::DoorbellState first;
    cuda::DoorbellState *pinned = nullptr, *device = nullptr;
  };
  Status Open(const cuda::DoorbellShape& shape, const State& state, const cuda::Stream& stream);
  const cuda::DoorbellChannel& channel() const { return channel_; }

  struct ServiceOptions {
    moe::CpuColdPath::Options cold;
    std::vector<RowRange> cpu_inner;  // [layers], of PcieLanes
    int service_cpu = -1;             // DoorbellService::Options::cpu
    // What runs misses, made around what runs them otherwise. Null: nothing is made.
    std::function<std::unique_ptr<moe::MissRunner>(moe::MissRunner*)> wrap_runner;
  };
  // After Open. The store and the pool must outlive this. Notes name slow paths.
  Status Start(const store::ExpertStore& store, sys::WorkerPool* pool, const sys::CpuCaps& caps, ServiceOptions options,
               std::vector<std::string>* notes);
  // Before the stream's end is awaited for the last time.
  void Stop() {
    if (service_ != nullptr) service_->Stop();
  }
  // Around steps; nothing where no service was started.
  Status BeginStep() { return service_ == nullptr ? Status() : service_->BeginStep(); }
  Status EndStep() { return service_ == nullptr ? Status() : service_->EndStep(); }

 private:
  cuda::PinnedBuffer memory_;
  cuda::DoorbellChannel channel_;
  std::unique_ptr<moe::CpuContext> cpu_;
  std::unique_ptr<moe::CpuColdPath> cold_;
  std::unique_ptr<moe::MissRunner> runner_, wrapped_runner_;
  std::unique_ptr<moe::DoorbellService> service_;
};

}  // namespace bellhop::model
