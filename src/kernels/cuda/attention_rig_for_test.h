// One step's attention on a GPU for tests: a paged cache of several sequences, rows of a step, and the same in double
// precision on the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "kernels/cuda/attention.h"

namespace bellhop::kernels {

struct TestRow {
  int32_t sequence, position;  // position -1: padding
};

struct AttentionCase {
  KvType type = KvType::kF16;
  int32_t heads = 8, kv_heads = 2, key_dim = 64, value_dim = 64;
  HeadNorm norm = HeadNorm::kNone;
  RopeOrder rope = RopeOrder::kNone;
  int32_t rope_dims = 0;
  bool sinks = false;
  int32_t window = 0, terms = 2;
  std::vector<TestRow> rows = {{0, 0}};
  int32_t launched = 0;    // rows that the launch covers, 0: as many as there are
  int32_t max_pages = 80;  // 5120 positions

  int32_t Launched() const { return launched > 0 ? launched : static_cast<int32_t>(rows.size()); }
  std::string ToString() const;
};

// Host memory of the rig is what the device sees after Upload, and holds what it left after Download.
class AttentionRig {
 public:
  // Positions below the first row of each sequence have random keys and values, everything else is NaN, outputs too.
  // Sequences share their first two pages where all of their positions are old. Of unseen pages, tables have entries
  // far out of bounds.
  static Result<std::unique_ptr<AttentionRig>> Create(cuda::Device* device, const AttentionCase& c, uint32_t seed);

  Status Upload();
  Status Download();  // waits
  // Both kernels for `rows` rows from row `first` on; `first` + `rows` <= what the case launches.
  Status Submit(int32_t first, int32_t rows);
  Status SubmitFused(int32_t row);  // one kernel for both
  // Whether a launch of one row has words; it has.
  void UseWords(bool use) { use_words_ = use; }
  // Whether SubmitFused reads ahead; it does not.
  void ReadAhead(bool ahead) { reads_ahead_ = ahead; }
  Status Run();  // upload, all rows, download

  // Other positions for all rows; the cache must have what is below them.
  void SetPosition(int32_t row, int32_t position);
  void FillInputs(uint32_t seed);  // random q, k, v
  void PoisonOutputs();

  // What finishing must leave in q and the cache; `before`: q, k, v as they were uploaded.
  void CheckFinished(const std::vector<float>& before) const;
  // Results against attention in double over the q and cache that were downloaded. Heads in `nan_heads` (bits) of row 0
  // must be NaN.
  void CheckResults(uint64_t nan_heads = 0) const;
  void CheckCountersAreZero() const;  // and words

  const AttentionCase& spec() const { return case_; }
  const cuda::Stream& stream() const { return *stream_; }
  int32_t Stride() const { return stride_; }
  float* qkv() const { return Host<float>(qkv_at_); }
  int32_t* active_rows() const { return Host<int32_t>(active_at_); }
  std::vector<float> Inputs() const { return {qkv(), qkv() + int64_t{case_.Launched()} * stride_}; }
  // The cache's bytes, all sequences.
  std::vector<uint8_t> Cache() const;
  // Terms and sums of a row, as bytes.
  std::vector<uint8_t> OutputOf(int32_t row) const;
  double CacheAt(bool key, int32_t row, int32_t head, int32_t position, int32_t e) const;
  void SetKey(int32_t row, int32_t head, int32_t position, int32_t e, float value);

 private:
  explicit AttentionRig(const AttentionCase& c) : case_(c) {}
  Status Allocate(cuda::Device* device);
  FinishQkvArgs FinishOf(int32_t first, int32_t rows) const;
  AttendArgs AttendOf(int32_t first, int32_t rows) const;
  void FillCache(uint32_t seed);
  size_t Take(size_t bytes);
  size_t CacheOffset(bool key, int32_t row, int32_t head, int32_t position, int32_t e) const;
  void StoreElement(size_t offset, float value);
  double FinishedElement(const std::vector<float>& before, int32_t row, bool query, int32_t head, int32_t e,
                         double* magnitude) const;
  void CheckHead(int32_t row, int32_t head, bool expect_nan) const;
  double ResultAt(int32_t row, int32_t e) const;
  template <typename T>
  T* Host(size_t at) const {
    return reinterpret_cast<T*>(host_.bytes().data() + at);
  }
  template <typename T>
  T* OnDevice(size_t at) const {
    return reinterpret_cast<T*>(device_memory_.bytes().data() + at);
  }

  AttentionCase case_;
  cuda::Device* device_ = nullptr;
  std::unique_ptr<cuda::Stream> stream_;
  cuda::PinnedBuffer host_;
  cuda::DeviceBuffer device_memory_, partials_;
  size_t size_ = 0;  // of both memories, which have one layout
  size_t active_at_ = 0, positions_at_ = 0, tables_at_ = 0, qkv_at_ = 0, q_norm_at_ = 0, k_norm_at_ = 0, rope_at_ = 0;
  size_t sinks_at_ = 0, terms_at_ = 0, sums_at_ = 0, counters_at_ = 0, words_at_ = 0, cache_at_ = 0;
  size_t words_bytes_ = 0;
  bool use_words_ = true, reads_ahead_ = false;
  size_t keys_in_page_ = 0, values_in_page_ = 0, page_bytes_ = 0;
  int32_t stride_ = 0, out_stride_ = 0, pages_ = 0;
  std::vector<std::vector<int32_t>> tables_;  // of sequences
};

}  // namespace bellhop::kernels
