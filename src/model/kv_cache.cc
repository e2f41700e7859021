#include "model/kv_cache.h"

#include <cstring>

#include "base/units.h"

namespace bellhop::model {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t LayerBytes(int64_t width, kernels::KvType type) {
  return RoundUp(static_cast<uint64_t>(width * kernels::KvTypeBytes(type) * kernels::kKvPageTokens), kAlign);
}

uint64_t PageBytes(const std::vector<KvLayerShape>& layers, kernels::KvType type) {
  uint64_t bytes = 0;
  for (const KvLayerShape& layer : layers) {
    bytes += LayerBytes(layer.key_width, type) + LayerBytes(layer.value_width, type);
  }
  return bytes;
}

}  // namespace

uint64_t KvPool::BytesFor(const std::vector<KvLayerShape>& layers, kernels::KvType type, int64_t pages) {
  uint64_t bytes = 0;
  return CheckedMul(PageBytes(layers, type), static_cast<uint64_t>(pages), &bytes) ? bytes : UINT64_MAX;
}

Result<std::unique_ptr<KvPool>> KvPool::Create(const std::vector<KvLayerShape>& layers, kernels::KvType type,
                                               int64_t pages) {
  auto pool = std::unique_ptr<KvPool>(new KvPool());
  pool->layers_ = layers;
  pool->type_ = type;
  pool->page_bytes_ = PageBytes(layers, type);
  uint64_t at = 0;
  for (const KvLayerShape& layer : layers) {
    const uint64_t keys = at;
    at += LayerBytes(layer.key_width, type);
    pool->offsets_.push_back({keys, at});
    at += LayerBytes(layer.value_width, type);
  }
  const uint64_t bytes = BytesFor(layers, type, pages);
  auto buffer = sys::AlignedBuffer::Create(bytes, MemoryTag::kKvCache);
  if (!buffer.ok() || pages > INT32_MAX) {
    return OutOfMemory("KV cache of {} for {} tokens cannot be allocated; lower --ctx-size", FormatBytes(bytes),
                       pages * kernels::kKvPageTokens);
  }
  pool->buffer_ = std::move(buffer).value();
  pool->references_.assign(static_cast<size_t>(pages), 0);
  pool->free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) pool->free_.push_back(static_cast<int32_t>(page));
  return pool;
}

int32_t KvPool::Allocate() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPool::CopyPage(int32_t from, int32_t to) {
  std::memcpy(buffer_.bytes().data() + Base(to), buffer_.bytes().data() + Base(from), page_bytes_);
}

void KvPool::Release(int32_t page) {
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace bellhop::model
