// Streams, events and captured graphs. Move-only owners, as large as a pointer (and the device that they are on);
// destructors ignore errors, because at the end of the process the runtime is gone before they run.
#pragma once

#include <cstddef>
#include <utility>

#include "base/status.h"
#include "cuda/device.h"
#include "cuda/launch_queue.h"

// The runtime's handle types, so that no CUDA header is needed here.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace bellhop::cuda {

void DestroyHandle(CUstream_st* handle) noexcept;
void DestroyHandle(CUevent_st* handle) noexcept;
void DestroyHandle(CUgraph_st* handle) noexcept;
void DestroyHandle(CUgraphExec_st* handle) noexcept;

template <typename T>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(T* handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != nullptr) DestroyHandle(handle_);
  }
  T* get() const { return handle_; }

 private:
  T* handle_ = nullptr;
};

class Event;

// Never the default stream, and not ordered with it.
class Stream {
 public:
  enum class Priority { kNormal, kHigh };
  static Result<Stream> Create(Device* device, Priority priority = Priority::kNormal);

  Device& device() const { return *device_; }
  CUstream_st* get() const { return handle_.get(); }
  // For launches; they add to the device's totals.
  LaunchQueue queue() const { return {get(), &device_->launch_totals()}; }
  // What is submitted later waits for what the event has recorded.
  Status WaitFor(const Event& event) const;
  // The host waits for everything submitted so far.
  Status Synchronize() const;

 private:
  Stream(Device* device, CUstream_st* handle) : device_(device), handle_(handle) {}
  Device* device_;
  UniqueHandle<CUstream_st> handle_;
};

class Event {
 public:
  enum class Kind { kOrder, kTiming };
  static Result<Event> Create(Device* device, Kind kind = Kind::kOrder);

  CUevent_st* get() const { return handle_.get(); }
  Status Record(const Stream& stream) const;
  // Whether everything recorded has completed; an event that was never recorded has.
  Result<bool> IsDone() const;
  Status Synchronize() const;
  // Between two kTiming events that have completed.
  Result<double> MillisecondsSince(const Event& start) const;

 private:
  Event(Device* device, CUevent_st* handle) : device_(device), handle_(handle) {}
  Device* device_;
  UniqueHandle<CUevent_st> handle_;
};

class Graph {
 public:
  CUgraph_st* get() const { return handle_.get(); }
  Device& device() const { return *device_; }
  Result<size_t> NodeCount() const;

  // What fn() submits to the stream, instead of running it. An error of fn, or a call that cannot be captured, gives no
  // graph, and the stream is usable again.
  template <typename Fn>
  static Result<Graph> Capture(const Stream& stream, Fn&& fn) {
    BELLHOP_TRY(BeginCapture(stream));
    Status captured = fn();
    Result<Graph> graph = EndCapture(stream);
    if (!captured.ok()) return captured;
    return graph;
  }

 private:
  Graph(Device* device, CUgraph_st* handle) : device_(device), handle_(handle) {}
  static Status BeginCapture(const Stream& stream);
  static Result<Graph> EndCapture(const Stream& stream);
  Device* device_;
  UniqueHandle<CUgraph_st> handle_;
};

class GraphExec {
 public:
  // Uploaded to the device, so that the first launch costs what later ones do.
  static Result<GraphExec> Create(const Graph& graph, const Stream& stream);
  Status Launch(const Stream& stream) const;

 private:
  explicit GraphExec(CUgraphExec_st* handle) : handle_(handle) {}
  UniqueHandle<CUgraphExec_st> handle_;
};

}  // namespace bellhop::cuda
