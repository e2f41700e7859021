#include "sys/page_touch.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "sys/clock.h"
#include "sys/thread_affinity.h"

namespace bellhop::sys {
namespace {

// After this the workers come back, so that progress is seen and a wish to stop is heard.
constexpr int64_t kRoundNs = 100'000'000;

struct Chunk {
  uint64_t begin = 0, end = 0;
};

// The chunks of one node and how many of them were taken.
struct Queue {
  std::vector<Chunk> chunks;
  std::atomic<size_t> next{0};  // relaxed: hands out numbers, nothing else
};

}  // namespace

Status TouchPages(WorkerPool& pool, const NodePartition& partition, HostSpan<const PageRun> runs,
                  const PageTouchOptions& options, const std::function<Status(uint64_t begin, uint64_t end)>& work) {
  const auto queues = std::make_unique<Queue[]>(static_cast<size_t>(partition.nodes()));
  uint64_t total = 0;
  for (const PageRun& run : runs) {
    total += run.bytes();
    for (uint64_t at = run.begin; at < run.end; at += options.chunk_bytes) {
      queues[static_cast<size_t>(run.node_index)].chunks.push_back({at, std::min(at + options.chunk_bytes, run.end)});
    }
  }
  std::atomic<uint64_t> done{0};  // relaxed: read after Run has returned
  std::atomic<bool> failed{false};
  std::mutex mutex;  // guards status
  Status status;
  while (done.load(std::memory_order_relaxed) < total) {
    if (options.progress && !options.progress(done.load(std::memory_order_relaxed), total)) {
      return Cancelled("loading was cancelled");
    }
    if (partition.nodes() > 1 && options.caller_cpu >= 0) MoveThisThread(options.caller_cpu);
    const int64_t deadline = MonotonicNs() + kRoundNs;
    pool.Run([&](int worker, int) {
      Queue& queue = queues[static_cast<size_t>(partition.IndexOfWorker(worker))];
      while (!failed.load(std::memory_order_relaxed) && MonotonicNs() < deadline) {
        const size_t i = queue.next.fetch_add(1, std::memory_order_relaxed);
        if (i >= queue.chunks.size()) return;
        const Chunk& chunk = queue.chunks[i];
        if (Status result = work(chunk.begin, chunk.end); !result.ok()) {
          const std::lock_guard<std::mutex> lock(mutex);
          if (status.ok()) status = std::move(result);
          failed.store(true, std::memory_order_relaxed);
          return;
        }
        done.fetch_add(chunk.end - chunk.begin, std::memory_order_relaxed);
      }
    });
    if (failed.load(std::memory_order_relaxed)) return status;
  }
  if (options.progress) (void)options.progress(total, total);
  return Status();
}

}  // namespace bellhop::sys
