#include "sys/bandwidth.h"

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sys/aligned_buffer.h"
#include "sys/clock.h"
#include "sys/host_info.h"

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

constexpr uint64_t kLeastBuffer = uint64_t{64} << 20;
constexpr uint64_t kShareOfAvailable = 4;

struct Sums {
  std::vector<uint64_t> of_workers;
  std::vector<double> rates;  // bytes per ns, one per pass
};

Status CheckRequest(const WorkerPool& pool, uint64_t bytes, int passes) {
  if (bytes / kLineBytes < static_cast<uint64_t>(pool.size())) {
    return InvalidArgument("a bandwidth buffer of {} bytes is too small for {} workers", bytes, pool.size());
  }
  if (passes < 1) return InvalidArgument("{} passes asked for; at least one is needed", passes);
  return Status();
}

Status CheckMemory(const WorkerPool& pool, HostSpan<const std::byte> memory, int passes) {
  BELLHOP_TRY(CheckRequest(pool, memory.size(), passes));
  if (reinterpret_cast<uintptr_t>(memory.data()) % kLineBytes != 0) {
    return InvalidArgument("memory for a bandwidth measurement must begin on a cache line of {} bytes", kLineBytes);
  }
  return Status();
}

Sums ReadPasses(WorkerPool& pool, const std::byte* data, int64_t lines, int passes, SumLinesFn sum_lines) {
  constexpr size_t kStride = 8;  // a cache line for each worker
  std::vector<uint64_t> spread(static_cast<size_t>(pool.size()) * kStride);
  Sums sums;
  for (int pass = 0; pass < passes; ++pass) {
    const int64_t start = MonotonicNs();
    pool.Run([&](int worker, int workers) {
      const RowRange range = WorkerPool::Split(lines, 1, worker, workers);
      spread[static_cast<size_t>(worker) * kStride] +=
          sum_lines(data + range.begin * kLineBytes, static_cast<size_t>(range.size()) * kLineBytes);
    });
    const auto ns = static_cast<double>(std::max<int64_t>(MonotonicNs() - start, 1));
    sums.rates.push_back(static_cast<double>(lines) * kLineBytes / ns);
  }
  for (size_t at = 0; at < spread.size(); at += kStride) sums.of_workers.push_back(spread[at]);
  return sums;
}

double Median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

ReadBandwidth Summary(std::vector<double> rates, uint64_t bytes, int passes) {
  ReadBandwidth result;
  result.gb_per_s = Median(rates);  // sorts them
  result.min_gb_per_s = rates.front();
  result.max_gb_per_s = rates.back();
  result.buffer_bytes = bytes;
  result.passes = passes;
  return result;
}

}  // namespace

uint64_t BandwidthBufferBytes(uint64_t last_level_cache_bytes, uint64_t cap_bytes) {
  constexpr uint64_t kLeast = uint64_t{256} << 20;
  const uint64_t wanted = last_level_cache_bytes > UINT64_MAX / 4 ? UINT64_MAX : last_level_cache_bytes * 4;
  return std::min(std::max(wanted, kLeast), cap_bytes);
}

uint64_t BandwidthBufferBytes(const Topology& topology, uint64_t max_bytes) {
  const uint64_t share = topology.memory_available_bytes / kShareOfAvailable;
  return BandwidthBufferBytes(LastLevelCacheBytes(), std::clamp(share, std::min(kLeastBuffer, max_bytes), max_bytes));
}

void FillForReading(WorkerPool& pool, HostSpan<std::byte> memory) {
  const auto lines = static_cast<int64_t>(memory.size() / kLineBytes);
  pool.Run([&](int worker, int workers) {
    const RowRange range = WorkerPool::Split(lines, 1, worker, workers);
    std::memset(memory.data() + range.begin * kLineBytes, worker + 1, static_cast<size_t>(range.size()) * kLineBytes);
  });
}

Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, uint64_t buffer_bytes, int passes, Isa isa) {
  const int64_t lines = static_cast<int64_t>(buffer_bytes / kLineBytes);
  BELLHOP_TRY(CheckRequest(pool, buffer_bytes, passes));
  BELLHOP_TRY_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::Create(buffer_bytes, MemoryTag::kOther));
  FillForReading(pool, buffer.bytes());
  const Sums sums = ReadPasses(pool, buffer.bytes().data(), lines, passes, SelectSumLines(isa));
  // The sums are used, so the loads cannot be optimised away; their value proves that every line was read.
  for (int worker = 0; worker < pool.size(); ++worker) {
    const uint64_t byte = static_cast<uint64_t>(worker + 1) & 0xff;
    const uint64_t line = byte * 0x0101010101010101u * 8;
    const uint64_t expected = line * static_cast<uint64_t>(WorkerPool::Split(lines, 1, worker, pool.size()).size()) *
                              static_cast<uint64_t>(passes);
    if (sums.of_workers[static_cast<size_t>(worker)] != expected) {
      return Internal("memory read back wrong during the bandwidth measurement (worker {})", worker);
    }
  }
  return Summary(sums.rates, buffer_bytes, passes);
}

Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, HostSpan<const std::byte> memory, int passes, Isa isa) {
  BELLHOP_TRY(CheckMemory(pool, memory, passes));
  const auto lines = static_cast<int64_t>(memory.size() / kLineBytes);
  const SumLinesFn sum_lines = SelectSumLines(isa);
  // The same memory gives the same sums twice; the comparison keeps the loads.
  const Sums first = ReadPasses(pool, memory.data(), lines, 1, sum_lines);
  const Sums sums = ReadPasses(pool, memory.data(), lines, passes, sum_lines);
  for (size_t worker = 0; worker < first.of_workers.size(); ++worker) {
    if (sums.of_workers[worker] != first.of_workers[worker] * static_cast<uint64_t>(passes)) {
      return Internal("memory changed during the bandwidth measurement (worker {})", worker);
    }
  }
  return Summary(sums.rates, memory.size(), passes);
}

Result<std::vector<ReadPoint>> ReadMemoryFor(WorkerPool& pool, HostSpan<const std::byte> memory, int64_t ns, Isa isa) {
  BELLHOP_TRY(CheckMemory(pool, memory, 1));
  const auto lines = static_cast<int64_t>(memory.size() / kLineBytes);
  const SumLinesFn sum_lines = SelectSumLines(isa);
  std::vector<ReadPoint> points{{MonotonicNs(), 0}};
  std::vector<uint64_t> first;
  while (points.size() < 2 || points.back().ns - points.front().ns < ns) {
    const Sums sums = ReadPasses(pool, memory.data(), lines, 1, sum_lines);
    points.push_back({MonotonicNs(), points.back().bytes + static_cast<uint64_t>(lines) * kLineBytes});
    if (first.empty()) first = sums.of_workers;
    if (sums.of_workers != first) return Internal("memory changed during the bandwidth measurement");
  }
  return points;
}

double RateWithin(const std::vector<ReadPoint>& points, int64_t from_ns, int64_t to_ns) {
  double bytes = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const ReadPoint &a = points[i - 1], &b = points[i];
    const int64_t begin = std::max(a.ns, from_ns), end = std::min(b.ns, to_ns);
    if (end <= begin) continue;
    bytes +=
        static_cast<double>(b.bytes - a.bytes) * static_cast<double>(end - begin) / static_cast<double>(b.ns - a.ns);
  }
  return to_ns > from_ns ? bytes / static_cast<double>(to_ns - from_ns) : 0;
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
