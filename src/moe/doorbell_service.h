// The host half of the doorbell (cuda/doorbell_protocol.h): a thread that sees requests, runs the misses, and answers.
// It makes no CUDA call, allocates nothing and takes no lock while a step is in flight; it spins then, and sleeps in
// between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/span.h"
#include "base/status.h"
#include "cuda/doorbell_channel.h"
#include "cuda/doorbell_sums.h"
#include "cuda/poison.h"
#include "moe/cold_groups.h"
#include "moe/cpu_cold.h"

namespace bellhop::moe {

// One layer's misses of a step. routes.skip marks what is no miss.
struct MissRequest {
  LayerId layer;
  uint64_t placement = 0;  // version that the routes were classified with
  Routes routes;
  MatView<const float> x;  // [rows, hidden]; rows without a miss are indeterminate
  // [rows, hidden]. Each word of a row with a miss is published once: its sum, or cuda::kFailedMark where an expert
  // could not be read. Rows without a miss may stay as they are.
  MatView<uint32_t> sums;
};

class MissRunner {
 public:
  virtual ~MissRunner() = default;
  // On the service thread. No allocation, no lock. False: the step cannot go on, and the engine is poisoned; no sum
  // needs to be published then.
  virtual bool RunMisses(const MissRequest& request) = 0;
};

// Misses by the CPU cold path, in the decode class.
class ColdPathRunner final : public MissRunner {
 public:
  // ready[layer]: see ColdRequest::ready; an empty list, or null entries: all experts are ready. inner[layer]: see
  // ColdRequest::inner; an empty list, or empty ranges: all of it.
  explicit ColdPathRunner(CpuColdPath* cold, std::vector<const std::atomic<ExpertReady>*> ready = {},
                          std::vector<RowRange> inner = {})
      : cold_(cold), ready_(std::move(ready)), inner_(std::move(inner)) {}
  bool RunMisses(const MissRequest& request) override;

 private:
  CpuColdPath* cold_;
  std::vector<const std::atomic<ExpertReady>*> ready_;
  std::vector<RowRange> inner_;
};

// Answers zeros at once: what is left is the doorbell's own time.
class InstantRunner final : public MissRunner {
 public:
  explicit InstantRunner(int64_t hidden) : zeros_(static_cast<size_t>(hidden)) {}
  bool RunMisses(const MissRequest& request) override;

 private:
  std::vector<float> zeros_;
};

class DoorbellService {
 public:
  struct Options {
    std::vector<int32_t> experts_per_layer;  // requests are checked against it
    int cpu = -1;                            // to bind the thread to; -1: none. It is worker 0 of the runner's pool
    int linger_us = 50;  // spinning after a step, before it sleeps: the next one often follows at once
  };

  // The channel's memory and the runner must outlive the service. The pool that the runner uses belongs to the service
  // while a step is in flight. Goes on from the channel's sequence number; refuses a channel on which the device has
  // failed.
  static Result<std::unique_ptr<DoorbellService>> Create(const cuda::DoorbellChannel& channel, MissRunner* runner,
                                                         Options options);
  // Stops.
  ~DoorbellService();
  DoorbellService(const DoorbellService&) = delete;
  DoorbellService& operator=(const DoorbellService&) = delete;

  // The engine thread, before it launches a step, and after the step's work has completed. Either returns the first
  // error of the device or the service, from then on.
  Status BeginStep();
  Status EndStep();

  // From any thread: a waiting device stops waiting, and later steps are refused with `reason` (an error).
  void Abort(Status reason);
  // Ends the thread, after the request that it works on. Later steps are refused. Idempotent; the engine thread.
  void Stop();

  // Requests answered so far.
  uint64_t served() const { return served_.load(std::memory_order_relaxed); }
  // The thread sleeps in the kernel: an idle service burns no core.
  bool sleeping() const { return sleeping_.load(std::memory_order_relaxed); }

 private:
  DoorbellService(const cuda::DoorbellChannel& channel, MissRunner* runner, Options options);
  void Loop();
  void Serve(uint64_t seq);
  void WaitForStep(uint32_t control);
  // Skip flags of the request's routes; false: it is not one that can be run.
  bool ReadRoutes(const cuda::DoorbellRequest& request);
  void SetControl(uint32_t value);

  static constexpr uint32_t kInStep = 1, kStop = 2;

  const cuda::DoorbellChannel channel_;
  MissRunner* const runner_;
  const Options options_;
  cuda::DoorbellSums sums_;
  std::vector<uint8_t> skip_;  // [max_rows * max_used]
  cuda::Poison poison_;
  uint64_t last_seq_ = 0;             // answered; of the thread alone
  std::atomic<uint32_t> control_{0};  // release by the engine thread; acquire by the service thread
  std::atomic<bool> sleeping_{false};
  std::atomic<uint64_t> served_{0};
  std::thread thread_;
};

}  // namespace bellhop::moe
