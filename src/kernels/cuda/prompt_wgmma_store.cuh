// What becomes of the sums of prompt_wgmma.cuh: some rows at a time they go through shared memory, so that stores are
// whole lines and there is one copy of the code behind them.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/prompt_wgmma_items.cuh"

namespace bellhop::kernels {
namespace prompt_wgmma {

using prompt_gemm::Of;
using SharedSums = uint8_t[kShareRows][kShareStride];

// A lane's sums of kShareRows rows from `first` on; give: of row n, of two rows of eight (r) the place and the sum.
template <int kN, typename Give>
__device__ __forceinline__ void ShareSums(int first, const float (&acc)[kN / 2], const Give& give) {
#pragma unroll
  for (int from = 0; from < kN; from += kShareRows) {
    if (first != from) continue;
#pragma unroll
    for (int j = from / 8; j < (from + kShareRows) / 8 && j < kN / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        give(8 * j - from + 2 * static_cast<int>(threadIdx.x % 4) + c, acc[4 * j + c], acc[4 * j + 2 + c]);
      }
    }
  }
}

// Results of one matrix, each warpgroup by itself: a column a thread, two rows at once. routes: of the rows.
template <int kN>
__device__ __forceinline__ void StoreResults(const PromptProduct& p, const Item& item, SharedSums& share,
                                             const int32_t* routes, const float (&acc)[kN / 2]) {
  constexpr int kColumns = kShareColumns, kAtOnce = 128 / kColumns, kUnroll = 8;
  const int thread = static_cast<int>(threadIdx.x) % 128, group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int mine = thread / 32 * kTileRows + thread % 32 / 4, own = thread % kColumns;
  const int column = (item.block * kMultipliers + group) * kColumns + own;
  const bool exists = column < p.w.rows;
  const float scale = p.w.scale * Of(p.w_factor, item.group.expert, 1);
  const float bias = exists ? Of(p.w_bias, int64_t{item.group.expert} * p.w.rows + column, 0) : 0;
  if (p.scatters) AwaitCopies<0>();
#pragma unroll 1
  for (int first = 0; first < item.group.count; first += kShareRows) {
    ShareSums<kN>(first, acc, [&](int n, float low, float high) {
      auto* const to = reinterpret_cast<float*>(share[n]) + mine;
      to[0] = low;
      to[8] = high;
    });
    SyncSome<128>(kGroupBarrier + group);
    const int count = item.group.count - first < kShareRows ? item.group.count - first : kShareRows;
#pragma unroll 1
    for (int base = thread / kColumns; exists && base < count; base += kAtOnce * kUnroll) {
      float* to[kUnroll];
      float value[kUnroll];
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        const int n = base + kAtOnce * i;
        to[i] = nullptr;
        if (n >= count) continue;
        const int row = p.scatters ? routes[first + n] : item.group.first + first + n;
        to[i] = p.y + row * p.y_stride + column;
        value[i] = reinterpret_cast<const float*>(share[n])[own] * scale + bias;
        if (p.adds) value[i] = *to[i] + p.port_scale * (value[i] * Of(p.row_factors, row, 1));
      }
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) {
        if (to[i] != nullptr) *to[i] = value[i];
      }
    }
    SyncSome<128>(kGroupBarrier + group);
  }
}

// Activations of some rows whose sums a warpgroup shares: eight threads a row, two columns of each sixteen a thread.
__device__ __forceinline__ void ActivateRows(const PromptProduct& p, const Item& item, const SharedSums& share,
                                             int first) {
  constexpr int kAtOnce = 128 / 8;
  static_assert(kShareRows % kAtOnce == 0);
  const int thread = static_cast<int>(threadIdx.x) % 128, group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int in_row = thread % 8;
  const float gate_scale = p.w.scale * Of(p.w_factor, item.group.expert, 1);
  const float up_scale = p.up.scale * Of(p.up_factor, item.group.expert, 1);
  const bool biased = p.w_bias != nullptr || p.up_bias != nullptr;
  const int left = item.group.count - first;
#pragma unroll 1
  for (int tile = 0; tile < kShareColumns / 2 / kTileRows; ++tile) {
    const int in_group = tile * kTileRows + 2 * in_row;
    const int column = (item.block * kMultipliers + group) * (kShareColumns / 2) + in_group;
    if (column / kTileRows >= p.w.tiles()) break;
    float gate_bias[2] = {}, up_bias[2] = {};
    if (biased) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (column + i >= p.w.rows) continue;
        const int64_t at = int64_t{item.group.expert} * p.w.rows + column + i;
        gate_bias[i] = Of(p.w_bias, at, 0);
        up_bias[i] = Of(p.up_bias, at, 0);
      }
    }
    const bool exists[2] = {column < p.w.rows, column + 1 < p.w.rows};
    const int to = PromptPosition(column);
#pragma unroll
    for (int base = 0; base < kShareRows; base += kAtOnce) {
      const int n = base + thread / 8;
      const float4 sums = *reinterpret_cast<const float4*>(share[n] + in_group * sizeof(float2));
      const float a = ActivateFast(p, sums.x * gate_scale + gate_bias[0], sums.y * up_scale + up_bias[0]);
      const float b = ActivateFast(p, sums.z * gate_scale + gate_bias[1], sums.w * up_scale + up_bias[1]);
      const __nv_bfloat162 pair = __floats2bfloat162_rn(exists[0] ? a : 0, exists[1] ? b : 0);
      float sum = __bfloat162float(pair.x) + __bfloat162float(pair.y);
#pragma unroll
      for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (n >= left) continue;
      const int64_t row = static_cast<int64_t>(item.group.first + first + n) * p.hidden.stride;
      *reinterpret_cast<uint32_t*>(p.hidden.data + row + to) = Bits(pair);
      if (in_row == 0) p.hidden.sums[(row + column) / 16] = sum;
    }
  }
}

// A lane has a row of gate and the same of up; a warp half a tile, a warpgroup two tiles. Behind the last tile: zeros.
template <int kN>
__device__ __forceinline__ void StoreActivations(const PromptProduct& p, const Item& item, SharedSums& share,
                                                 const float (&acc)[kN / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128, group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int column = thread / 32 * 8 + thread % 32 / 4;
#pragma unroll 1
  for (int first = 0; first < item.group.count; first += kShareRows) {
    ShareSums<kN>(first, acc, [&](int n, float gate, float up) {
      reinterpret_cast<float2*>(share[n])[column] = make_float2(gate, up);
    });
    SyncSome<128>(kGroupBarrier + group);
    ActivateRows(p, item, share, first);
    SyncSome<128>(kGroupBarrier + group);
  }
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
