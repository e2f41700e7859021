// A model's layers of small experts, a doorbell channel, and a GPU that is a thread (or several): it executes the
// functions of cuda/doorbell_protocol.h, layer by layer, as a captured graph does.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/units.h"
#include "cuda/doorbell_channel.h"
#include "cuda/doorbell_wait.h"
#include "moe/cpu_cold.h"
#include "moe/doorbell_service.h"
#include "quant/random_weights.h"
#include "sys/phase_barrier.h"

namespace bellhop::moe {

constexpr int64_t kTestHidden = 64, kTestInner = 32;

// Pages whose access can be taken away.
class PageMemory {
 public:
  explicit PageMemory(uint64_t bytes) : bytes_(RoundUp(bytes, 4096)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~PageMemory() { munmap(data_, bytes_); }
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;
  HostSpan<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  void Forbid() const { ASSERT_EQ(mprotect(data_, bytes_, PROT_NONE), 0); }
  void Allow() const { ASSERT_EQ(mprotect(data_, bytes_, PROT_READ | PROT_WRITE), 0); }

 private:
  uint64_t bytes_;
  void* data_;
};

// Threads that meet at a barrier, as those of a block.
class ThreadGroup {
 public:
  ThreadGroup(int32_t rank, int32_t size, sys::PhaseBarrier* barrier) : rank_(rank), size_(size), barrier_(barrier) {}
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  void Sync() const { barrier_->Wait(rank_); }

 private:
  int32_t rank_, size_;
  sys::PhaseBarrier* barrier_;
};

// Random experts of every layer, and cold paths over them.
class TestLayers {
 public:
  explicit TestLayers(std::vector<int32_t> experts) : experts_(std::move(experts)) {
    uint64_t seed = 1;
    for (const int32_t count : experts_) {
      std::vector<store::ExpertView> views;
      for (int32_t e = 0; e < count; ++e) {
        store::ExpertView view;
        view.gate = Add(kTestInner, kTestHidden, &seed);
        view.up = Add(kTestInner, kTestHidden, &seed);
        view.down = Add(kTestHidden, kTestInner, &seed);
        views.push_back(view);
      }
      views_.push_back(std::move(views));
    }
  }
  const std::vector<int32_t>& experts() const { return experts_; }

  struct Path {
    std::unique_ptr<sys::WorkerPool> pool;
    std::unique_ptr<CpuContext> cpu;
    std::unique_ptr<CpuColdPath> cold;
  };
  Path MakePath(int threads, int32_t max_used) const {
    Path path;
    auto pool = sys::WorkerPool::Create({.cpus = std::vector<int>(static_cast<size_t>(threads), 0), .pin = false});
    EXPECT_TRUE(pool.ok());
    path.pool = std::move(*pool);
    const sys::CpuCaps caps = sys::DetectCpu();
    auto cpu = CpuContext::Create(path.pool.get(), caps, kTestHidden, 64);
    EXPECT_TRUE(cpu.ok());
    path.cpu = std::move(*cpu);
    std::vector<std::vector<Expert>> layers;
    for (const auto& views : views_) {
      layers.emplace_back();
      for (const store::ExpertView& view : views) {
        auto expert = MakeExpert(view, {}, caps, nullptr);
        EXPECT_TRUE(expert.ok()) << expert.status().ToString();
        layers.back().push_back(*expert);
      }
    }
    auto cold = CpuColdPath::Create(
        std::move(layers), *path.cpu,
        {.hidden = kTestHidden, .max_rows = cuda::kDoorbellMaxRows, .max_used = max_used, .numerics = {}});
    EXPECT_TRUE(cold.ok()) << cold.status().ToString();
    path.cold = std::move(*cold);
    return path;
  }

 private:
  quant::QuantView Add(int64_t rows, int64_t cols, uint64_t* seed) {
    quant::MatrixSpec spec{.format = quant::WeightFormat::kQ4_0};
    spec.rows = rows;
    spec.cols = cols;
    matrices_.push_back(quant::RandomMatrix(spec, (*seed)++));
    return matrices_.back().view;
  }
  std::vector<int32_t> experts_;
  std::vector<quant::OwnedMatrix> matrices_;
  std::vector<std::vector<store::ExpertView>> views_;
};

// expert_to_slot of every layer, and their version.
struct TestPlacement {
  uint64_t version = 0;
  std::vector<std::vector<int32_t>> slots;

  // Each expert of a layer has a slot with probability share[layer % size].
  static TestPlacement Random(const std::vector<int32_t>& experts, const std::vector<double>& share, uint32_t seed) {
    std::mt19937 random(seed);
    TestPlacement placement{.version = seed, .slots = {}};
    for (size_t l = 0; l < experts.size(); ++l) {
      std::vector<int32_t> slots;
      int32_t next = 0;
      for (int32_t e = 0; e < experts[l]; ++e) {
        slots.push_back(std::uniform_real_distribution<double>()(random) < share[l % share.size()] ? next++ : -1);
      }
      placement.slots.push_back(std::move(slots));
    }
    return placement;
  }
};

// The routes of one layer in one step, and y before and after.
struct LayerStep {
  int32_t rows = 0, used = 0;
  std::vector<int32_t> ids, route_slots;
  std::vector<float> weights, x, y;
};

inline LayerStep RandomLayerStep(std::mt19937* random, int32_t rows, int32_t used, int32_t experts) {
  LayerStep step{.rows = rows, .used = used, .ids = {}, .route_slots = {}, .weights = {}, .x = {}, .y = {}};
  std::uniform_real_distribution<float> value(-1, 1);
  for (int32_t r = 0; r < rows * used; ++r) {
    step.ids.push_back(static_cast<int32_t>((*random)() % static_cast<uint32_t>(experts)));
    step.weights.push_back(value(*random));
  }
  step.route_slots.assign(step.ids.size(), 12345);
  for (int64_t i = 0; i < rows * kTestHidden; ++i) {
    step.x.push_back(value(*random));
    step.y.push_back(value(*random));
  }
  return step;
}

class FakeGpu {
 public:
  explicit FakeGpu(const cuda::DoorbellChannel& channel) : channel_(channel) {}

