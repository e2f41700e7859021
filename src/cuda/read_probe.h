// How fast kernels read memory, measured: on the device, or on the host over PCIe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/span.h"
#include "base/status.h"
#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"

namespace bellhop::cuda {

class ReadProbe {
 public:
  // The device must outlive the probe.
  static Result<ReadProbe> Create(Device* device);

  // GB/s (10^9 bytes per second): the median of `passes` over the memory, after one that warms up. Memory much larger
  // than the device's L2, or the L2 is measured. kInvalidArgument for none, or memory that is not aligned to 16 bytes.
  Result<double> Measure(DeviceSpan<const std::byte> memory, int passes);
  // Pinned or registered.
  Result<double> Measure(PinnedSpan<const std::byte> memory, int passes);

  // Submits reads of `pieces` pieces, round and round the memory's whole ones, which run while the host does something
  // else. One start at a time; the memory stays until Finish.
  Status Start(PinnedSpan<const std::byte> memory, uint64_t piece_bytes, int pieces);
  // The first read has begun.
  Result<bool> Started() const;
  // Waits for the end. When each read ended, in milliseconds since the first one began.
  Result<std::vector<double>> Finish();

 private:
  ReadProbe(Stream stream, DeviceBuffer sink, int blocks)
      : stream_(std::move(stream)), sink_(std::move(sink)), blocks_(blocks) {}
  Status Submit(const std::byte* data, uint64_t bytes, uint64_t piece_bytes, int pieces);
  Result<double> MeasureAt(const std::byte* data, uint64_t bytes, int passes);

  Stream stream_;
  DeviceBuffer sink_;
  int blocks_;
  std::vector<Event> marks_;  // before the first read and after each
};

}  // namespace bellhop::cuda
