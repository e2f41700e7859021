// The inner loop of prompt_wgmma.cuh: 64 output rows of a warpgroup, 16 of each warp, times the rows of an item.
#pragma once

#include <type_traits>

#include "kernels/cuda/prompt_wgmma_items.cuh"

namespace bellhop::kernels {
namespace prompt_wgmma {

// The rows of an item in parts of one size, each the n of one product. Sums take kN / 2 registers and those of two or
// three parts; minima need some too. ptxas does not manage parts of two sizes.
template <int kRows, bool kMins>
struct Parts {
  static constexpr int kN = kRows;
  static constexpr int kSize = kN <= 64             ? kN
                               : kMins && kN == 192 ? 32
                               : kN == 128          ? 64
                               : kN == 160          ? 40
                               : kN == 168          ? 56
                                                    : 48;
  static constexpr int kCount = kN / kSize;
  static_assert(kN % kSize == 0);
};
// f(part, its size), where both are constants.
template <typename P, int kPart = 0, typename F>
__device__ __forceinline__ void ForPart(int part, const F& f) {
  if constexpr (kPart < P::kCount) {
    if (part == kPart) {
      f(std::integral_constant<int, kPart>(), std::integral_constant<int, P::kSize>());
    } else {
      ForPart<P, kPart + 1>(part, f);
    }
  }
}

// A warp's place in the rings of stages, and which of the weights are its own.
template <typename Format>
class Multiplier {
 public:
  using S = Stages<Format>;

  __device__ __forceinline__ Multiplier(const PromptProduct& p, Shared<Format>* shared)
      : shared_(shared), chunks_(p.w.chunks), stages_(S::Of(p.w)) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, group = static_cast<int>(threadIdx.x) / 128 - 1;
    own_ = (p.activates ? 2 * group + warp / 2 : 4 * group + warp) * S::kPieceBytes;
    to_other_ = p.activates ? kTilesAtOnce / 2 * S::kPieceBytes : 0;
    half_ = p.activates ? warp % 2 : 0;
    other_half_ = p.activates ? warp % 2 : 1;
  }

  // The next item, of which nothing has been read yet. Negative block: none.
  __device__ __forceinline__ Item Await() {
    AwaitPhase(&shared_->weights_full[weights_.stage], weights_.parity);
    return shared_->items[weights_.stage];
  }

  // Sums of kN rows: acc[4 * j + i] as of m16n8k16, j the eight rows. Reads every stage of the item.
  template <int kN>
  __device__ __forceinline__ void Sum(float (&acc)[kN / 2]) {
    constexpr int kBurst = Burst<kN>();
    if constexpr (Format::kGroups == 1) {
      SumPlain<kN>(acc);
    } else if constexpr (kBurst > 0) {
      SumBursts<kN, kBurst>(acc);
    } else {
      SumScaled<kN>(acc);
    }
  }

 private:
  using Fragment = GroupFragment<Format::kTerms>;
  static constexpr int kHalves = Format::kOneScale ? 1 : 2;  // sums of 32 columns, or of 16

  // Few rows: so many groups of columns at once, as sums of all of them fit into registers; else none.
  template <int kN>
  static constexpr int Burst() {
    return kN * kHalves <= 48 ? 4 : kN * kHalves <= 64 ? 2 : 0;
  }

  static __device__ __forceinline__ bool First() { return threadIdx.x % 32 == 0; }

