// What becomes of the sums of prompt_wgmma.cuh, some rows at a time, so that there is one copy of the code behind them.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/prompt_wgmma_items.cuh"

namespace bellhop::kernels {
namespace prompt_wgmma {

using prompt_gemm::Of;

// A lane's sums of kShareRows rows from `first` on: some[4 * j + i] as acc is, j the eight rows.
template <int kN>
__device__ __forceinline__ void TakeRows(int first, const float (&acc)[kN / 2], float (&some)[kShareRows / 2]) {
#pragma unroll
  for (int from = 0; from < kN; from += kShareRows) {
    if (first != from) continue;
#pragma unroll
    for (int i = 0; i < kShareRows / 2; ++i) some[i] = from / 2 + i < kN / 2 ? acc[from / 2 + i] : 0.0f;
  }
}

// Results of one matrix, as they lie in registers: what eight lanes store is a whole sector of 32 bytes, nobody waits
// for anybody, and the next item begins while stores are on their way. routes: of the rows.
template <int kN>
__device__ __forceinline__ void StoreResults(const PromptProduct& p, const Item& item, const int32_t* routes,
                                             const float (&acc)[kN / 2]) {
  const int group = static_cast<int>(threadIdx.x) / 128 - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int column = (item.block * kMultipliers + group) * kShareColumns + warp * kTileRows + lane / 4;
  const float scale = p.w.scale * Of(p.w_factor, item.group.expert, 1);
  const bool exists[2] = {column < p.w.rows, column + 8 < p.w.rows};
  float bias[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    bias[i] = exists[i] ? Of(p.w_bias, int64_t{item.group.expert} * p.w.rows + column + 8 * i, 0) : 0;
  }
  if (p.scatters) {
    AwaitCopies<0>();
    SyncSome<128>(kGroupBarrier + group);
  }
#pragma unroll 1
  for (int first = 0; first < item.group.count; first += kShareRows) {
    float some[kShareRows / 2];
    TakeRows<kN>(first, acc, some);
#pragma unroll
    for (int i = 0; i < kShareRows / 4; ++i) {
      const int n = first + i / 2 * 8 + 2 * (lane % 4) + i % 2;
      if (n >= item.group.count) continue;
      const int row = p.scatters ? routes[n] : item.group.first + n;
      float* const to = p.y + row * p.y_stride + column;
      const float factor = p.adds ? Of(p.row_factors, row, 1) : 1.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float value = some[i / 2 * 4 + 2 * half + i % 2] * scale + bias[half];
        if (!exists[half]) continue;
        if (p.adds) {
          atomicAdd(to + 8 * half, p.port_scale * (value * factor));  // once: without looking at what is there
        } else {
          to[8 * half] = value;
        }
      }
    }
  }
}

// Sixteen activations of a row and their sum, a thread: those of a warpgroup's two tiles.
__device__ __forceinline__ void StoreActivationTiles(const PromptProduct& p, const Item& item, const uint8_t* share,
                                                     int first_column) {
  const int thread = static_cast<int>(threadIdx.x) % 128, end = p.w.tiles() * kTileRows;
#pragma unroll 2
  for (int i = thread; i < 2 * item.group.count; i += 128) {
    const int n = i / 2, column = first_column + i % 2 * kTileRows;
    if (column >= end) continue;
    const auto* const from = reinterpret_cast<const uint4*>(share + n * kShareStride + i % 2 * 2 * kTileRows);
    const uint4 low = from[0], high = from[1];
    float sum = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
      const __nv_bfloat162 pair = Pair(w < 4 ? Word(low, w) : Word(high, w - 4));
      sum += __bfloat162float(pair.x) + __bfloat162float(pair.y);
    }
    const int64_t row = static_cast<int64_t>(item.group.first + n) * p.hidden.stride;
    auto* const to = reinterpret_cast<uint4*>(p.hidden.data + row + column);
    to[0] = low;
    to[1] = high;
    p.hidden.sums[(row + column) / 16] = sum;
  }
}

// A lane has a row of gate and the same of up; a warp half a tile, a warpgroup two tiles. Behind the last tile: zeros.
template <int kN>
__device__ __forceinline__ void StoreActivations(const PromptProduct& p, const Item& item, uint8_t* share,
                                                 const float (&acc)[kN / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128, group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int own = thread / 32 * 8 + thread % 32 / 4;
  const int first_column = (item.block * kMultipliers + group) * (kShareColumns / 2), column = first_column + own;
  const bool exists = column < p.w.rows;
  const int64_t at = int64_t{item.group.expert} * p.w.rows + column;
  const float gate_scale = p.w.scale * Of(p.w_factor, item.group.expert, 1);
  const float up_scale = p.up.scale * Of(p.up_factor, item.group.expert, 1);
  const float gate_bias = exists ? Of(p.w_bias, at, 0) : 0, up_bias = exists ? Of(p.up_bias, at, 0) : 0;
  uint8_t* const to = share + 2 * (thread % 4) * kShareStride + 2 * PromptPosition(own);
  // The last item's have been read.
  SyncSome<128>(kGroupBarrier + group);
#pragma unroll 1
  for (int first = 0; first < item.group.count; first += kShareRows) {
    float some[kShareRows / 2];
    TakeRows<kN>(first, acc, some);
#pragma unroll
    for (int i = 0; i < kShareRows / 4; ++i) {
      const int row = i / 2 * 8 + i % 2;
      const float gate = some[i / 2 * 4 + i % 2], up = some[i / 2 * 4 + 2 + i % 2];
      const float h = ActivateFast(p, gate * gate_scale + gate_bias, up * up_scale + up_bias);
      *reinterpret_cast<__nv_bfloat16*>(to + (first + row) * kShareStride) = __float2bfloat16_rn(exists ? h : 0);
    }
  }
  SyncSome<128>(kGroupBarrier + group);
  StoreActivationTiles(p, item, share, first_column);
  if (group > 0 || item.block + 1 < Blocks(p)) return;
  const int end = p.w.tiles() * kTileRows, count = p.hidden.stride - end;
  for (int i = thread; i < item.group.count * count; i += 128) {
    const int64_t place = item.group.first + i / count;
    const int behind = end + i % count;
    p.hidden.data[place * p.hidden.stride + behind] = 0;
    if (behind % 16 == 0) p.hidden.sums[place * (p.hidden.stride / 16) + behind / 16] = 0;
  }
}

}  // namespace prompt_wgmma
}  // namespace bellhop::kernels
