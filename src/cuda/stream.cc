#include "cuda/stream.h"

#include <cuda_runtime_api.h>

#include "cuda/cuda_try.h"

namespace bellhop::cuda {

void DestroyHandle(CUstream_st* handle) noexcept { (void)cudaStreamDestroy(handle); }
void DestroyHandle(CUevent_st* handle) noexcept { (void)cudaEventDestroy(handle); }
void DestroyHandle(CUgraph_st* handle) noexcept { (void)cudaGraphDestroy(handle); }
void DestroyHandle(CUgraphExec_st* handle) noexcept { (void)cudaGraphExecDestroy(handle); }

Result<Stream> Stream::Create(Device* device, Priority priority) {
  int lowest = 0, highest = 0;
  BELLHOP_CUDA_CHECK(device, cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t handle = nullptr;
  BELLHOP_CUDA_CHECK(device, cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking,
                                                          priority == Priority::kHigh ? highest : lowest));
  return Stream(device, handle);
}

Status Stream::WaitFor(const Event& event) const {
  BELLHOP_CUDA_CHECK(device_, cudaStreamWaitEvent(get(), event.get(), cudaEventWaitDefault));
  return Status();
}

Status Stream::Synchronize() const {
  BELLHOP_CUDA_CHECK(device_, cudaStreamSynchronize(get()));
  return Status();
}

Result<Event> Event::Create(Device* device, Kind kind) {
  cudaEvent_t handle = nullptr;
  BELLHOP_CUDA_CHECK(
      device, cudaEventCreateWithFlags(&handle, kind == Kind::kTiming ? cudaEventDefault : cudaEventDisableTiming));
  return Event(device, handle);
}

Status Event::Record(const Stream& stream) const {
  BELLHOP_CUDA_CHECK(device_, cudaEventRecord(get(), stream.get()));
  return Status();
}

Result<bool> Event::IsDone() const {
  BELLHOP_TRY(device_->poison().status());
  const cudaError_t state = cudaEventQuery(get());
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no error
    return false;
  }
  BELLHOP_TRY(CheckCuda(device_, state, "cudaEventQuery"));
  return true;
}

Status Event::Synchronize() const {
  BELLHOP_CUDA_CHECK(device_, cudaEventSynchronize(get()));
  return Status();
}

Result<double> Event::MillisecondsSince(const Event& start) const {
  float ms = 0;
  BELLHOP_CUDA_CHECK(device_, cudaEventElapsedTime(&ms, start.get(), get()));
  return static_cast<double>(ms);
}

Result<size_t> Graph::NodeCount() const {
  size_t count = 0;
  BELLHOP_CUDA_CHECK(device_, cudaGraphGetNodes(get(), nullptr, &count));
  return count;
}

Status Graph::BeginCapture(const Stream& stream) {
  // Of this thread: another thread's calls neither join the graph nor break it.
  BELLHOP_CUDA_CHECK(&stream.device(), cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  return Status();
}

Result<Graph> Graph::EndCapture(const Stream& stream) {
  cudaGraph_t graph = nullptr;
  // Made even on a poisoned device: the capture must end.
  BELLHOP_TRY(CheckCuda(&stream.device(), cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture"));
  return Graph(&stream.device(), graph);
}

Result<GraphExec> GraphExec::Create(const Graph& graph, const Stream& stream) {
  cudaGraphExec_t handle = nullptr;
  BELLHOP_CUDA_CHECK(&graph.device(), cudaGraphInstantiate(&handle, graph.get(), 0));
  GraphExec exec(handle);
  BELLHOP_CUDA_CHECK(&graph.device(), cudaGraphUpload(handle, stream.get()));
  return exec;
}

Status GraphExec::Launch(const Stream& stream) const {
  BELLHOP_CUDA_CHECK(&stream.device(), cudaGraphLaunch(handle_.get(), stream.get()));
  return Status();
}

}  // namespace bellhop::cuda
