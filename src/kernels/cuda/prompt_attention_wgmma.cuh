// Attention of a prompt's chunk on Hopper's tensor cores. A block stays on its multiprocessor and goes through items of
// 128 rows. One warpgroup copies tiles of keys and values into rings of stages, two multiply 64 rows each: while the
// scores of a tile become weights, the values of the tile before are multiplied, and the other warpgroup's products
// run.
#pragma once

#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/prompt_attention_wgmma_items.cuh"

namespace bellhop::kernels {
namespace prompt_attention_wgmma {

// Of a thread: what fetches needs few, what multiplies as many as there are.
constexpr int kFetchRegisters = 40, kMultiplyRegisters = 232;
// The block has what it was launched with, as many for each thread; more would wait for ever.
constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
static_assert(kFetchRegisters + kConsumers * kMultiplyRegisters <= (1 + kConsumers) * kLaunchRegisters);

// The barriers of some warps (SyncSome): one of each warpgroup's own, one of its turn to start products.
constexpr int kOwnBarrier = 1, kTurnBarrier = kOwnBarrier + kConsumers;

// A lane has rows g and g + 8 of its warp's 16, and columns 2t and 2t + 1 of each eight, g = lane / 4, t = lane % 4.
template <typename S>
class Attender {
 public:
  __device__ __forceinline__ Attender(const PromptAttendArgs& args, Shared<S>* shared)
      : args_(args),
        shared_(shared),
        own_(static_cast<int>(threadIdx.x) / 128 - 1),
        thread_(static_cast<int>(threadIdx.x) % 128),
        scale_(args.scale * kLog2E) {}

  __device__ __forceinline__ void Run() {
    if (own_ == kConsumers - 1) ArriveSome<kTurnThreads>(kTurnBarrier);  // the first turn is the first warpgroup's
    Items items(args_);
    for (Item item; items.Next(&item);) {
      Begin(item, items.group());
      int32_t tile = item.begin / S::kKeys;
      const int32_t last = (item.end - 1) / S::kKeys;
      FirstTile(tile);
#pragma unroll 1
      while (++tile <= last) {
        if (tile * S::kKeys >= item.all_begin && (tile + 1) * S::kKeys <= item.all_end) {
          NextTile<false>(tile);
        } else {
          NextTile<true>(tile);
        }
      }
      LastValues();
      Store();
    }
  }

 private:
  using T = typename S::Element;
  static constexpr int kTurnThreads = 128 * kConsumers;
  static constexpr int kScores = S::kKeys / 2, kOuts = S::kDim / 2;    // of a lane
  static constexpr int kValueColumns = S::kDim < 128 ? S::kDim : 128;  // of one product

  __device__ __forceinline__ void Begin(const Item& item, int32_t group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t row = item.first_row + own_ * kOwnRows + thread_ / 32 * 16 + thread_ % 32 / 4 + 8 * i;
      const int32_t query = row / group, position = args_.first_position + query;
      const bool have = query < args_.rows;
      rows_.query[i] = have ? query : -1;
      rows_.head[i] = item.kv_head * group + row % group;
      rows_.begin[i] = have ? FirstVisible(position, args_.window) : 0;
      rows_.end[i] = have ? position + 1 : 0;
      max_[i] = -INFINITY;
      sum_[i] = 0;
    }
#pragma unroll
    for (float& o : out_) o = 0;
    LoadQueries(item, group);
  }

  // Rounded, to shared memory: eight elements at a time.
  __device__ __forceinline__ void LoadQueries(const Item& item, int32_t group) {
    constexpr int kPieces = S::kDim / 8, kRowStep = 128 / kPieces;
    const int piece = thread_ % kPieces;
    const bool aligned = reinterpret_cast<uintptr_t>(args_.q) % 16 == 0 && args_.q_stride % 4 == 0;
    uint8_t* const to = shared_->queries[own_] + piece / 8 * S::kQuerySegmentBytes;
    SyncSome<128>(kOwnBarrier + own_);  // the last item's products are through
#pragma unroll 4
    for (int r = thread_ / kPieces; r < kOwnRows; r += kRowStep) {
      const int32_t row = item.first_row + own_ * kOwnRows + r, query = row / group;
      uint4 packed = make_uint4(0, 0, 0, 0);
      if (query < args_.rows) {
        const float* const q =
            args_.q + query * args_.q_stride + (item.kv_head * group + row % group) * S::kDim + piece * 8;
        float4 a, b;
        if (aligned) {
          a = *reinterpret_cast<const float4*>(q);
          b = *reinterpret_cast<const float4*>(q + 4);
        } else {
          a = make_float4(q[0], q[1], q[2], q[3]);
          b = make_float4(q[4], q[5], q[6], q[7]);
        }
        packed = make_uint4(RoundPair(a.x, a.y, T()), RoundPair(a.z, a.w, T()), RoundPair(b.x, b.y, T()),
                            RoundPair(b.z, b.w, T()));
      }
      *reinterpret_cast<uint4*>(to + r * kSegmentRowBytes + SwizzledPiece(piece % 8, r) * 16) = packed;
    }
    ShowToTensorCores();
    SyncSome<128>(kOwnBarrier + own_);
  }

