// What the GPU's kernels make of a matrix on the host. Compiled in every build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/device_matrix.h"
#include "quant/quant_view.h"

namespace bellhop::model {

// kUnsupported names what of the matrix no kernel reads, and the remedy.
Status CheckDeviceMatrix(const quant::QuantView& view);
// The matrix as kernels see it; data is not set.
kernels::DeviceMatrix DescribeMatrix(const quant::QuantView& view);
uint64_t DeviceBytes(const quant::QuantView& view);

// File rows, or the codes of a planar matrix, and then its scales: rows one behind the other.
struct HostPlane {
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};
inline constexpr size_t kHostPlanes = 2;
std::array<HostPlane, kHostPlanes> HostPlanes(const quant::QuantView& view);

}  // namespace bellhop::model
