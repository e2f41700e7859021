#include "sys/bandwidth.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "sys/aligned_buffer.h"
#include "sys/clock.h"

namespace bellhop::sys {
namespace {

constexpr size_t kLineBytes = 64;
// Far enough ahead to cover a DRAM access at the rate of one core; the hardware prefetchers stop at page boundaries.
constexpr size_t kPrefetchBytes = 2048;

// Loads every word of whole cache lines. Eight independent sums keep eight loads in flight.
uint64_t SumLines(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < bytes; i += kLineBytes) {
    // Beyond the end is only a hint to the hardware, never an access.
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(data) + i + kPrefetchBytes), 0, 0);
    uint64_t words[8];
    std::memcpy(words, data + i, sizeof words);
    for (int w = 0; w < 8; ++w) sums[w] += words[w];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
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

Result<ReadBandwidth> MeasureReadBandwidth(WorkerPool& pool, uint64_t buffer_bytes, int passes) {
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
          SumLines(data + range.begin * kLineBytes, static_cast<size_t>(range.size()) * kLineBytes);
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
