// The memory of a doorbell channel: its size, its layout, and what the host reads from it after a step. The memory is
// pinned and mapped in the real engine, and any host memory in tests.
#pragma once

#include <cstdint>

#include "base/span.h"
#include "base/status.h"
#include "cuda/doorbell_protocol.h"

namespace bellhop::cuda {

// The largest request.
struct DoorbellShape {
  int32_t rows = 0;  // of a step, 1 .. kDoorbellMaxRows
  int32_t used = 0;  // routes of a row
  int64_t hidden = 0;
};

// Bytes of a channel. kInvalidArgument for a shape that no channel can have.
Result<uint64_t> DoorbellChannelBytes(const DoorbellShape& shape);

// Lays a channel out in `memory` and clears its flags. kInvalidArgument when the memory is too small or not aligned to
// kSignalLineBytes. The memory must outlive every use of the channel.
Result<DoorbellChannel> MakeDoorbellChannel(HostSpan<std::byte> memory, const DoorbellShape& shape);

// What the device recorded, as an error with a remedy; OK: nothing.
Status DoorbellDeviceStatus(const DoorbellChannel& channel);

// Why a row failed, for its request's error; OK for kNone.
Status DoorbellRowStatus(const RowError& error);

}  // namespace bellhop::cuda
