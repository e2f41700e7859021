#include "model/gpu/doorbell_host.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bellhop::model {

Status DoorbellHost::Open(const cuda::DoorbellShape& shape, const State& state, const cuda::Stream& stream) {
  BELLHOP_TRY_ASSIGN(const uint64_t bytes, cuda::DoorbellChannelBytes(shape));
  BELLHOP_TRY_ASSIGN(memory_, cuda::PinnedBuffer::Create(&stream.device(), bytes, MemoryTag::kDoorbell));
  BELLHOP_TRY_ASSIGN(channel_, cuda::MakeDoorbellChannel(memory_.bytes(), shape));
  std::memcpy(state.pinned, &state.first, sizeof state.first);
  return cuda::CopyToDevice({reinterpret_cast<std::byte*>(state.device), sizeof state.first},
                            {reinterpret_cast<const std::byte*>(state.pinned), sizeof state.first}, stream);
}

Status DoorbellHost::Start(const store::ExpertStore& store, sys::WorkerPool* pool, const sys::CpuCaps& caps,
                           ServiceOptions options, std::vector<std::string>* notes) {
  const int64_t max_cols = std::max(options.cold.hidden, store.inner());
  BELLHOP_TRY_ASSIGN(cpu_, moe::CpuContext::Create(pool, caps, max_cols, options.cold.max_rows));
  BELLHOP_TRY_ASSIGN(cold_, moe::CpuColdPath::Create(store, *cpu_, options.cold, notes));
  const std::vector<const std::atomic<moe::ExpertReady>*> all_ready;
  runner_ = std::make_unique<moe::ColdPathRunner>(cold_.get(), all_ready, std::move(options.cpu_inner));
  if (options.wrap_runner) wrapped_runner_ = options.wrap_runner(runner_.get());
  moe::MissRunner* const runner = wrapped_runner_ != nullptr ? wrapped_runner_.get() : runner_.get();
  moe::DoorbellService::Options service;
  service.cpu = options.service_cpu;
  for (int32_t l = 0; l < store.layers(); ++l) service.experts_per_layer.push_back(store.experts(LayerId(l)));
  BELLHOP_TRY_ASSIGN(service_, moe::DoorbellService::Create(channel_, runner, std::move(service)));
  return Status();
}

}  // namespace bellhop::model
