// What blocks need whose warps have different tasks: barriers in shared memory that count arrivals and bytes, copies
// that arrive at them, barriers of some warps, registers that move between warpgroups. sm_90a.
#pragma once

#include <cstdint>

namespace bellhop::kernels {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A barrier in shared memory has phases; each ends when so many have arrived and all announced bytes are there.
__device__ __forceinline__ void InitBarrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals) : "memory");
}
// Between InitBarrier and the block's barrier.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void ArriveAt(uint64_t* barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(SharedAddress(barrier))
               : "memory");
}
__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}
// This thread's copies of CopyAsync16 so far arrive once they are through, as one of the arrivals.
__device__ __forceinline__ void ArriveWithCopies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// The end of the phase of this parity; the first phase's is 0.
__device__ __forceinline__ void AwaitPhase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra "
      "WAIT;\nDONE:\n}" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// What ordinary code or CopyAsync16 has written to shared memory, and this thread knows of, is seen by tensor cores.
__device__ __forceinline__ void ShowToTensorCores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// bytes: a multiple of 16, as both addresses. They count at the barrier.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   SharedAddress(to)),
               "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
               : "memory");
}

// A barrier of kThreads threads, of 1 .. 15; 0 is that of the block.
template <int kThreads>
__device__ __forceinline__ void SyncSome(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// Registers of each thread of the warpgroup from here on.
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace bellhop::kernels
