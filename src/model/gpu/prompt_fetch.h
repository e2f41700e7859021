// Where a prompt's chunk finds its experts: hits in their slots, misses in two banks that are filled in waves over PCIe
// on a stream of their own, one while the other is computed. The kernels are the same for both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "model/gpu/pcie_lane.h"
#include "model/gpu/prompt_layers.h"
#include "model/gpu/prompt_waves.h"
#include "sys/worker_pool.h"

namespace bellhop::model {

class PromptFetch {
 public:
  // Of each bank; 0 without experts.
  static uint64_t BankBytes(const ModelSpec& spec, const store::ExpertStore& store, const GpuModelOptions& options);
  // Of pinned memory where experts cannot be read where they lie.
  static uint64_t PinnedBytes(const ModelSpec& spec, const store::ExpertStore& store, const GpuModelOptions& options);

  struct Inputs {
    const ModelSpec& spec;
    const store::ExpertStore& store;
    const plan::Placement& placement;
    const GpuModelOptions& options;
    const PromptBuffers& buffers;
    const StepBuffers& step;
    const cuda::Stream& stream;  // of the kernels
    sys::WorkerPool* pool;
    bool registered;  // the misses' host memory is
  };
  // Allocates, and fills the tables. The host waits for the stream.
  static Result<PromptFetch> Create(const Inputs& in, std::vector<std::string>* notes);

  // fc1 and fc2 of a layer's routes, between SubmitPromptRoutes and SubmitPromptCombine. The host waits for the routes
  // where it copies experts.
  Status SubmitExperts(size_t layer, const PromptLayer& args, const PromptChunk& chunk, PromptPart only,
                       const cuda::Stream& stream);
  // After an error: nothing reads host memory any more.
  void Drain();

 private:
  // Where an expert's planes lie in pinned memory: gate, up and down, and the planes of each.
  static constexpr size_t kPlanes = 3 * kHostPlanes;
  struct FileShape {
    std::array<HostPlane, kPlanes> planes;  // of the expert
    std::array<uint64_t, kPlanes> at{};
    uint64_t bytes = 0;
  };
  static FileShape ShapeOfFile(const store::ExpertView& view);
  static std::vector<uint64_t> SlotBytes(const store::ExpertStore& store);

  Status FillTables(const Inputs& in);
  Status CopyWave(LayerId layer, const PromptWave& wave);
  bool HasRoutes(LayerId layer, const PromptWave& wave) const;

  const store::ExpertStore* store_ = nullptr;
  sys::WorkerPool* pool_ = nullptr;
  PromptBuffers buffers_;
  uint64_t* totals_ = nullptr;  // StepBuffers
  int32_t experts_ = 0;         // of the widest layer
  std::vector<LayerWaves> waves_;
  std::vector<size_t> first_count_;  // [layers], of wave_counts
  std::vector<int32_t> resident_;    // [layers]
  std::vector<cuda::RegisteredHost> registered_;
  bool copies_ = false;
  cuda::DeviceBuffer banks_;
  uint64_t bank_bytes_ = 0, pinned_half_ = 0;
  cuda::PinnedBuffer pinned_;           // copies_: kWaveBanks pieces
  cuda::PinnedBuffer pinned_offsets_;   // copies_: [experts + 1]
  std::optional<cuda::Stream> stream_;  // of the fetches
  std::optional<cuda::Event> routed_;
  std::array<std::optional<cuda::Event>, kWaveBanks> filled_, computed_;
};

}  // namespace bellhop::model
