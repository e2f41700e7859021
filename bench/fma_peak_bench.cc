#include "fma_peak_bench.h"

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <thread>

namespace bellhop::kernels {
namespace {

constexpr int kRounds = 1000;

// More independent sums than the latency of an FMA times the FMAs that start in a cycle, within the registers.
constexpr int kAvx2Sums = 12, kAvx512Sums = 16;

void CountFlops(benchmark::State& state, int sums, int lanes) {
  const double flops = 2.0 * kRounds * sums * lanes;
  state.counters["TFLOPs"] =
      benchmark::Counter(1e-12 * flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

__attribute__((target("avx2,fma"))) void Avx2Peak(benchmark::State& state) {
  const __m256 x = _mm256_set1_ps(0.5f);
  __m256 sum[kAvx2Sums] = {};
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
      for (__m256& s : sum) {
        s = _mm256_fmadd_ps(x, x, s);
        __asm__ volatile("" : "+x"(s));
      }
    }
  }
  CountFlops(state, kAvx2Sums, 8);
}

__attribute__((target("avx512f"))) void Avx512Peak(benchmark::State& state) {
  const __m512 x = _mm512_set1_ps(0.5f);
  __m512 sum[kAvx512Sums] = {};
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
      for (__m512& s : sum) {
        s = _mm512_fmadd_ps(x, x, s);
        __asm__ volatile("" : "+v"(s));
      }
    }
  }
  CountFlops(state, kAvx512Sums, 16);
}

void Register(const char* name, void (*fn)(benchmark::State&)) {
  benchmark::RegisterBenchmark(name, fn)->UseRealTime();
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  if (cpus > 1) benchmark::RegisterBenchmark(name, fn)->Threads(cpus)->UseRealTime();
}

}  // namespace

void RegisterFmaPeakBenchmarks(sys::Isa best) {
  if (best >= sys::Isa::kAvx2) Register("fma_peak_avx2", Avx2Peak);
  if (best >= sys::Isa::kAvx512) Register("fma_peak_avx512", Avx512Peak);
}

}  // namespace bellhop::kernels
