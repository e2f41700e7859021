#include "model/gpu/prompt_fetch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "cuda/cuda_try.h"

namespace bellhop::model {
namespace {

// Fetches read whole pieces of 16 bytes.
constexpr uint64_t kFileAlign = 256;

int32_t Experts(const store::ExpertStore& store, size_t layer) {
  return store.experts(LayerId(static_cast<int32_t>(layer)));
}

// `from` is free when this returns.
template <typename T>
Status Upload(const std::vector<T>& from, T* to, const cuda::Stream& stream) {
  const uint64_t bytes = from.size() * sizeof(T);
  if (bytes == 0) return Status();
  BELLHOP_TRY(cuda::CopyToDevice({reinterpret_cast<std::byte*>(to), bytes},
                                 {reinterpret_cast<const std::byte*>(from.data()), bytes}, stream));
  return stream.Synchronize();
}

}  // namespace

PromptFetch::FileShape PromptFetch::ShapeOfFile(const store::ExpertView& view) {
  FileShape shape;
  size_t next = 0;
  for (const quant::QuantView* const matrix : {&view.gate, &view.up, &view.down}) {
    for (const HostPlane& plane : HostPlanes(*matrix)) {
      shape.planes[next] = plane;
      shape.at[next++] = shape.bytes;
      shape.bytes += RoundUp(plane.bytes, kFileAlign);
    }
  }
  return shape;
}

std::vector<uint64_t> PromptFetch::SlotBytes(const store::ExpertStore& store) {
  std::vector<uint64_t> bytes;
  for (int32_t l = 0; l < store.layers(); ++l) {
    bytes.push_back(store.experts(LayerId(l)) == 0 ? 0 : ShapeOfSlots(store, LayerId(l)).bytes);
  }
  return bytes;
}

uint64_t PromptFetch::BankBytes(const ModelSpec& spec, const store::ExpertStore& store,
                                const GpuModelOptions& options) {
  if (PromptRows(options) == 0) return 0;
  std::vector<int32_t> experts;
  for (size_t l = 0; l < spec.layers.size(); ++l) experts.push_back(Experts(store, l));
  return WaveBankBytes(SlotBytes(store), experts, options.wave_bytes);
}

uint64_t PromptFetch::PinnedBytes(const ModelSpec& spec, const store::ExpertStore& store,
                                  const GpuModelOptions& options) {
  const uint64_t bank_bytes = BankBytes(spec, store, options);
  const std::vector<uint64_t> slot_bytes = SlotBytes(store);
  uint64_t half = 0;
  for (size_t l = 0; l < slot_bytes.size(); ++l) {
    if (slot_bytes[l] == 0 || bank_bytes == 0) continue;
    const store::ExpertView& view = store.Host(LayerId(static_cast<int32_t>(l)), ExpertId(0));
    const int32_t slots = std::min(WaveSlots(slot_bytes[l], bank_bytes), Experts(store, l));
    half = std::max(half, ShapeOfFile(view).bytes * static_cast<uint64_t>(slots));
  }
  return kWaveBanks * half;
}

Status PromptFetch::FillTables(const Inputs& in) {
  const size_t layers = waves_.size();
  const auto experts = static_cast<size_t>(in.step.experts);
  std::vector<int32_t*> pointers(layers);
  std::vector<int32_t> slots(layers * experts, -1), cold(layers * experts), counts;
  std::vector<kernels::FetchSource> sources(layers * experts);
  for (size_t l = 0; l < layers; ++l) {
    const LayerId layer(static_cast<int32_t>(l));
    const size_t first = l * experts;
    pointers[l] = buffers_.slot_tables + first;
    const std::vector<int32_t> own = PromptSlots(in.placement, layer, waves_[l]);
    std::copy(own.begin(), own.end(), slots.begin() + static_cast<std::ptrdiff_t>(first));
    resident_.push_back(in.placement.resident(layer));
    first_count_.push_back(counts.size());
    for (const PromptWave& wave : waves_[l].waves) {
      counts.push_back(wave.count);
      auto* half = reinterpret_cast<const uint8_t*>(pinned_.bytes().data());
      if (copies_) half += static_cast<uint64_t>(wave.bank) * pinned_half_;
      for (int32_t i = 0; i < wave.count; ++i) {
        const ExpertId expert = waves_[l].cold[static_cast<size_t>(wave.first + i)];
        cold[first + static_cast<size_t>(wave.first + i)] = static_cast<int32_t>(expert.index());
        const store::ExpertView& view = in.store.Host(layer, expert);
        kernels::FetchSource& source = sources[first + expert.index()];
        source = SourceOf(view);
        if (!copies_) continue;
        const FileShape shape = ShapeOfFile(view);
        const auto copy = [&](size_t plane) { return half + static_cast<uint64_t>(i) * shape.bytes + shape.at[plane]; };
        source = {copy(0), copy(2), copy(4), copy(1), copy(3), copy(5)};
      }
    }
  }
  BELLHOP_TRY(Upload(pointers, buffers_.expert_to_slot, in.stream));
  BELLHOP_TRY(Upload(slots, buffers_.slot_tables, in.stream));
  BELLHOP_TRY(Upload(cold, buffers_.cold, in.stream));
  BELLHOP_TRY(Upload(counts, buffers_.wave_counts, in.stream));
  return Upload(sources, buffers_.fetch_sources, in.stream);
}

Result<PromptFetch> PromptFetch::Create(const Inputs& in, std::vector<std::string>* notes) {
  PromptFetch made;
  made.store_ = &in.store;
  made.pool_ = in.pool;
  made.buffers_ = in.buffers;
  made.totals_ = in.step.totals;
  made.experts_ = in.step.experts;
  if (in.step.experts == 0 || in.buffers.rows == 0) return made;
  cuda::Device* const device = &in.stream.device();
  made.bank_bytes_ = BankBytes(in.spec, in.store, in.options);
  made.waves_ = PlanWaves(in.placement, SlotBytes(in.store), made.bank_bytes_);
  const bool misses = in.placement.resident() < in.placement.total();
  if (misses) {
    made.copies_ = !in.registered;
    if (made.copies_ && in.options.reads_experts) {
      auto registered = RegisterMisses(in.store, in.placement, device);
      made.copies_ = !registered.ok();
      if (registered.ok()) {
        made.registered_ = std::move(registered).value();
      } else {
        notes->push_back(
            fmt::format("prompts: misses go to the GPU by way of pinned memory: {}", registered.status().message()));
      }
    }
    BELLHOP_TRY_ASSIGN(made.banks_,
                       cuda::DeviceBuffer::Create(device, kWaveBanks * made.bank_bytes_, MemoryTag::kWorkspace));
    BELLHOP_TRY_ASSIGN(cuda::Stream stream, cuda::Stream::Create(device, cuda::Stream::Priority::kHigh));
    made.stream_.emplace(std::move(stream));
    auto create = [&](std::optional<cuda::Event>* event) -> Status {
      BELLHOP_TRY_ASSIGN(cuda::Event created, cuda::Event::Create(device));
      event->emplace(std::move(created));
      return Status();
    };
    BELLHOP_TRY(create(&made.routed_));
    for (auto& event : made.filled_) BELLHOP_TRY(create(&event));
    for (auto& event : made.computed_) BELLHOP_TRY(create(&event));
  }
  if (made.copies_) {
    const uint64_t bytes = PinnedBytes(in.spec, in.store, in.options);
    made.pinned_half_ = bytes / kWaveBanks;
    // The last fetch of a row may read up to a piece behind it.
    BELLHOP_TRY_ASSIGN(made.pinned_, cuda::PinnedBuffer::Create(device, bytes + kFileAlign, MemoryTag::kStaging));
    const auto offsets = static_cast<uint64_t>(in.step.experts + 1) * sizeof(int32_t);
    BELLHOP_TRY_ASSIGN(made.pinned_offsets_, cuda::PinnedBuffer::Create(device, offsets, MemoryTag::kStaging));
  }
  BELLHOP_TRY(made.FillTables(in));
  return made;
}

bool PromptFetch::HasRoutes(LayerId layer, const PromptWave& wave) const {
  const int32_t* const offsets = pinned_offsets_.as<int32_t>().data();
  for (int32_t i = 0; i < wave.count; ++i) {
    const size_t e = waves_[layer.index()].cold[static_cast<size_t>(wave.first + i)].index();
    if (offsets[e] != offsets[e + 1]) return true;
  }
  return false;
}

// Of the wave's experts that have routes, file bytes to its half of the pinned memory.
Status PromptFetch::CopyWave(LayerId layer, const PromptWave& wave) {
  BELLHOP_TRY(filled_[static_cast<size_t>(wave.bank)]->Synchronize());  // the fetch before has read the half
  const int32_t* const offsets = pinned_offsets_.as<int32_t>().data();
  std::byte* const half = pinned_.bytes().data() + static_cast<uint64_t>(wave.bank) * pinned_half_;
  constexpr auto kPieces = static_cast<int64_t>(kPlanes);
  pool_->ParallelFor(kPieces * wave.count, 1, [&](RowRange range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t place = i / kPieces;
      const ExpertId expert = waves_[layer.index()].cold[static_cast<size_t>(wave.first + place)];
      if (offsets[expert.index()] == offsets[expert.index() + 1]) continue;
      const store::ExpertView& view = store_->Host(layer, expert);
      const FileShape shape = ShapeOfFile(view);
      const auto plane = static_cast<size_t>(i % kPieces);
      if (shape.planes[plane].bytes == 0) continue;
      std::memcpy(half + static_cast<uint64_t>(place) * shape.bytes + shape.at[plane], shape.planes[plane].data,
                  shape.planes[plane].bytes);
    }
  });
  return Status();
}

