#include "sys/worker_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <system_error>
#include <thread>

#include "sys/spin_wait.h"
#include "sys/thread_affinity.h"

namespace bellhop::sys {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kMaxWorkers = 4096;

// Threads started while this lives take no asynchronous signals: Ctrl-C reaches the thread that asked for it.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

// How many workers can run at the same time. One whose CPU is not allowed stays unpinned and runs on any that is.
size_t UsableCpus(const WorkerPool::Options& options) {
  std::vector<int> cpus = options.cpus;
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  const Result<std::vector<int>> allowed = ReadThreadAffinity();
  if (!allowed.ok()) return cpus.size();
  return options.pin ? std::min(cpus.size(), allowed->size()) : allowed->size();
}

}  // namespace

// Protocol. Run writes the phase (fn, ctx) and bumps `generation`; a worker that sees a new generation executes the
// phase and stores that generation in its own `done` word; Run returns when it has seen all of them. Whoever waits
// spins first, then announces itself as a sleeper and sleeps in the kernel. A done word for each worker and not one
// counter: the workers finish at about the same time, and 15 of them taking turns on one cache line doubled the round
// trip.
struct WorkerPool::Impl {
  // Written by Run, read by all workers: one cache line brings a worker everything that it needs.
  struct alignas(kCacheLine) Published {
    std::atomic<uint32_t> generation{0};
    bool stop = false;  // these three are plain: ordered by `generation`, and by `done` on the way back
    Erased fn = nullptr;
    void* ctx = nullptr;
  } published;
  // Written by its worker, read by the caller.
  struct alignas(kCacheLine) Done {
    std::atomic<uint32_t> generation{0};
  };
  std::unique_ptr<Done[]> done;  // [worker]
  // Written only on the way to sleep and back.
  struct alignas(kCacheLine) Sleep {
    std::atomic<uint32_t> workers{0};
    std::atomic<uint32_t> caller{0};  // the worker that the sleeping caller waits for; 0: the caller is awake
  } sleep;

  alignas(kCacheLine) int64_t spin_ns = 0;
  int workers = 1;
  std::atomic<bool> running{false};  // debug check of "one caller at a time"; orders nothing (relaxed)
  std::vector<std::thread> threads;
  std::vector<std::string> notes;
  std::vector<Status> pin_results;  // [worker]; written by its worker before its first store to `done`
  int caller_cpu = -1;              // where the caller belongs; -1: anywhere
  std::vector<int> pinned_cpus;     // of the other workers, ascending

  uint32_t WaitForGeneration(uint32_t seen);
  void WaitForWorker(int worker, uint32_t phase);
  void LeaveWorkersCpu() const;
  void Publish(Erased fn, void* ctx, bool stop);
  void WorkerMain(int worker, int cpu);
};

uint32_t WorkerPool::Impl::WaitForGeneration(uint32_t seen) {
  if (!SpinUntilChanged(published.generation, seen, spin_ns)) {
    // seq_cst, pairs with the bump and the load in Publish: either Publish sees this sleeper and wakes it, or the load
    // below sees the new generation. The futex itself closes the gap between that load and the sleep.
    sleep.workers.fetch_add(1, std::memory_order_seq_cst);
    while (published.generation.load(std::memory_order_seq_cst) == seen) FutexWait(published.generation, seen);
    sleep.workers.fetch_sub(1, std::memory_order_relaxed);
  }
  // Each phase waits for every worker, so a worker can never be more than one generation behind.
  return seen + 1;
}

void WorkerPool::Impl::WaitForWorker(int worker, uint32_t phase) {
  // The word holds this phase or the one before it. Acquire; pairs with the store in WorkerMain.
  const std::atomic<uint32_t>& word = done[static_cast<size_t>(worker)].generation;
  if (SpinUntilChanged(word, phase - 1, spin_ns)) return;
  LeaveWorkersCpu();
  const uint32_t self = static_cast<uint32_t>(worker);
  for (;;) {
    // seq_cst, pairs with the store and the exchange in WorkerMain: either the worker sees this sleeper, or the load
    // below sees that it is done. The worker takes its number out before it wakes, so a wait that begins later returns
    // at once.
    sleep.caller.store(self, std::memory_order_seq_cst);
    if (word.load(std::memory_order_seq_cst) == phase) break;
    FutexWait(sleep.caller, self);
  }
  sleep.caller.store(0, std::memory_order_relaxed);
}

// The caller is not bound to a CPU, so the scheduler may put it on a worker's. The two then take turns: each spins its
// whole budget while the other cannot run, and a phase takes two budgets (measured: 100 us instead of 0.3 us). Asked
// only when a spin was in vain.
void WorkerPool::Impl::LeaveWorkersCpu() const {
  if (caller_cpu < 0 || spin_ns == 0) return;
  if (std::binary_search(pinned_cpus.begin(), pinned_cpus.end(), CurrentCpu())) MoveThisThread(caller_cpu);
}

