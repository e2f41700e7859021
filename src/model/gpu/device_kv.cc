#include "model/gpu/device_kv.h"

#include <limits>

#include "cuda/cuda_try.h"

namespace bellhop::model {

Result<std::unique_ptr<DeviceKvPool>> DeviceKvPool::Create(KvLayout layout, int64_t pages, const cuda::Stream* stream) {
  if (pages > std::numeric_limits<int32_t>::max()) return InvalidArgument("{} KV pages: too many", pages);
  const uint64_t bytes = layout.BytesFor(pages);
  BELLHOP_TRY_ASSIGN(cuda::DeviceBuffer buffer,
                     cuda::DeviceBuffer::Create(&stream->device(), bytes, MemoryTag::kKvCache));
  return std::unique_ptr<DeviceKvPool>(
      new DeviceKvPool(std::move(layout), std::move(buffer), static_cast<int32_t>(pages), stream));
}

void DeviceKvPool::CopyPage(int32_t from, int32_t to) {
  const uint64_t bytes = layout_.page_bytes();
  std::byte* const data = buffer_.bytes().data();
  const cudaError_t error =
      cudaMemcpyAsync(data + static_cast<uint64_t>(to) * bytes, data + static_cast<uint64_t>(from) * bytes, bytes,
                      cudaMemcpyDeviceToDevice, stream_->get());
  const Status status = cuda::CheckCuda(&stream_->device(), error, "copy of a KV page");
  if (!status.ok()) static_cast<void>(stream_->device().poison().Set(status));
}

}  // namespace bellhop::model
