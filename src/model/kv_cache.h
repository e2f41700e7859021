// The KV cache: 64-token reference-counted pages from one pool. A page holds 64 positions of every attention layer, so
// a sequence has one block table for all layers, and prefix reuse shares pages. Within a page the positions of one KV
// head are contiguous: attention streams them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "sys/aligned_buffer.h"

namespace bellhop::model {

// Elements of one position in one layer; 0 for layers without attention. Both widths are multiples of kv_heads.
struct KvLayerShape {
  int64_t key_width = 0;    // kv_heads * key_dim
  int64_t value_width = 0;  // kv_heads * value_dim
  int32_t kv_heads = 1;
};

// Where everything lies within a page, in whatever memory the pages are.
class KvLayout {
 public:
  // One head of one layer: where its rows start within a page.
  struct HeadRows {
    uint64_t offset;
    int64_t row_bytes;
  };

  KvLayout() = default;
  static KvLayout Create(std::vector<KvLayerShape> layers, kernels::KvType type);

  // Of all heads: head h begins h * kKvPageTokens * row_bytes further.
  uint64_t key_offset(int32_t layer) const { return offsets_[static_cast<size_t>(layer)].keys; }
  uint64_t value_offset(int32_t layer) const { return offsets_[static_cast<size_t>(layer)].values; }
  HeadRows Keys(int32_t layer, int32_t head) const {
    const KvLayerShape& shape = layers_[static_cast<size_t>(layer)];
    return RowsOf(key_offset(layer), shape.key_width / shape.kv_heads, head);
  }
  HeadRows Values(int32_t layer, int32_t head) const {
    const KvLayerShape& shape = layers_[static_cast<size_t>(layer)];
    return RowsOf(value_offset(layer), shape.value_width / shape.kv_heads, head);
  }
  uint64_t page_bytes() const { return page_bytes_; }
  // UINT64_MAX when the size does not fit 64 bits.
  uint64_t BytesFor(int64_t pages) const;
  kernels::KvType type() const { return type_; }
  int32_t layers() const { return static_cast<int32_t>(layers_.size()); }

 private:
  struct Offsets {
    uint64_t keys, values;
  };
  HeadRows RowsOf(uint64_t offset, int64_t dim, int32_t head) const {
    const int64_t row_bytes = dim * kernels::KvTypeBytes(type_);
    return {offset + static_cast<uint64_t>(head * kernels::kKvPageTokens * row_bytes), row_bytes};
  }

  std::vector<KvLayerShape> layers_;
  std::vector<Offsets> offsets_;
  kernels::KvType type_ = kernels::KvType::kF16;
  uint64_t page_bytes_ = 0;
};

// Who holds which page. What a page holds is the derived pool's; sequences need only this.
class KvPages {
 public:
  virtual ~KvPages() = default;

  // A page with one reference; -1 when none is free.
  int32_t Allocate();
  void AddRef(int32_t page) { ++references_[static_cast<size_t>(page)]; }
  void Release(int32_t page);
  int32_t references(int32_t page) const { return references_[static_cast<size_t>(page)]; }
  int32_t pages() const { return static_cast<int32_t>(references_.size()); }
  int32_t free_pages() const { return static_cast<int32_t>(free_.size()); }

  // All layers of one page. Later steps see the copy.
  virtual void CopyPage(int32_t from, int32_t to) = 0;

 protected:
  explicit KvPages(int32_t pages);

 private:
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;  // stack; lowest page on top at the start
};

// Pages in host memory.
class KvPool final : public KvPages {
 public:
  static Result<std::unique_ptr<KvPool>> Create(const std::vector<KvLayerShape>& layers, kernels::KvType type,
                                                int64_t pages);
  // UINT64_MAX when the size does not fit 64 bits.
  static uint64_t BytesFor(const std::vector<KvLayerShape>& layers, kernels::KvType type, int64_t pages);

  void CopyPage(int32_t from, int32_t to) override;
  kernels::KvType type() const { return layout_.type(); }

  // What attention reads: one head of a layer in all pages, addressed through a block table.
  kernels::KvHead KeyHead(int32_t layer, int32_t head) const { return Address(layout_.Keys(layer, head)); }
  kernels::KvHead ValueHead(int32_t layer, int32_t head) const { return Address(layout_.Values(layer, head)); }
  // What append writes: one position of one head.
  std::byte* KeyRow(int32_t layer, int32_t head, int32_t page, int64_t row) {
    return Row(layout_.Keys(layer, head), page, row);
  }
  std::byte* ValueRow(int32_t layer, int32_t head, int32_t page, int64_t row) {
    return Row(layout_.Values(layer, head), page, row);
  }
  uint64_t bytes() const { return buffer_.size(); }

 private:
  KvPool(KvLayout layout, sys::AlignedBuffer buffer, int32_t pages)
      : KvPages(pages), layout_(std::move(layout)), buffer_(std::move(buffer)) {}
  kernels::KvHead Address(KvLayout::HeadRows rows) const {
    return {buffer_.bytes().data() + rows.offset, static_cast<int64_t>(layout_.page_bytes()), rows.row_bytes};
  }
  std::byte* Row(KvLayout::HeadRows rows, int32_t page, int64_t row) {
    return buffer_.bytes().data() + Base(page) + rows.offset + row * rows.row_bytes;
  }
  uint64_t Base(int32_t page) const { return static_cast<uint64_t>(page) * layout_.page_bytes(); }

  KvLayout layout_;
  sys::AlignedBuffer buffer_;
};

}  // namespace bellhop::model