  // Scores of the next stage of keys, under way.
  __device__ __forceinline__ void StartScores() {
    const uint32_t queries = SharedAddress(shared_->queries[own_]), keys = SharedAddress(shared_->keys[keys_.stage]);
#pragma unroll
    for (int k = 0; k < S::kDim / 16; ++k) {
      const int segment = k * 16 / kSegment, columns = k * 16 % kSegment * 2;
      WgmmaShared<T, S::kKeys>(scores_, WgmmaRows(queries + segment * S::kQuerySegmentBytes, columns),
                               WgmmaRows(keys + segment * S::kSegmentBytes, columns), k > 0);
    }
    WgmmaCommit();
  }
  // Weights times the next stage of values, under way.
  __device__ __forceinline__ void StartValues() {
    const uint32_t values = SharedAddress(shared_->values[values_.stage]);
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
#pragma unroll
      for (int d = 0; d < S::kDim; d += kValueColumns) {
        const uint32_t at = values + k * 16 * kSegmentRowBytes + d / kSegment * S::kSegmentBytes;
        WgmmaTransposed<T, kValueColumns>(out_ + d / 2, weights_[k], WgmmaTransposedRows(at, S::kSegmentBytes));
      }
    }
    WgmmaCommit();
  }
  __device__ __forceinline__ void AwaitKeys() { AwaitPhase(&shared_->keys_full[keys_.stage], keys_.parity); }
  __device__ __forceinline__ void AwaitValues() { AwaitPhase(&shared_->values_full[values_.stage], values_.parity); }
  __device__ __forceinline__ void TakeScores() {
    WgmmaTake<kScores>(scores_);
    if (thread_ % 32 == 0) ArriveAt(&shared_->keys_empty[keys_.stage]);
    keys_.Advance();
  }
  __device__ __forceinline__ void TakeValues() {
    WgmmaTake<kOuts>(out_);
    if (thread_ % 32 == 0) ArriveAt(&shared_->values_empty[values_.stage]);
    values_.Advance();
  }

  __device__ __forceinline__ void FirstTile(int32_t tile) {
    AwaitKeys();
    ShowToTensorCores();
    WgmmaFence();
    StartScores();
    WgmmaAwait<0>();
    TakeScores();
    float factor[2];
    Weigh<true>(tile, factor);
    RoundWeights();
  }
  template <bool kMasked>
  __device__ __forceinline__ void NextTile(int32_t tile) {
    AwaitValues();
    AwaitKeys();
    ShowToTensorCores();
    SyncSome<kTurnThreads>(kTurnBarrier + own_);
    WgmmaFence();
    StartScores();
    StartValues();
    ArriveSome<kTurnThreads>(kTurnBarrier + (own_ + 1) % kConsumers);
    WgmmaAwait<1>();
    TakeScores();
    float factor[2];
    Weigh<kMasked>(tile, factor);
    WgmmaAwait<0>();
    TakeValues();
    Rescale(factor);
    RoundWeights();
  }
  __device__ __forceinline__ void LastValues() {
    AwaitValues();
    ShowToTensorCores();
    WgmmaFence();
    StartValues();
    WgmmaAwait<0>();
    TakeValues();
  }

