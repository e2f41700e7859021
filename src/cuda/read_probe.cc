#include "cuda/read_probe.h"

#include <algorithm>

#include "cuda/bandwidth_probe.h"
#include "cuda/cuda_try.h"

namespace bellhop::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;  // of 256 threads: all that fit
constexpr size_t kWordBytes = 16;

}  // namespace

Result<ReadProbe> ReadProbe::Create(Device* device) {
  int multiprocessors = 0;
  BELLHOP_CUDA_CHECK(device,
                     cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device->id().value));
  BELLHOP_TRY_ASSIGN(Stream stream, Stream::Create(device));
  BELLHOP_TRY_ASSIGN(DeviceBuffer sink, DeviceBuffer::Create(device, sizeof(uint32_t), MemoryTag::kOther));
  return ReadProbe(std::move(stream), std::move(sink), multiprocessors * kBlocksPerMultiprocessor);
}

Status ReadProbe::Submit(const std::byte* data, uint64_t bytes, uint64_t piece_bytes, int pieces) {
  if (pieces < 1 || piece_bytes < kWordBytes || piece_bytes > bytes ||
      (reinterpret_cast<uintptr_t>(data) | piece_bytes) % kWordBytes != 0) {
    return InvalidArgument("{} reads of {} out of {} bytes: expects one read at least, of aligned words of {} bytes",
                           pieces, piece_bytes, bytes, kWordBytes);
  }
  Device* const device = &stream_.device();
  // All made before the first is recorded, so that nothing lies between two reads.
  marks_.clear();
  for (int i = 0; i <= pieces; ++i) {
    BELLHOP_TRY_ASSIGN(Event mark, Event::Create(device, Event::Kind::kTiming));
    marks_.push_back(std::move(mark));
  }
  const uint64_t whole = bytes / piece_bytes;
  BELLHOP_TRY(marks_.front().Record(stream_));
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const std::byte* const piece = data + i % whole * piece_bytes;
    BELLHOP_CUDA_CHECK(device,
                       LaunchReadMemory(piece, piece_bytes, blocks_, sink_.as<uint32_t>().data(), stream_.queue()));
    BELLHOP_TRY(marks_[i + 1].Record(stream_));
  }
  return Status();
}

Result<double> ReadProbe::MeasureAt(const std::byte* data, uint64_t bytes, int passes) {
  if (passes < 1) return InvalidArgument("{} passes asked for; at least one is needed", passes);
  const uint64_t words = bytes / kWordBytes * kWordBytes;
  BELLHOP_TRY(Submit(data, bytes, words, passes + 1));
  BELLHOP_TRY_ASSIGN(const std::vector<double> ends, Finish());
  std::vector<double> times;
  for (size_t i = 1; i < ends.size(); ++i) times.push_back(ends[i] - ends[i - 1]);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  const double ms = times.empty() ? 0 : times[times.size() / 2];
  if (ms <= 0) return InvalidArgument("reading {} bytes took no measurable time; measure more memory", bytes);
  return static_cast<double>(words) / (ms * 1e6);
}

Result<double> ReadProbe::Measure(DeviceSpan<const std::byte> memory, int passes) {
  return MeasureAt(memory.data(), memory.size(), passes);
}
Result<double> ReadProbe::Measure(PinnedSpan<const std::byte> memory, int passes) {
  return MeasureAt(memory.data(), memory.size(), passes);
}

Status ReadProbe::Start(PinnedSpan<const std::byte> memory, uint64_t piece_bytes, int pieces) {
  return Submit(memory.data(), memory.size(), piece_bytes, pieces);
}

Result<bool> ReadProbe::Started() const {
  if (marks_.empty()) return false;
  return marks_.front().IsDone();
}

Result<std::vector<double>> ReadProbe::Finish() {
  BELLHOP_TRY(stream_.Synchronize());
  std::vector<double> ends;
  for (size_t i = 1; i < marks_.size(); ++i) {
    BELLHOP_TRY_ASSIGN(const double ms, marks_[i].MillisecondsSince(marks_.front()));
    ends.push_back(ms);
  }
  marks_.clear();
  return ends;
}

}  // namespace bellhop::cuda
