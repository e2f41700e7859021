// Where expert bytes lie on the host: copies on huge pages, mapped pages that are there before the first step, and both
// on the NUMA node of the workers that read them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "manifest/manifest.h"
#include "quant/quant_view.h"
#include "sys/huge_pages.h"
#include "sys/numa_partition.h"
#include "sys/worker_pool.h"

namespace bellhop::store {

class ExpertStore;

// Who touches pages, and who hears about it.
struct TouchOptions {
  sys::WorkerPool* pool = nullptr;
  const sys::NodePartition* partition = nullptr;                // of the pool's workers
  int caller_cpu = -1;                                          // of worker 0, see sys::PageTouchOptions
  std::function<bool(uint64_t done, uint64_t total)> progress;  // false cancels
};

// On machines with more than one node: where the pages are, by asking the kernel about a sample of them.
struct Locality {
  double planned = 1;              // share of the bytes that whole pages let lie on the node that reads them
  std::optional<double> measured;  // share of the pages that are where they were planned; none: unknown
};

struct CopyOptions {
  TouchOptions touch;
  sys::HugePageState huge_pages;
  // Takes copied pages out of the page table (and, with drop_cache, out of the page cache). For experts in mapped files
  // alone: memory that no file backs would lose its content.
  bool release_source = false;
  bool drop_cache = false;
};

struct CopyReport {
  uint64_t bytes = 0;
  std::optional<uint64_t> huge_bytes;  // of them on huge pages, as the kernel says afterwards; none: it does not say
  bool reserved = false;               // from a pool that was set aside
  Locality locality;

  bool all_huge() const { return huge_bytes.value_or(0) >= bytes; }
};

// Bytes that a copy of all experts takes, padding included.
uint64_t CopyBytes(const ExpertStore& store);

struct PrefaultReport {
  uint64_t bytes = 0;
  Locality locality;
};

// Reads all tensors into memory and into the page table, in file order; experts only when the store still has them in
// the mapped file. kIo names the file that cannot be read; kCancelled.
Result<PrefaultReport> Prefault(const manifest::Manifest& manifest, const ExpertStore& store,
                                const TouchOptions& options);

// How views go to memory of their own. Source ranges ascend, and so do their places.
struct CopyLayout {
  struct Segment {
    const std::byte* source = nullptr;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in the copy
  };
  std::vector<Segment> segments;
  uint64_t bytes = 0;

  // The place of a byte of a segment.
  uint64_t OffsetOf(const std::byte* source) const;
};
// Views that touch each other stay neighbours; other segments begin on a cache line. Pure.
CopyLayout LayOutCopy(const std::vector<quant::QuantView>& views);

}  // namespace bellhop::store
