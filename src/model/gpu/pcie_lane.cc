#include "model/gpu/pcie_lane.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "moe/expert.h"
#include "plan/miss_lane.h"

namespace bellhop::model {
namespace {

constexpr uint64_t kPageBytes = 4096;

bool HasMisses(const plan::Placement& placement, LayerId layer) {
  return placement.resident(layer) < placement.experts(layer);
}

// What a fetch of the layer's misses is made of, but for addresses.
kernels::FetchArgs FetchShape(const store::ExpertStore& store, LayerId layer, kernels::InnerRange inner) {
  const store::ExpertView& first = store.Host(layer, ExpertId(0));
  kernels::FetchArgs args;
  args.gate = DescribeMatrix(first.gate);
  args.up = DescribeMatrix(first.up);
  args.down = DescribeMatrix(first.down);
  args.inner = inner;
  return args;
}

}  // namespace

uint64_t StagingBankBytes(const ModelSpec& spec, const store::ExpertStore& store) {
  uint64_t bytes = 0;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const auto* moe = std::get_if<MoeSpec>(&spec.layers[l].feed_forward);
    if (moe == nullptr) continue;
    const auto slots = static_cast<uint64_t>(std::min(kMaxDecodeStepRows * moe->used, moe->experts));
    bytes = std::max(bytes, slots * ShapeOfSlots(store, LayerId(static_cast<int32_t>(l))).bytes);
  }
  return bytes;
}

kernels::FetchSource SourceOf(const store::ExpertView& expert) {
  const auto plane = [](const quant::QuantView& view, size_t p) {
    return reinterpret_cast<const uint8_t*>(HostPlanes(view)[p].data);
  };
  return {plane(expert.gate, 0), plane(expert.up, 0), plane(expert.down, 0),
          plane(expert.gate, 1), plane(expert.up, 1), plane(expert.down, 1)};
}

std::vector<cuda::AddressRange> RangesOfMisses(const store::ExpertStore& store, const plan::Placement& placement) {
  std::vector<cuda::AddressRange> ranges;
  for (int32_t l = 0; l < store.layers(); ++l) {
    const LayerId layer(l);
    if (!HasMisses(placement, layer)) continue;
    for (int32_t e = 0; e < store.experts(layer); ++e) {
      const store::ExpertView& expert = store.Host(layer, ExpertId(e));
      for (const quant::QuantView* view : {&expert.gate, &expert.up, &expert.down}) {
        for (const HostPlane& plane : HostPlanes(*view)) {
          const auto begin = reinterpret_cast<uintptr_t>(plane.data);
          ranges.push_back({begin, begin + plane.bytes});
        }
      }
    }
  }
  return ranges;
}

Status PcieLanes::ChooseParts(const ModelSpec& spec, const store::ExpertStore& store, const plan::Placement& placement,
                              const plan::MissLaneChoice& lane, const sys::CpuCaps& caps) {
  for (int32_t l = 0; l < store.layers(); ++l) {
    const LayerId layer(l);
    if (!HasMisses(placement, layer)) continue;
    const store::ExpertView& first = store.Host(layer, ExpertId(0));
    const int64_t inner = first.down.cols;
    int64_t cpu_granularity = 1;
    if (lane.lane == config::MissLane::kSplit) {
      BELLHOP_TRY_ASSIGN(const moe::Expert expert, moe::MakeExpert(first, spec.activation, caps, nullptr));
      cpu_granularity = moe::InnerGranularity(expert);
    }
    const int64_t cpu = plan::CpuInner(lane, inner, cpu_granularity, kernels::InnerStep(DescribeMatrix(first.down)));
    const kernels::InnerRange gpu{static_cast<int32_t>(cpu), static_cast<int32_t>(inner)};
    rings_ = rings_ || cpu > 0;
    if (cpu == inner) continue;
    if (!kernels::CanFetch(FetchShape(store, layer, gpu))) {
      return Unsupported("layer {}: the rows of its experts cannot be cut for reading over PCIe; use --miss-lane cpu",
                         l);
    }
    const auto at = static_cast<size_t>(l);
    layers_[at].inner = gpu;
    layers_[at].splits = cpu > 0;
    cpu_inner_[at] = {0, cpu};
    gpu_shares_[at] = 1 - static_cast<double>(cpu) / static_cast<double>(inner);
  }
  return Status();
}

