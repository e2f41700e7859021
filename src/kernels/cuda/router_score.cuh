// Scores of a step's rows, and the order of their sums, which prompts keep to (prompt_router.cu): a row is cut into
// pieces of four columns, 128 of them a step. Piece p of all steps makes one sum, by fused multiply-adds in ascending
// order; sum i collects those of pieces i, i + 4, i + 8 ..., and the four of these are added in ascending order.
#pragma once

#include "kernels/cuda/block_sync.cuh"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/router_words.cuh"

namespace bellhop::kernels {
namespace router {

inline constexpr int kScorePieces = 128, kScoreStep = 4 * kScorePieces;
inline constexpr int kScoreSums = 4;

inline constexpr int kScoreWarps = 4, kScoreThreads = kScoreWarps * 32;
static_assert(kScoreThreads == kScorePieces, "a thread is a piece");
inline constexpr int kScoreExperts = 4;  // of a block: each row is read once for all of them

__device__ __forceinline__ float4 LoadFour(const float* p) { return *reinterpret_cast<const float4*>(p); }
// kFirst: the sum's first columns.
template <bool kFirst>
__device__ __forceinline__ float AddPiece(const float4& w, const float4& x, float sum) {
  sum = kFirst ? __fmul_rn(w.x, x.x) : __fmaf_rn(w.x, x.x, sum);
  sum = __fmaf_rn(w.y, x.y, sum);
  sum = __fmaf_rn(w.z, x.z, sum);
  return __fmaf_rn(w.w, x.w, sum);
}

// Of kBatch rows, in turns of two. Rows of four words more than pieces: eight sums at a time are in all banks.
template <int kBatch>
struct Partials {
  float sums[kBatch == 1 ? 1 : 2][kBatch * kScoreExperts][kScorePieces + 4];
};

// One block's experts, their weights in registers as far as kSteps go; kBatch rows at a time.
template <int kSteps, int kBatch>
class Scorer {
 public:
  // Before the kernel ahead has ended.
  __device__ __forceinline__ explicit Scorer(const RouterArgs& args) : column_(4 * static_cast<int>(threadIdx.x)) {
    const int outputs = args.experts + (args.shared_gate ? 1 : 0), hidden = args.x.hidden;
    first_expert_ = static_cast<int>(blockIdx.x) * kScoreExperts;
#pragma unroll
    for (int e = 0; e < kScoreExperts; ++e) {
      const float* const w = args.weights + int64_t{min(first_expert_ + e, outputs - 1)} * hidden;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) weights_[e][i] = LoadOrZero(w, column_ + i * kScoreStep, hidden);
    }
  }

  // Rows from `first` on, as far as there are any.
  __device__ __forceinline__ void Load(const RouterArgs& args, int first, int rows) {
#pragma unroll
    for (int m = 0; m < kBatch; ++m) {
      const float* const x = args.x.values + int64_t{first + m} * args.x.hidden;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        x_[m][i] = LoadOrZero(x, column_ + i * kScoreStep, first + m < rows ? args.x.hidden : 0);
      }
    }
  }

  // Sends the scores of all rows; the first of them are loaded.
  __device__ __forceinline__ void Run(const RouterArgs& args, int rows, Partials<kBatch>* partials) {
    int turn = 0;
#pragma unroll 1
    for (int first = 0; first < rows; first += kBatch, turn ^= 1) {
      float sums[kBatch * kScoreExperts];
      Multiply(args, first, rows, sums);
      if (first + kBatch < rows) Load(args, first + kBatch, rows);
#pragma unroll
      for (int i = 0; i < kBatch * kScoreExperts; ++i) partials->sums[turn][i][threadIdx.x] = sums[i];
      // Whoever reads these has passed the next turn's barrier before they are written again.
      __syncthreads();
      Send(args, first, rows, turn, *partials);
    }
  }

 private:
  static __device__ __forceinline__ float4 LoadOrZero(const float* p, int c, int hidden) {
    return c < hidden ? LoadFour(p + c) : make_float4(0, 0, 0, 0);
  }

  __device__ __forceinline__ void Multiply(const RouterArgs& args, int first, int rows,
                                           float (&sums)[kBatch * kScoreExperts]) const {
    const int hidden = args.x.hidden;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i > 0 && i * kScoreStep >= hidden) break;
#pragma unroll
      for (int m = 0; m < kBatch; ++m) {
#pragma unroll
        for (int e = 0; e < kScoreExperts; ++e) {
          float& sum = sums[m * kScoreExperts + e];
          sum = i == 0 ? AddPiece<true>(weights_[e][i], x_[m][i], 0) : AddPiece<false>(weights_[e][i], x_[m][i], sum);
        }
      }
    }
    const int outputs = args.experts + (args.shared_gate ? 1 : 0);
#pragma unroll 1
    for (int c = column_ + kSteps * kScoreStep; c < hidden; c += kScoreStep) {
      float4 w[kScoreExperts];
#pragma unroll
      for (int e = 0; e < kScoreExperts; ++e) {
        w[e] = LoadFour(args.weights + int64_t{min(first_expert_ + e, outputs - 1)} * hidden + c);
      }
#pragma unroll
      for (int m = 0; m < kBatch; ++m) {
        const float4 x = LoadFour(args.x.values + int64_t{min(first + m, rows - 1)} * hidden + c);
#pragma unroll
        for (int e = 0; e < kScoreExperts; ++e) {
          sums[m * kScoreExperts + e] = AddPiece<false>(w[e], x, sums[m * kScoreExperts + e]);
        }
      }
    }
  }

  // Four threads a score, all in warps that take turns.
  __device__ __forceinline__ void Send(const RouterArgs& args, int first, int rows, int turn,
                                       const Partials<kBatch>& partials) const {
    constexpr int kScores = kBatch * kScoreExperts, kWarps = (kScores * kScoreSums + 31) / 32;
    static_assert(2 * kWarps <= kScoreWarps, "warps of two turns");
    const int thread = static_cast<int>(threadIdx.x) - (kScoreWarps - (turn + 1) * kWarps) * 32;
    if (thread < 0 || thread >= kWarps * 32) return;
    const int score = kScores * kScoreSums < 32 ? thread / kScoreSums % kScores : thread / kScoreSums;
    const float* const pieces = partials.sums[turn][score] + thread % kScoreSums;
    float part[kScorePieces / kScoreSums], sum = 0;
#pragma unroll
    for (int i = 0; i < kScorePieces / kScoreSums; ++i) part[i] = pieces[kScoreSums * i];
#pragma unroll
    for (int i = 0; i < kScorePieces / kScoreSums; ++i) sum += part[i];
    const float second = __shfl_down_sync(0xFFFFFFFFu, sum, 1), third = __shfl_down_sync(0xFFFFFFFFu, sum, 2);
    const float fourth = __shfl_down_sync(0xFFFFFFFFu, sum, 3);
    sum = sum + second + third + fourth;
    const int m = first + score / kScoreExperts, e = first_expert_ + score % kScoreExperts;
    const int outputs = args.experts + (args.shared_gate ? 1 : 0);
    if (thread % kScoreSums != 0 || thread >= kScores * kScoreSums || m >= rows || e >= outputs) return;
    SendWord(ScoreWords(args, m) + e, 1, sum);
  }

  int column_, first_expert_;
  float4 weights_[kScoreExperts][kSteps], x_[kBatch][kSteps];
};

}  // namespace router
}  // namespace bellhop::kernels