Status PromptFetch::SubmitExperts(size_t l, const PromptLayer& args, const PromptChunk& chunk, PromptPart only,
                                  const cuda::Stream& stream) {
  cuda::Device* const device = &stream.device();
  const LayerWaves& waves = waves_[l];
  const bool misses = !waves.waves.empty();
  const bool all = !copies_ && FetchesAll(chunk.rows, args.feed_forward.used, args.feed_forward.experts);
  if (misses && copies_) {
    const auto bytes = static_cast<uint64_t>(args.feed_forward.experts + 1) * sizeof(int32_t);
    BELLHOP_TRY(cuda::CopyToHost({pinned_offsets_.bytes().data(), bytes},
                                 {reinterpret_cast<const std::byte*>(buffers_.route_offsets), bytes}, stream));
  }
  if (misses && !all) BELLHOP_TRY(routed_->Record(stream));
  if (resident_[l] > 0) {
    cuda::LaunchQueue queue = stream.queue();
    queue.overlap = !(misses && copies_);
    const PromptSlotRange hits{.first = 0, .end = kFirstStagingSlot, .staging = {}};
    BELLHOP_TRY(SubmitPromptExperts(args, chunk, hits, only, device, queue));
  }
  if (!misses) return Status();
  if (copies_) {
    BELLHOP_TRY(routed_->Synchronize());
  } else if (!all) {
    BELLHOP_TRY(stream_->WaitFor(*routed_));
  }
  const LayerId layer(static_cast<int32_t>(l));
  const kernels::ExpertBank& bank = args.feed_forward.bank;
  const SlotShape shape = ShapeOfSlots(*store_, layer);
  const size_t first = l * static_cast<size_t>(experts_);
  for (size_t w = 0; w < waves.waves.size(); ++w) {
    const PromptWave& wave = waves.waves[w];
    if (copies_) {
      if (!HasRoutes(layer, wave)) continue;
      BELLHOP_TRY(CopyWave(layer, wave));
    }
    const auto b = static_cast<size_t>(wave.bank);
    const kernels::StagingBank staging{.base = reinterpret_cast<uint8_t*>(banks_.bytes().data()) + b * bank_bytes_,
                                       .slot_bytes = static_cast<int64_t>(shape.bytes),
                                       .gate = static_cast<int64_t>(shape.gate),
                                       .up = static_cast<int64_t>(shape.up),
                                       .down = static_cast<int64_t>(shape.down),
                                       .first_slot = kFirstStagingSlot + wave.first};
    BELLHOP_TRY(stream_->WaitFor(*computed_[b]));
    const kernels::FetchArgs fetch{
        .sources = buffers_.fetch_sources + first,
        .gate = bank.gate,
        .up = bank.up,
        .down = bank.down,
        .misses = {.experts = buffers_.cold + first + wave.first, .count = buffers_.wave_counts + first_count_[l] + w},
        .staging = staging,
        .inner = {},
        .used = wave.count,
        .experts = wave.count,
        .route_offsets = all ? nullptr : buffers_.route_offsets,
        .fetched = totals_ + l * kLayerTotals + kFetchedTotal};
    cuda::LaunchQueue queue = stream_->queue();
    queue.overlap = false;
    BELLHOP_CUDA_CHECK(device, kernels::LaunchExpertFetch(fetch, 1, queue));
    BELLHOP_TRY(filled_[b]->Record(*stream_));
    BELLHOP_TRY(stream.WaitFor(*filled_[b]));
    queue = stream.queue();
    queue.overlap = false;
    const PromptSlotRange slots{
        .first = staging.first_slot, .end = staging.first_slot + wave.count, .staging = staging};
    BELLHOP_TRY(SubmitPromptExperts(args, chunk, slots, only, device, queue));
    BELLHOP_TRY(computed_[b]->Record(stream));
  }
  return Status();
}

void PromptFetch::Drain() {
  if (stream_) static_cast<void>(stream_->Synchronize());
}

}  // namespace bellhop::model