Result<std::vector<cuda::RegisteredHost>> RegisterMisses(const store::ExpertStore& store,
                                                         const plan::Placement& placement, cuda::Device* device) {
  std::vector<cuda::RegisteredHost> all;
  for (const cuda::AddressRange& pages : cuda::MergedPages(RangesOfMisses(store, placement), kPageBytes)) {
    const HostSpan<const std::byte> memory(reinterpret_cast<const std::byte*>(pages.begin), pages.end - pages.begin);
    BELLHOP_TRY_ASSIGN(cuda::RegisteredHost registered,
                       cuda::RegisteredHost::Create(device, memory, MemoryTag::kExpertWeights));
    all.push_back(std::move(registered));
  }
  return all;
}

Result<PcieLanes> PcieLanes::Create(const ModelSpec& spec, const store::ExpertStore& store,
                                    const plan::Placement& placement, const plan::MissLaneChoice& lane,
                                    const sys::CpuCaps& caps, const StepBuffers& buffers, const cuda::Stream& stream) {
  PcieLanes lanes;
  const size_t count = spec.layers.size();
  lanes.layers_.resize(count);
  lanes.cpu_inner_.resize(count);
  lanes.gpu_shares_.resize(count);
  BELLHOP_TRY(lanes.ChooseParts(spec, store, placement, lane, caps));
  if (std::all_of(lanes.gpu_shares_.begin(), lanes.gpu_shares_.end(), [](double share) { return share == 0; })) {
    return lanes;
  }
  BELLHOP_TRY_ASSIGN(lanes.registered_, RegisterMisses(store, placement, &stream.device()));
  auto staging = cuda::DeviceBuffer::Create(&stream.device(), StagingBankBytes(spec, store), MemoryTag::kStaging);
  if (!staging.ok()) return staging.status().WithContext("misses read over PCIe (or use --miss-lane cpu)");
  lanes.staging_ = std::move(staging).value();

  std::vector<kernels::FetchSource> sources(count * static_cast<size_t>(buffers.experts));
  for (size_t l = 0; l < count; ++l) {
    if (lanes.gpu_shares_[l] == 0) continue;
    const LayerId layer(static_cast<int32_t>(l));
    const size_t first = l * static_cast<size_t>(buffers.experts);
    for (int32_t e = 0; e < store.experts(layer); ++e) {
      sources[first + static_cast<size_t>(e)] = SourceOf(store.Host(layer, ExpertId(e)));
    }
    const SlotShape shape = ShapeOfSlots(store, layer);
    kernels::PcieLane& lane_of = lanes.layers_[l];
    lane_of.sources = buffers.fetch_sources + first;
    lane_of.misses = buffers.staged_misses;
    lane_of.staging = {.base = reinterpret_cast<uint8_t*>(lanes.staging_.bytes().data()),
                       .slot_bytes = static_cast<int64_t>(shape.bytes),
                       .gate = static_cast<int64_t>(shape.gate),
                       .up = static_cast<int64_t>(shape.up),
                       .down = static_cast<int64_t>(shape.down),
                       .first_slot = kFirstStagingSlot};
  }
  const uint64_t bytes = sources.size() * sizeof sources[0];
  BELLHOP_TRY(cuda::CopyToDevice({reinterpret_cast<std::byte*>(buffers.fetch_sources), bytes},
                                 {reinterpret_cast<const std::byte*>(sources.data()), bytes}, stream));
  BELLHOP_TRY(stream.Synchronize());  // the table is on this stack
  return lanes;
}

}  // namespace bellhop::model
