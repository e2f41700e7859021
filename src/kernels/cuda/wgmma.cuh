// Hopper's products of a warpgroup: 64 rows of a, 16 of each warp, in registers as for m16n8k16; kN rows of b in shared
// memory; sums in registers, of each eight columns four numbers a lane as for m16n8k16. They run beside the code: what
// they read and write must be left alone until WgmmaAwait. sm_90a alone.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

// Rows of b: 128 bytes each, one after the other; piece p (16 bytes) of row n lies at SwizzledPiece(p, n). A matrix
// starts at a multiple of 1024 bytes.
inline constexpr int kWgmmaRowBytes = 128;
inline constexpr int kWgmmaPatternBytes = 8 * kWgmmaRowBytes;
constexpr int SwizzledPiece(int piece, int row) { return piece ^ row % 8; }

// The descriptor of such rows: swizzle of 128 bytes; eight rows further is 1024 bytes further; the leading offset is
// not used. shared_address: of the first row, a multiple of 1024, or of 8 rows in it; columns: an offset in bytes, a
// multiple of 32.
constexpr uint64_t WgmmaRows(uint32_t shared_address, int columns = 0) {
  return uint64_t{1} << 62 | uint64_t{kWgmmaPatternBytes >> 4} << 32 | uint64_t{1} << 16 |
         ((shared_address + static_cast<uint32_t>(columns)) & 0x3FFFFu) >> 4;
}
// Rows of 16 columns as two planes: eight columns of all rows, 16 bytes each, then the other eight, plane_bytes further
// (a multiple of 16). shared_address: of a row of the first plane, a multiple of 16.
constexpr uint64_t WgmmaPlanes(uint32_t shared_address, int plane_bytes) {
  return uint64_t{128 >> 4} << 32 | static_cast<uint64_t>(plane_bytes >> 4) << 16 | (shared_address & 0x3FFFFu) >> 4;
}
// The same rows or their neighbours, so many bytes further.
constexpr uint64_t WgmmaFurther(uint64_t rows, int bytes) { return rows + static_cast<uint64_t>(bytes >> 4); }

// Before products whose registers the code has touched.
__device__ __forceinline__ void WgmmaFence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// What was started since the last one is a group.
__device__ __forceinline__ void WgmmaCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All but the last kPending groups.
template <int kPending>
__device__ __forceinline__ void WgmmaAwait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Behind WgmmaAwait: nothing that reads these sums is moved before it.
template <int kCount>
__device__ __forceinline__ void WgmmaTake(float* d) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d[64 x kN] = or += a[64 x 16] * b, bf16 in, f32 out; d: kN / 2 numbers of this lane.
template <int kN>
__device__ __forceinline__ void WgmmaBf16(float* d, const uint32_t (&a)[4], uint64_t b, bool adds);

#define BELLHOP_REGISTERS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define BELLHOP_REGISTERS_16 BELLHOP_REGISTERS_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define BELLHOP_REGISTERS_20 BELLHOP_REGISTERS_16 ",%16,%17,%18,%19"
#define BELLHOP_REGISTERS_24 BELLHOP_REGISTERS_20 ",%20,%21,%22,%23"
#define BELLHOP_REGISTERS_28 BELLHOP_REGISTERS_24 ",%24,%25,%26,%27"
#define BELLHOP_REGISTERS_32 BELLHOP_REGISTERS_28 ",%28,%29,%30,%31"
#define BELLHOP_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BELLHOP_SUMS_8 BELLHOP_SUMS_4(0), BELLHOP_SUMS_4(4)
#define BELLHOP_SUMS_16 BELLHOP_SUMS_8, BELLHOP_SUMS_4(8), BELLHOP_SUMS_4(12)
#define BELLHOP_SUMS_20 BELLHOP_SUMS_16, BELLHOP_SUMS_4(16)
#define BELLHOP_SUMS_24 BELLHOP_SUMS_20, BELLHOP_SUMS_4(20)
#define BELLHOP_SUMS_28 BELLHOP_SUMS_24, BELLHOP_SUMS_4(24)
#define BELLHOP_SUMS_32 BELLHOP_SUMS_28, BELLHOP_SUMS_4(28)
// n columns in r registers; operands behind the sums: a0 .. a3, the descriptor, whether to add.
#define BELLHOP_WGMMA(n, r, a, b, p)                                                                                   \
  template <>                                                                                                          \
  __device__ __forceinline__ void WgmmaBf16<n>(float* d, const uint32_t(&a_)[4], uint64_t b_, bool adds) {             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p                                                                 \
                 ", 0;\n"                                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" BELLHOP_REGISTERS_##r "}, {" a "}, " b   \
                                                                                                    ", p, 1, 1, 0;\n}" \
                 : BELLHOP_SUMS_##r                                                                                    \
                 : "r"(a_[0]), "r"(a_[1]), "r"(a_[2]), "r"(a_[3]), "l"(b_), "r"(adds ? 1 : 0));                        \
  }
BELLHOP_WGMMA(16, 8, "%8,%9,%10,%11", "%12", "%13")
BELLHOP_WGMMA(32, 16, "%16,%17,%18,%19", "%20", "%21")
BELLHOP_WGMMA(40, 20, "%20,%21,%22,%23", "%24", "%25")
BELLHOP_WGMMA(48, 24, "%24,%25,%26,%27", "%28", "%29")
BELLHOP_WGMMA(56, 28, "%28,%29,%30,%31", "%32", "%33")
BELLHOP_WGMMA(64, 32, "%32,%33,%34,%35", "%36", "%37")
#undef BELLHOP_WGMMA
#undef BELLHOP_SUMS_32
#undef BELLHOP_SUMS_28
#undef BELLHOP_SUMS_24
#undef BELLHOP_SUMS_20
#undef BELLHOP_SUMS_16
#undef BELLHOP_SUMS_8
#undef BELLHOP_SUMS_4
#undef BELLHOP_REGISTERS_32
#undef BELLHOP_REGISTERS_28
#undef BELLHOP_REGISTERS_24
#undef BELLHOP_REGISTERS_20
#undef BELLHOP_REGISTERS_16
#undef BELLHOP_REGISTERS_8

}  // namespace bellhop::kernels
