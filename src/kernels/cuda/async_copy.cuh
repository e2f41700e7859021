// Copies from global to shared memory that go on beside the code. Before what they wrote is read: AwaitCopies, then a
// barrier of the threads that read it.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

// Sixteen bytes, or zeros in their place.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool have) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(have ? 16 : 0)
               : "memory");
}
// to: an address in shared memory; from: base[index]. The sum is made here, or it would be kept in two registers.
__device__ __forceinline__ void CopyAsync16(uint32_t to, const uint4* base, uint32_t index) {
  asm volatile(
      "{\n.reg .u64 from;\nmad.wide.u32 from, %2, 16, %1;\ncp.async.cg.shared.global.L2::128B [%0], [from], 16;\n}" ::
          "r"(to),
      "l"(base), "r"(index)
      : "memory");
}
// A warp: kBytes that lie side by side.
template <int kBytes>
__device__ __forceinline__ void CopyAsyncWarp(uint32_t to, const uint8_t* from, int lane) {
  static_assert(kBytes % 16 == 0);
  to += static_cast<uint32_t>(lane) * 16;
  from += lane * 16;
#pragma unroll
  for (int at = 0; at < kBytes; at += 512) {
    if (at + 512 > kBytes && lane >= (kBytes - at) / 16) break;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to + static_cast<uint32_t>(at)),
                 "l"(from + at)
                 : "memory");
  }
}
__device__ __forceinline__ void CopyAsync4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last kPending groups.
template <int kPending>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace bellhop::kernels
