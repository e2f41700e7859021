// The KV cache: 64-token reference-counted pages from one pool. A page holds 64 positions of every attention layer, so
// a sequence has one block table for all layers, and prefix reuse shares pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "sys/aligned_buffer.h"

namespace bellhop::model {

// Elements of one position in one layer; 0 for layers without attention.
struct KvLayerShape {
  int64_t key_width = 0;    // kv_heads * key_dim
  int64_t value_width = 0;  // kv_heads * value_dim
};

class KvPool {
 public:
  static Result<std::unique_ptr<KvPool>> Create(const std::vector<KvLayerShape>& layers, kernels::KvType type,
                                                int64_t pages);
  // UINT64_MAX when the size does not fit 64 bits.
  static uint64_t BytesFor(const std::vector<KvLayerShape>& layers, kernels::KvType type, int64_t pages);

  // A page with one reference; -1 when none is free.
  int32_t Allocate();
  void AddRef(int32_t page) { ++references_[static_cast<size_t>(page)]; }
  void Release(int32_t page);
  // All layers of one page.
  void CopyPage(int32_t from, int32_t to);
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }

  int32_t pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_pages() const { return static_cast<int32_t>(free_.size()); }
  kernels::KvType type() const { return type_; }

  // Position 64 * i of a layer in a page; rows are Key/ValueRowBytes apart.
  std::byte* Keys(int32_t layer, int32_t page) {
    return buffer_.bytes().data() + offsets_[static_cast<size_t>(layer)].keys + Base(page);
  }
  std::byte* Values(int32_t layer, int32_t page) {
    return buffer_.bytes().data() + offsets_[static_cast<size_t>(layer)].values + Base(page);
  }
  int64_t KeyRowBytes(int32_t layer) const {
    return layers_[static_cast<size_t>(layer)].key_width * kernels::KvTypeBytes(type_);
  }
  int64_t ValueRowBytes(int32_t layer) const {
    return layers_[static_cast<size_t>(layer)].value_width * kernels::KvTypeBytes(type_);
  }
  uint64_t bytes() const { return buffer_.size(); }

 private:
  struct Offsets {
    uint64_t keys, values;  // within a page
  };
  KvPool() = default;
  uint64_t Base(int32_t page) const { return static_cast<uint64_t>(page) * page_bytes_; }

  std::vector<KvLayerShape> layers_;
  std::vector<Offsets> offsets_;
  kernels::KvType type_ = kernels::KvType::kF16;
  uint64_t page_bytes_ = 0;
  sys::AlignedBuffer buffer_;
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // stack; lowest page on top at the start
};

}  // namespace bellhop::model
