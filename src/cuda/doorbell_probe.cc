#include "cuda/doorbell_probe.h"

#include "cuda/cuda_try.h"
#include "cuda/doorbell_kernels.h"

namespace bellhop::cuda {
namespace {

// Whoever should answer is dead by then.
constexpr uint64_t kDeadlineNs = 5'000'000'000;

}  // namespace

struct DoorbellProbe::Inputs {
  int32_t id = 0;
  float weight = 1;
  int32_t expert_to_slot = 0;
  int32_t route_slot = 0;
};

Result<std::unique_ptr<DoorbellProbe>> DoorbellProbe::Create(Device* device, int32_t layers, int64_t hidden) {
  if (layers < 1) return InvalidArgument("a doorbell probe of {} layers: at least one is needed", layers);
  BELLHOP_TRY_ASSIGN(Stream stream, Stream::Create(device));
  BELLHOP_TRY_ASSIGN(Event begin, Event::Create(device, Event::Kind::kTiming));
  BELLHOP_TRY_ASSIGN(Event end, Event::Create(device, Event::Kind::kTiming));
  auto probe =
      std::unique_ptr<DoorbellProbe>(new DoorbellProbe(std::move(stream), std::move(begin), std::move(end), layers));
  BELLHOP_TRY(probe->Prepare(device, hidden));
  return probe;
}

Status DoorbellProbe::Prepare(Device* device, int64_t hidden) {
  const DoorbellShape shape{.rows = 1, .used = 1, .hidden = hidden};
  BELLHOP_TRY_ASSIGN(const uint64_t bytes, DoorbellChannelBytes(shape));
  const uint64_t row = static_cast<uint64_t>(hidden) * sizeof(float);
  BELLHOP_TRY_ASSIGN(channel_memory_, PinnedBuffer::Create(device, bytes, MemoryTag::kDoorbell));
  BELLHOP_TRY_ASSIGN(channel_, MakeDoorbellChannel(channel_memory_.bytes(), shape));
  BELLHOP_TRY_ASSIGN(host_inputs_, PinnedBuffer::Create(device, sizeof(Inputs), MemoryTag::kStaging));
  BELLHOP_TRY_ASSIGN(host_state_, PinnedBuffer::Create(device, sizeof(DoorbellState), MemoryTag::kStaging));
  BELLHOP_TRY_ASSIGN(inputs_, DeviceBuffer::Create(device, sizeof(Inputs), MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(state_, DeviceBuffer::Create(device, sizeof(DoorbellState), MemoryTag::kDoorbell));
  BELLHOP_TRY_ASSIGN(x_, DeviceBuffer::Create(device, row, MemoryTag::kWorkspace));
  BELLHOP_TRY_ASSIGN(y_, DeviceBuffer::Create(device, row, MemoryTag::kWorkspace));
  BELLHOP_TRY(FillZero(x_.bytes(), stream_));
  BELLHOP_TRY(FillZero(y_.bytes(), stream_));
  DoorbellState& state = *host_state_.as<DoorbellState>().data();
  state = DoorbellState{};
  state.deadline_ns = kDeadlineNs;
  BELLHOP_TRY(CopyToDevice(state_.bytes(), host_state_.bytes(), stream_));
  BELLHOP_TRY(SetRinging(false));
  BELLHOP_TRY_ASSIGN(const Graph graph, Graph::Capture(stream_, [this] { return SubmitLayers(); }));
  BELLHOP_TRY_ASSIGN(GraphExec exec, GraphExec::Create(graph, stream_));
  graph_.emplace(std::move(exec));
  return stream_.Synchronize();
}

Status DoorbellProbe::SubmitLayers() {
  Device* const device = &stream_.device();
  auto* inputs = inputs_.as<Inputs>().data();
  auto* state = state_.as<DoorbellState>().data();
  const ClassifyArgs classify{.layer = 0,
                              .rows = 1,
                              .used = 1,
                              .experts = 1,
                              .ids = &inputs->id,
                              .weights = &inputs->weight,
                              .expert_to_slot = &inputs->expert_to_slot,
                              .x = x_.as<float>().data(),
                              .x_stride = channel_.hidden,
                              .route_slots = &inputs->route_slot};
  const WaitArgs wait{.layer = 0, .y = y_.as<float>().data(), .y_stride = channel_.hidden};
  BELLHOP_CUDA_CHECK(device, LaunchBeginStep(state, stream_.queue()));
  for (int32_t i = 0; i < layers_; ++i) {
    BELLHOP_CUDA_CHECK(device, LaunchClassifyAndRing(classify, channel_, state, stream_.queue()));
    BELLHOP_CUDA_CHECK(device, LaunchWaitAndAccumulate(wait, channel_, state, stream_.queue()));
  }
  return Status();
}

Status DoorbellProbe::SetRinging(bool rings) {
  *host_inputs_.as<Inputs>().data() = Inputs{.expert_to_slot = rings ? -1 : 0};
  BELLHOP_TRY(CopyToDevice(inputs_.bytes(), host_inputs_.bytes(), stream_));
  return stream_.Synchronize();
}

Result<double> DoorbellProbe::Replay() {
  BELLHOP_TRY(begin_.Record(stream_));
  BELLHOP_TRY(graph_->Launch(stream_));
  BELLHOP_TRY(end_.Record(stream_));
  BELLHOP_TRY(stream_.Synchronize());
  BELLHOP_TRY_ASSIGN(const double ms, end_.MillisecondsSince(begin_));
  return ms * 1e3 / layers_;
}

}  // namespace bellhop::cuda