  cuda::DoorbellState& state() { return state_; }
  const std::vector<std::vector<uint32_t>>& route_counts() const { return route_counts_; }
  // Counts routes and distinct experts from now on.
  void CountRoutes(const std::vector<int32_t>& experts) {
    for (const int32_t count : experts) {
      route_counts_.emplace_back(static_cast<size_t>(count));
      last_steps_.emplace_back(static_cast<size_t>(count));
    }
  }

  // Misses are the GPU's own from now on.
  void KeepMisses() { ring_misses_ = false; }

  template <typename Group>
  void BeginStep(const Group& group) {
    cuda::BeginDeviceStep(group, &state_);
  }
  // The two kernels of the doorbell in one layer, in stream order.
  template <typename Group>
  void Classify(const Group& group, int32_t layer, const TestPlacement& placement, LayerStep* step) {
    const auto l = static_cast<size_t>(layer);
    cuda::ClassifyAndRing(group,
                          {.layer = layer,
                           .rows = step->rows,
                           .used = step->used,
                           .experts = static_cast<int32_t>(placement.slots[l].size()),
                           .ids = step->ids.data(),
                           .weights = step->weights.data(),
                           .expert_to_slot = placement.slots[l].data(),
                           .placement = placement.version,
                           .x = step->x.data(),
                           .x_stride = kTestHidden,
                           .route_slots = step->route_slots.data(),
                           .route_counts = l < route_counts_.size() ? route_counts_[l].data() : nullptr,
                           .last_steps = l < last_steps_.size() ? last_steps_[l].data() : nullptr,
                           .ring_misses = ring_misses_},
                          channel_, &state_, &classify_);
    group.Sync();
  }
  template <typename Group>
  void Wait(const Group& group, int32_t layer, LayerStep* step) {
    cuda::WaitAndAccumulate(group, {.layer = layer, .y = step->y.data(), .y_stride = kTestHidden}, channel_, &state_);
    group.Sync();
  }
  template <typename Group>
  void RunLayer(const Group& group, int32_t layer, const TestPlacement& placement, LayerStep* step) {
    Classify(group, layer, placement, step);
    Wait(group, layer, step);
  }

 private:
  cuda::DoorbellChannel channel_;
  cuda::DoorbellState state_;
  bool ring_misses_ = true;
  cuda::ClassifyScratch classify_{};
  std::vector<std::vector<uint32_t>> route_counts_, last_steps_;
};

// y of the step as it must come out: one addition of the cold path's sums to rows with a miss.
inline std::vector<float> ExpectedY(CpuColdPath* cold, int32_t layer, const TestPlacement& placement,
                                    const LayerStep& step) {
  const std::vector<int32_t>& slots = placement.slots[static_cast<size_t>(layer)];
  std::vector<uint8_t> skip, row_has_miss(static_cast<size_t>(step.rows));
  for (size_t r = 0; r < step.ids.size(); ++r) {
    skip.push_back(slots[static_cast<size_t>(step.ids[r])] >= 0);
    if (skip.back() == 0) row_has_miss[r / static_cast<size_t>(step.used)] = 1;
  }
  std::vector<float> sums(step.y.size());
  cold->Run({.layer = LayerId(layer),
             .routes = {step.rows, step.used, step.ids.data(), step.weights.data(), skip.data()},
             .x = {step.x.data(), step.rows, kTestHidden, kTestHidden},
             .y = {sums.data(), step.rows, kTestHidden, kTestHidden}});
  std::vector<float> y = step.y;
  for (size_t i = 0; i < y.size(); ++i) {
    if (row_has_miss[i / kTestHidden] != 0) y[i] += sums[i];
  }
  return y;
}

inline cuda::DoorbellChannel MakeTestChannel(const PageMemory& memory, int32_t used) {
  auto channel =
      cuda::MakeDoorbellChannel(memory.bytes(), {.rows = cuda::kDoorbellMaxRows, .used = used, .hidden = kTestHidden});
  EXPECT_TRUE(channel.ok()) << channel.status().ToString();
  return channel.ok() ? *channel : cuda::DoorbellChannel{};
}

inline uint64_t TestChannelBytes(int32_t used) {
  auto bytes = cuda::DoorbellChannelBytes({.rows = cuda::kDoorbellMaxRows, .used = used, .hidden = kTestHidden});
  EXPECT_TRUE(bytes.ok());
  return bytes.ok() ? *bytes : 0;
}

}  // namespace bellhop::moe
