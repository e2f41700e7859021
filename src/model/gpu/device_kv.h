// KV pages in GPU memory.
#pragma once

#include <memory>
#include <utility>

#include "base/status.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "model/kv_cache.h"

namespace bellhop::model {

class DeviceKvPool final : public KvPages {
 public:
  static Result<std::unique_ptr<DeviceKvPool>> Create(KvLayout layout, int64_t pages, const cuda::Stream* stream);

  // In stream order. A failed copy poisons the device, so the next step reports it.
  void CopyPage(int32_t from, int32_t to) override;

  const KvLayout& layout() const { return layout_; }
  uint8_t* base() const { return reinterpret_cast<uint8_t*>(buffer_.bytes().data()); }

 private:
  DeviceKvPool(KvLayout layout, cuda::DeviceBuffer buffer, int32_t pages, const cuda::Stream* stream)
      : KvPages(pages), layout_(std::move(layout)), buffer_(std::move(buffer)), stream_(stream) {}

  KvLayout layout_;
  cuda::DeviceBuffer buffer_;
  const cuda::Stream* stream_;
};

}  // namespace bellhop::model