  // Minima of a chunk's eight groups times the sums of x over each, which are two terms: one product, whose result is
  // scaled and added as those of a group are.
  struct MinFragment {
    uint32_t a[2];
    float scale[2];
  };
  __device__ __forceinline__ void DecodeMins(const typename Format::Chunk& chunk, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      mins_.a[r] = MinPair(chunk, r, lane % 4, &mins_.scale[r]);
      mins_.scale[r] = -mins_.scale[r];
    }
  }
  template <int kSize>
  __device__ __forceinline__ void MultiplyMins(float* d, int first_row) {
    const uint32_t a[4] = {mins_.a[0], mins_.a[1], mins_.a[0], mins_.a[1]};
    WgmmaFence();
    WgmmaBf16<kSize>(d, a, WgmmaPlanes(SharedAddress(shared_->sums[sums_at_][0]) + first_row * 16, kSumPlaneBytes),
                     false);
    WgmmaCommit();
  }
  // acc += scale * d, of rows from kFirst on.
  template <int kFirst, int kSize, int kN>
  static __device__ __forceinline__ void AddScaled(const float (&scale)[2], float* d, float (&acc)[kN]) {
    WgmmaTake<kSize / 2>(d);
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) {
      float& sum = acc[kFirst / 2 + i];
      sum = __fmaf_rn(scale[i / 2 % 2], d[i], sum);
    }
  }

  // Group u of the stage. Rows g and g + 8 of the warp's sums are those of one tile, or a row of gate and the same of
  // up. What a group needs is loaded with it, because registers are what the loop lacks.
  __device__ __forceinline__ void Decode(int stage, int u, Fragment* f) {
    if (u == 0) AwaitPhase(&shared_->weights_full[weights_.stage], weights_.parity);
    const int chunk = u / Format::kGroups, lane = static_cast<int>(threadIdx.x % 32);
    const SharedBytes own{shared_->weights[weights_.stage] + (own_ + chunk * S::kChunkBytes)};
    typename Format::Chunk loaded;
    Format::LoadRow(own, half_, lane, &loaded, 0);
    Format::LoadRow(own + to_other_, other_half_, lane, &loaded, 1);
    Format::Expand(loaded, u % Format::kGroups, lane % 4, shared_->tables, f);
    // A stage's last chunks need not exist.
    if (S::kChunks > 1 && stage * S::kChunks + chunk >= chunks_) *f = {};
    if (u + 1 < S::kGroups) return;
    if constexpr (Format::kMins) DecodeMins(loaded, lane);
    __syncwarp();
    if (First()) ArriveAt(&shared_->weights_empty[weights_.stage]);
    weights_.Advance();
  }

  // The stage of the rows of the columns that come next. Tensor cores see them after ShowToTensorCores: made by each
  // warpgroup when it needs it, this also keeps the two from doing the same at the same time.
  __device__ __forceinline__ int AwaitStage() {
    const int stage = rows_.stage;
    AwaitPhase(&shared_->rows_full[stage], rows_.parity);
    rows_.Advance();
    return stage;
  }
  __device__ __forceinline__ uint64_t RowsOf(int stage) const { return WgmmaRows(SharedAddress(shared_->rows[stage])); }
  // Rows of the columns that come next, as a descriptor.
  __device__ __forceinline__ uint64_t AwaitRows() {
    held_ = taken_;
    taken_ = AwaitStage();
    ShowToTensorCores();
    return RowsOf(taken_);
  }
  __device__ __forceinline__ void GiveBackRows(int stage) {
    if (First()) ArriveAt(&shared_->rows_empty[stage]);
  }
  // Of group u, half of it, and a part of the rows.
  static __device__ __forceinline__ uint64_t Operand(uint64_t rows, int u, int half, int first_row) {
    return WgmmaFurther(rows, first_row * kWgmmaRowBytes + u % 2 * 64 + half * 32);
  }

  // Two buffers of sums of 16 or 32 columns and a part of the rows: while one is multiplied, the other is scaled and
  // added. The order of columns is that of the matrix, so a row's result does not depend on the others. No product is
  // under way from one turn of the loop to the next: ptxas would then wait for each one.
  template <int kN>
  __device__ __forceinline__ void SumScaled(float (&acc)[kN / 2]) {
    static_assert(Format::kTerms == 1 && (Format::kOneScale || !Format::kMins));
    using P = Parts<kN, Format::kMins>;
    constexpr int kSteps = kHalves * P::kCount;
    float sums[2][P::kSize / 2] = {};
    Fragment f[2];
    Decode(0, 0, &f[0]);
    uint64_t rows = AwaitRows();
    // Adds what a step of group u has left, once all but some groups of products are through.
    auto take = [&](int u, int step, auto pending) {
      WgmmaAwait<decltype(pending)::value>();
      ForPart<P>(step % P::kCount, [&](auto part, auto size) {
        AddScaled<part * P::kSize, size>(f[u % 2].scale[step / P::kCount], sums[(u * kSteps + step) % 2], acc);
      });
    };
    // The same of minima: the last steps of a stage.
    auto take_mins = [&](int step, auto pending) {
      WgmmaAwait<decltype(pending)::value>();
      ForPart<P>(step, [&](auto part, auto size) {
        AddScaled<part * P::kSize, size>(mins_.scale, sums[(S::kGroups * kSteps + step) % 2], acc);
      });
    };
    using OnePending = std::integral_constant<int, 1>;
    using NonePending = std::integral_constant<int, 0>;
    for (int stage = 0; stage < stages_; ++stage) {
#pragma unroll
      for (int u = 0; u < S::kGroups; ++u) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          ForPart<P>(step % P::kCount, [&](auto part, auto size) {
            float* const d = sums[(u * kSteps + step) % 2];
            const int half = step / P::kCount;
            WgmmaFence();
            WgmmaBf16<size>(d, f[u % 2].a[0][half], Operand(rows, u, half, part * P::kSize), false);
            if constexpr (kHalves == 1) {
              WgmmaBf16<size>(d, f[u % 2].a[0][1], Operand(rows, u, 1, part * P::kSize), true);
            }
            WgmmaCommit();
          });
          if (step > 0) {
            take(u, step - 1, OnePending());
          } else if (u > 0) {
            take(u - 1, kSteps - 1, OnePending());
          }
          if (step == 0) {
            if (u % 2 == 0 && u > 0) GiveBackRows(held_);
            // Into the registers of the group before, which is through.
            if (u + 1 < S::kGroups) {
              Decode(stage, u + 1, &f[(u + 1) % 2]);
            } else if (stage + 1 < stages_) {
              Decode(stage + 1, 0, &f[0]);
            }
          }
          // While the last products of these rows run.
          if (u % 2 == 1 && step == kSteps - 1 && (u + 1 < S::kGroups || stage + 1 < stages_)) rows = AwaitRows();
        }
      }
      if constexpr (Format::kMins) {
#pragma unroll
        for (int step = 0; step < P::kCount; ++step) {
          ForPart<P>(step, [&](auto part, auto size) {
            MultiplyMins<size>(sums[(S::kGroups * kSteps + step) % 2], part * P::kSize);
          });
          if (step > 0) {
            take_mins(step - 1, OnePending());
          } else {
            take(S::kGroups - 1, kSteps - 1, OnePending());
          }
        }
        take_mins(P::kCount - 1, NonePending());
        sums_at_ ^= 1;
      } else {
        take(S::kGroups - 1, kSteps - 1, NonePending());
      }
      GiveBackRows(stage + 1 < stages_ ? held_ : taken_);
    }
  }

  // The same with few rows, where what counts is how often one waits: products of kBurst groups at once, each with sums
  // of its own, while the other warpgroup decodes.
  template <int kN, int kBurst>
  __device__ __forceinline__ void SumBursts(float (&acc)[kN / 2]) {
    static_assert(Format::kTerms == 1 && S::kGroups % kBurst == 0 && kBurst % 2 == 0);
    constexpr int kStages = kBurst / 2;
    float sums[kBurst][kHalves][kN / 2] = {};
    for (int stage = 0; stage < stages_; ++stage) {
#pragma unroll
      for (int first = 0; first < S::kGroups; first += kBurst) {
        Fragment f[kBurst];
#pragma unroll
        for (int i = 0; i < kBurst; ++i) Decode(stage, first + i, &f[i]);
        int held[kStages];
#pragma unroll
        for (int i = 0; i < kStages; ++i) held[i] = AwaitStage();
        ShowToTensorCores();
        WgmmaFence();
#pragma unroll
        for (int i = 0; i < kBurst; ++i) {
          const uint64_t rows = RowsOf(held[i / 2]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            WgmmaBf16<kN>(sums[i][half % kHalves], f[i].a[0][half], Operand(rows, i, half, 0), half >= kHalves);
          }
          WgmmaCommit();
        }
        ForGroup<kBurst>([&](auto i) {
          WgmmaAwait<kBurst - 1 - i>();
#pragma unroll
          for (int half = 0; half < kHalves; ++half) AddScaled<0, kN>(f[i].scale[half], sums[i][half], acc);
          if constexpr (Format::kMins && i + 1 == kBurst) {
            if (first + kBurst == S::kGroups) {
              MultiplyMins<kN>(sums[0][0], 0);
              WgmmaAwait<0>();
              AddScaled<0, kN>(mins_.scale, sums[0][0], acc);
              sums_at_ ^= 1;
            }
          }
          if (i % 2 == 1) GiveBackRows(held[i / 2]);
        });
      }
    }
  }
  // f(i) for i < kCount, a constant.
  template <int kCount, int kAt = 0, typename F>
  static __device__ __forceinline__ void ForGroup(const F& f) {
    if constexpr (kAt < kCount) {
      f(std::integral_constant<int, kAt>());
      ForGroup<kCount, kAt + 1>(f);
    }
  }

  // Products that need no scale are added where they are.
  template <int kN>
  __device__ __forceinline__ void SumPlain(float (&acc)[kN / 2]) {
    using P = Parts<kN, Format::kMins>;
    Fragment f[2];
    Decode(0, 0, &f[0]);
    uint64_t rows = 0;
    for (int stage = 0; stage < stages_; ++stage) {
#pragma unroll
      for (int u = 0; u < S::kGroups; ++u) {
        if (u % 2 == 0) rows = AwaitRows();
        WgmmaFence();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int term = 0; term < Format::kTerms; ++term) {
#pragma unroll
            for (int i = 0; i < P::kCount; ++i) {
              ForPart<P>(i, [&](auto part, auto size) {
                WgmmaBf16<size>(acc + part * P::kSize / 2, f[u % 2].a[term][half],
                                Operand(rows, u, half, part * P::kSize), true);
              });
            }
          }
        }
        WgmmaCommit();
        WgmmaAwait<1>();
        if (u % 2 == 0 && (u > 0 || stage > 0)) GiveBackRows(held_);
        if (u + 1 < S::kGroups) {
          Decode(stage, u + 1, &f[(u + 1) % 2]);
        } else if (stage + 1 < stages_) {
          Decode(stage + 1, 0, &f[0]);
        }
      }
    }
    WgmmaAwait<0>();
    WgmmaTake<kN / 2>(acc);
    GiveBackRows(taken_);
  }

  Shared<Format>* const shared_;
  const int chunks_, stages_;
  int own_, to_other_, half_, other_half_;  // a row of the warp's weights in a stage, and the other one
  Ring<S::kCount> weights_;
  Ring<S::kRows> rows_;
  int taken_ = 0, held_ = 0;  // stages of rows: the last one, the one before
  MinFragment mins_;          // of a stage's chunk, from its last group on
  int sums_at_ = 0;
};

}  // namespace prompt_wgmma
}  // namespace bellhop::kernels