  // Scores become weights, in the order that all tiles have; factor: on what there is of the rows' results.
  template <bool kMasked>
  __device__ __forceinline__ void Weigh(int32_t tile, float (&factor)[2]) {
    if constexpr (kMasked) {
      const int32_t first = tile * S::kKeys + 2 * (thread_ % 4);
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        const int32_t position = first + i / 4 * 8 + i % 2, r = i / 2 % 2;
        if (position < rows_.begin[r] || position >= rows_.end[r]) scores_[i] = -INFINITY;
      }
    }
    float tops[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < kScores; ++i) tops[i % 4] = fmaxf(tops[i % 4], scores_[i]);
    float reference[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(tops[2 * r], tops[2 * r + 1]);
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(max_[r], top * scale_);
      reference[r] = Reference(top);
      factor[r] = PowerOfTwo(max_[r] - reference[r]);
      max_[r] = top;
    }
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      scores_[i] = PowerOfTwo(__fmaf_rn(scores_[i], scale_, -reference[i / 2 % 2]));
      sums[i % 4] += scores_[i];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum_[r] = __fmaf_rn(sum_[r], factor[r], sums[2 * r] + sums[2 * r + 1]);
  }
  __device__ __forceinline__ void Rescale(const float (&factor)[2]) {
    // Most tiles do not raise a maximum, and times one is exact.
    if (!__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < kOuts; ++i) out_[i] *= factor[i / 2 % 2];
  }
  __device__ __forceinline__ void RoundWeights() {
#pragma unroll
    for (int k = 0; k < S::kKeys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights_[k][i] = RoundPair(scores_[8 * k + 2 * i], scores_[8 * k + 2 * i + 1], T());
      }
    }
  }

  // Sixteen bytes at a time: of two neighbouring groups of 16 columns, lanes t and t ^ 2 have one each then.
  __device__ __forceinline__ void Store() const {
    const int t = thread_ % 4;
    const bool second = t >= 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum_[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      float factor = 1;
      if (args_.sinks != nullptr) {
        const float sink = args_.sinks[rows_.head[r]] * kLog2E, reference = Reference(fmaxf(max_[r], sink));
        factor = PowerOfTwo(max_[r] - reference);
        total = __fmaf_rn(total, factor, PowerOfTwo(sink - reference));
      }
      factor = factor / total;
      const int32_t first = rows_.head[r] * S::kDim + (second ? 16 : 0) + t % 2 * 8;
      uint16_t* const to = args_.out.data + int64_t{rows_.query[r]} * args_.out.stride + first;
#pragma unroll
      for (int d = 0; d < S::kDim / 8; d += 4) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const o = out_ + 4 * (d + i) + 2 * r;
          pairs[i] = Bits(__floats2bfloat162_rn(o[0] * factor, o[1] * factor));
        }
        const uint32_t low = __shfl_xor_sync(~0u, second ? pairs[0] : pairs[2], 2);
        const uint32_t high = __shfl_xor_sync(~0u, second ? pairs[1] : pairs[3], 2);
        const uint4 all =
            second ? make_uint4(low, pairs[2], high, pairs[3]) : make_uint4(pairs[0], low, pairs[1], high);
        if (rows_.query[r] >= 0) *reinterpret_cast<uint4*>(to + d * 8) = all;
      }
    }
  }

  const PromptAttendArgs& args_;
  Shared<S>* const shared_;
  const int own_, thread_;  // the warpgroup, and the thread in it
  const float scale_;       // in units of log 2
  prompt_attention::LaneRows rows_;
  Ring keys_, values_;
  float scores_[kScores] = {}, out_[kOuts];
  uint32_t weights_[S::kKeys / 16][4];
  float max_[2], sum_[2];  // scaled; sum: of the lane's own columns
};

// Grid: as many blocks as there are multiprocessors, or less.
template <typename S>
__global__ void __launch_bounds__(kThreads, 1) WgmmaAttention(const __grid_constant__ PromptAttendArgs args) {
  extern __shared__ uint8_t dynamic[];
  const uint32_t behind = SharedAddress(dynamic) % kWgmmaPatternBytes;
  auto* const shared =
      reinterpret_cast<Shared<S>*>(dynamic + (behind == 0 ? 0 : kWgmmaPatternBytes - static_cast<int>(behind)));
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(&shared->keys_full[s], 128);
      InitBarrier(&shared->values_full[s], 128);
      InitBarrier(&shared->keys_empty[s], kConsumerWarps);
      InitBarrier(&shared->values_empty[s], kConsumerWarps);
    }
    PublishBarriers();
  }
  __syncthreads();
  LetNextStart();
  AwaitPrevious();
  if (threadIdx.x >= 128) {
    TakeRegisters<kMultiplyRegisters>();
    Attender<S>(args, shared).Run();
  } else {
    GiveRegisters<kFetchRegisters>();
    Fetcher<S>(args, shared).Run();
  }
}

}  // namespace prompt_attention_wgmma
}  // namespace bellhop::kernels