void WorkerPool::Impl::Publish(Erased fn, void* ctx, bool stop) {
  published.fn = fn;
  published.ctx = ctx;
  published.stop = stop;
  // Release; pairs with the acquire in SpinUntilChanged. seq_cst; pairs with the sleepers in WaitForGeneration.
  published.generation.fetch_add(1, std::memory_order_seq_cst);
  if (sleep.workers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(published.generation);
}

void WorkerPool::Impl::WorkerMain(int worker, int cpu) {
  if (cpu >= 0) pin_results[static_cast<size_t>(worker)] = PinThisThread(cpu);
  pthread_setname_np(pthread_self(), "bellhop-worker");
  uint32_t seen = 0;
  for (;;) {
    seen = WaitForGeneration(seen);
    if (published.stop) return;
    published.fn(published.ctx, worker, workers);
    // Release; pairs with the acquire in WaitForWorker. seq_cst; pairs with the sleeping caller there.
    done[static_cast<size_t>(worker)].generation.store(seen, std::memory_order_seq_cst);
    uint32_t self = static_cast<uint32_t>(worker);
    // Only if the caller still waits for this worker: by now it may wait for another one.
    if (sleep.caller.load(std::memory_order_seq_cst) == self &&
        sleep.caller.compare_exchange_strong(self, 0, std::memory_order_seq_cst)) {
      FutexWakeAll(sleep.caller);
    }
  }
}

WorkerPool::WorkerPool() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(const Options& options) {
  const size_t workers = options.cpus.size();
  if (workers == 0) return InvalidArgument("a worker pool needs at least one CPU");
  if (workers > kMaxWorkers) {
    return InvalidArgument("{} workers asked for; at most {} are possible", workers, kMaxWorkers);
  }
  if (options.spin_us < 0) {
    return InvalidArgument("spin time {} us is negative; use 0 to sleep at once", options.spin_us);
  }

  std::unique_ptr<WorkerPool> pool(new WorkerPool());
  Impl& impl = *pool->impl_;
  impl.spin_ns = static_cast<int64_t>(options.spin_us) * 1000;
  const size_t usable = UsableCpus(options);
  if (workers > usable) {
    // A spinning waiter would hold the CPU that the worker it waits for needs.
    impl.spin_ns = 0;
    impl.notes.push_back(
        fmt::format("{} workers share {} CPUs: idle workers sleep at once; fewer threads are faster", workers, usable));
  }
  impl.pin_results.resize(workers);
  impl.done = std::make_unique<Impl::Done[]>(workers);
  impl.threads.reserve(workers - 1);
  {
    BlockSignals blocked;
    for (size_t i = 1; i < workers; ++i) {
      const int cpu = options.pin ? options.cpus[i] : -1;
      try {
        impl.threads.emplace_back([&impl, i, cpu] { impl.WorkerMain(static_cast<int>(i), cpu); });
      } catch (const std::system_error& error) {
        // The workers that exist are waiting for generation 1; the destructor stops them.
        impl.workers = static_cast<int>(i);
        return OutOfMemory(
            "cannot start worker thread {} of {}: {}; raise the process limit (ulimit -u) or use fewer "
            "threads",
            i, workers, error.what());
      }
    }
  }
  impl.workers = static_cast<int>(workers);
  pool->Run([](int, int) {});  // every worker has pinned itself once this returns
  for (size_t i = 1; i < workers; ++i) {
    if (!impl.pin_results[i].ok()) {
      impl.notes.push_back(fmt::format("worker {}: {}", i, impl.pin_results[i].message()));
    } else if (options.pin) {
      impl.pinned_cpus.push_back(options.cpus[i]);
    }
  }
  std::sort(impl.pinned_cpus.begin(), impl.pinned_cpus.end());
  if (!std::binary_search(impl.pinned_cpus.begin(), impl.pinned_cpus.end(), options.cpus[0])) {
    impl.caller_cpu = options.cpus[0];
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  if (impl_->threads.empty()) return;
  impl_->Publish(nullptr, nullptr, /*stop=*/true);
  for (std::thread& thread : impl_->threads) thread.join();
}

int WorkerPool::size() const { return impl_->workers; }
const std::vector<std::string>& WorkerPool::notes() const { return impl_->notes; }
int WorkerPool::sleeping_workers() const {
  return static_cast<int>(impl_->sleep.workers.load(std::memory_order_relaxed));
}
int WorkerPool::spin_us() const { return static_cast<int>(impl_->spin_ns / 1000); }

void WorkerPool::RunErased(Erased fn, void* ctx) {
  Impl& impl = *impl_;
  if (impl.workers == 1) {
    fn(ctx, 0, 1);
    return;
  }
  assert(!impl.running.load(std::memory_order_relaxed) && "Run: called from two threads, or from inside a phase");
  impl.running.store(true, std::memory_order_relaxed);
  impl.Publish(fn, ctx, /*stop=*/false);
  fn(ctx, 0, impl.workers);
  const uint32_t phase = impl.published.generation.load(std::memory_order_relaxed);  // only this thread writes it
  for (int worker = 1; worker < impl.workers; ++worker) impl.WaitForWorker(worker, phase);
  impl.running.store(false, std::memory_order_relaxed);
}

RowRange WorkerPool::Split(int64_t count, int64_t grain, int worker, int workers) {
  if (count <= 0) return {0, 0};
  grain = std::max<int64_t>(grain, 1);
  // The first `extra` workers take one block more than the others.
  const int64_t blocks = (count - 1) / grain + 1;
  const int64_t each = blocks / workers, extra = blocks % workers;
  const auto bound = [&](int64_t w) {
    const int64_t block = w * each + std::min(w, extra);
    return block >= blocks ? count : block * grain;
  };
  return {bound(worker), bound(worker + 1)};
}

}  // namespace bellhop::sys
