#include "model/kv_cache.h"

#include <cstring>

#include "base/units.h"

namespace bellhop::model {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t LayerBytes(int64_t width, kernels::KvType type) {
  return RoundUp(static_cast<uint64_t>(width * kernels::KvTypeBytes(type) * kernels::kKvPageTokens), kAlign);
}

}  // namespace

KvLayout KvLayout::Create(std::vector<KvLayerShape> layers, kernels::KvType type) {
  KvLayout layout;
  layout.layers_ = std::move(layers);
  layout.type_ = type;
  uint64_t at = 0;
  for (const KvLayerShape& layer : layout.layers_) {
    const uint64_t keys = at;
    at += LayerBytes(layer.key_width, type);
    layout.offsets_.push_back({keys, at});
    at += LayerBytes(layer.value_width, type);
  }
  layout.page_bytes_ = at;
  return layout;
}

uint64_t KvLayout::BytesFor(int64_t pages) const {
  uint64_t bytes = 0;
  return CheckedMul(page_bytes_, static_cast<uint64_t>(pages), &bytes) ? bytes : UINT64_MAX;
}

KvPages::KvPages(int32_t pages) : references_(static_cast<size_t>(pages), 0) {
  free_.reserve(references_.size());
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

int32_t KvPages::Allocate() {
  if (free_.empty()) return -1;
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPages::Release(int32_t page) {
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

uint64_t KvPool::BytesFor(const std::vector<KvLayerShape>& layers, kernels::KvType type, int64_t pages) {
  return KvLayout::Create(layers, type).BytesFor(pages);
}

Result<std::unique_ptr<KvPool>> KvPool::Create(const std::vector<KvLayerShape>& layers, kernels::KvType type,
                                               int64_t pages) {
  KvLayout layout = KvLayout::Create(layers, type);
  const uint64_t bytes = layout.BytesFor(pages);
  auto buffer = sys::AlignedBuffer::Create(bytes, MemoryTag::kKvCache);
  if (!buffer.ok() || pages > INT32_MAX) {
    return OutOfMemory("KV cache of {} for {} tokens cannot be allocated; lower --ctx-size", FormatBytes(bytes),
                       pages * kernels::kKvPageTokens);
  }
  return std::unique_ptr<KvPool>(new KvPool(std::move(layout), std::move(buffer).value(), static_cast<int32_t>(pages)));
}

void KvPool::CopyPage(int32_t from, int32_t to) {
  std::memcpy(buffer_.bytes().data() + Base(to), buffer_.bytes().data() + Base(from), layout_.page_bytes());
}

}  // namespace bellhop::model
