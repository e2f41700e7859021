#include "model/gpu/time_parts.h"

namespace bellhop::model {

Result<std::string> TimeStepParts(const GpuLayers& layers, const cuda::Stream& stream) {
  constexpr int kReplays = 20;
  static constexpr const char* kNames[kStepParts] = {
      "all parts", "begin", "QKV", "QK norm and RoPE", "attention", "output", "router", "fetch", "fc1", "fc2", "head"};
  BELLHOP_TRY_ASSIGN(const cuda::Event begin, cuda::Event::Create(&stream.device(), cuda::Event::Kind::kTiming));
  BELLHOP_TRY_ASSIGN(const cuda::Event end, cuda::Event::Create(&stream.device(), cuda::Event::Kind::kTiming));
  std::string line = "GPU, us of a step of one row:";
  for (int part = 0; part < kStepParts; ++part) {
    if (part == static_cast<int>(StepPart::kFetch)) continue;
    const uint64_t launches = stream.queue().totals->launches;
    BELLHOP_TRY_ASSIGN(const cuda::Graph graph, cuda::Graph::Capture(stream, [&] {
                         return SubmitStep(layers, 1, true, static_cast<StepPart>(part), &stream.device(),
                                           stream.queue());
                       }));
    if (stream.queue().totals->launches == launches) continue;  // another part does its work
    BELLHOP_TRY_ASSIGN(cuda::GraphExec exec, cuda::GraphExec::Create(graph, stream));
    BELLHOP_TRY(exec.Launch(stream));
    BELLHOP_TRY(begin.Record(stream));
    for (int i = 0; i < kReplays; ++i) BELLHOP_TRY(exec.Launch(stream));
    BELLHOP_TRY(end.Record(stream));
    BELLHOP_TRY(stream.Synchronize());
    BELLHOP_TRY_ASSIGN(const double ms, end.MillisecondsSince(begin));
    line += fmt::format("{} {} {:.0f}", part == 0 ? "" : ",", kNames[part], ms * 1e3 / kReplays);
  }
  return line;
}

}  // namespace bellhop::model
