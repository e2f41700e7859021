#include "sys/bandwidth.h"

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sys/aligned_buffer.h"
#include "sys/clock.h"

namespace bellhop::sys {
namespace {

constexpr size_t kLineBytes = 64;
// One core keeps this much in flight: 20 % more than the hardware prefetchers alone, which stop at page boundaries.
// Into all cache levels: with the non-temporal hint a core reads a third less.
constexpr size_t kPrefetchBytes = 1024;

// Beyond the end of the buffer this is only a hint to the hardware, never an access.
inline void Prefetch(const std::byte* data, size_t offset) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(data) + offset + kPrefetchBytes), 0, 3);
}

// The sum of all words of `bytes` bytes in whole cache lines; eight independent sums keep eight loads in flight.
uint64_t SumLinesReference(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    Prefetch(data, i);
    uint64_t words[8];
    std::memcpy(words, data + i, sizeof words);
    for (int w = 0; w < 8; ++w) sums[w] += words[w];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

#if defined(__x86_64__)
// Wider loads need fewer instructions per line, so that a core's share of the bandwidth is bounded by its misses.
[[gnu::target("avx2")]] uint64_t SumLinesAvx2(const std::byte* data, size_t bytes) {
  __m256i low = _mm256_setzero_si256(), high = low;
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    Prefetch(data, i);
    low = _mm256_add_epi64(low, _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i)));
    high = _mm256_add_epi64(high, _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32)));
  }
  alignas(32) uint64_t sums[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), _mm256_add_epi64(low, high));
  return sums[0] + sums[1] + sums[2] + sums[3];
}

[[gnu::target("avx512f")]] uint64_t SumLinesAvx512(const std::byte* data, size_t bytes) {
  __m512i even = _mm512_setzero_si512(), odd = even;
  size_t i = 0;
  for (; i + 2 * kLineBytes <= bytes; i += 2 * kLineBytes) {
    Prefetch(data, i);
    Prefetch(data, i + kLineBytes);
    even = _mm512_add_epi64(even, _mm512_load_si512(data + i));
    odd = _mm512_add_epi64(odd, _mm512_load_si512(data + i + kLineBytes));
  }
  if (i < bytes) even = _mm512_add_epi64(even, _mm512_load_si512(data + i));
  alignas(64) uint64_t sums[8];
  _mm512_store_si512(sums, _mm512_add_epi64(even, odd));
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}
#endif

using SumLinesFn = uint64_t (*)(const std::byte* data, size_t bytes);

SumLinesFn SelectSumLines(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return SumLinesAvx512;
  if (isa >= Isa::kAvx2) return SumLinesAvx2;
#endif
  return SumLinesReference;
}

double Median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

uint64_t BandwidthBufferBytes(uint64_t last_level_cache_bytes, uint64_t cap_bytes) {
  constexpr uint64_t kLeast = uint64_t{256} << 20;
  const uint64_t wanted = last_level_cache_bytes > UINT64_MAX / 4 ? UINT64_MAX : last_level_cache_bytes * 4;
  return std::min(std::max(wanted, kLeast), cap_bytes);
}

Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, uint64_t buffer_bytes, int passes, Isa isa) {
  const SumLinesFn sum_lines = SelectSumLines(isa);
  const int64_t lines = static_cast<int64_t>(buffer_bytes / kLineBytes);
  if (lines < pool.size()) {
    return InvalidArgument("a bandwidth buffer of {} bytes is too small for {} workers", buffer_bytes, pool.size());
  }
  if (passes < 1) return InvalidArgument("{} passes asked for; at least one is needed", passes);
  BELLHOP_TRY_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::Create(buffer_bytes, MemoryTag::kOther));
  std::byte* const data = buffer.bytes().data();
  const auto part = [&](int worker, int workers) { return WorkerPool::Split(lines, 1, worker, workers); };

  pool.Run([&](int worker, int workers) {  // first touch places the pages on the worker's node
    const RowRange range = part(worker, workers);
    std::memset(data + range.begin * kLineBytes, worker + 1, static_cast<size_t>(range.size()) * kLineBytes);
  });
  std::vector<uint64_t> sums(static_cast<size_t>(pool.size()) * 8);  // a cache line for each worker
  std::vector<double> rates;
  const double bytes = static_cast<double>(lines) * kLineBytes;
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t start = MonotonicNs();
    pool.Run([&](int worker, int workers) {
      const RowRange range = part(worker, workers);
      sums[static_cast<size_t>(worker) * 8] +=
          sum_lines(data + range.begin * kLineBytes, static_cast<size_t>(range.size()) * kLineBytes);
    });
    rates.push_back(bytes / static_cast<double>(std::max<int64_t>(MonotonicNs() - start, 1)));
  }
  // The sums are used, so the loads cannot be optimised away; their value proves that every line was read.
  for (int worker = 0; worker < pool.size(); ++worker) {
    const uint64_t byte = static_cast<uint64_t>(worker + 1) & 0xff;
    const uint64_t line = byte * 0x0101010101010101u * 8;
    const uint64_t expected =
        line * static_cast<uint64_t>(part(worker, pool.size()).size()) * static_cast<uint64_t>(passes);
    if (sums[static_cast<size_t>(worker) * 8] != expected) {
      return Internal("memory read back wrong during the bandwidth measurement (worker {})", worker);
    }
  }
  ReadBandwidth result;
  result.gb_per_s = Median(rates);  // bytes per ns
  result.min_gb_per_s = rates.front();
  result.max_gb_per_s = rates.back();
  result.buffer_bytes = buffer_bytes;
  result.passes = passes;
  return result;
}

double MeasureRoundTripNs(WorkerPool& pool, int runs) {
  std::vector<double> times;
  times.reserve(static_cast<size_t>(std::max(runs, 1)));
  for (int i = 0; i < std::max(runs, 1); ++i) {
    const int64_t start = MonotonicNs();
    pool.Run([](int, int) {});
    times.push_back(static_cast<double>(MonotonicNs() - start));
  }
  return Median(times);
}

}  // namespace bellhop::sys
