// Test support: the experts of a layer on the host and as banks on the device, and their exact results.
#pragma once

#include <vector>

#include "kernels/cuda/gpu_rig_for_test.h"

namespace bellhop::kernels {

struct LayerShape {
  quant::WeightFormat gate = quant::WeightFormat::kQ4_0, up = gate, down = gate;
  int32_t experts = 1, used = 1, hidden = 0, inner = 0;
  bool biases = false, factors = false;
  DeviceActivation activation = DeviceActivation::kSwiGlu;
  float alpha = 1, beta = 0, limit = 0, port_scale = 1;
};

// Where a slot's matrices are.
struct SlotOffsets {
  int64_t gate = 0, up = 0, down = 0, bytes = 0;
};

struct HostExperts {
  LayerShape shape;
  std::vector<HostMatrix> gate, up, down;            // by expert
  std::vector<float> gate_bias, up_bias, down_bias;  // [experts][rows]
  std::vector<float> gate_scale, up_scale, down_scale;
};
HostExperts RandomExperts(const LayerShape& shape, uint64_t seed);
SlotOffsets OffsetsOf(const HostExperts& experts);

// A bank of `slots` slots, poison but for slot_of[expert] where that is not negative.
ExpertBank MakeBank(GpuRig& rig, const HostExperts& experts, const std::vector<int32_t>& slot_of, int32_t slots);

// The arguments of fc1 and fc2 but for rows, routes and residual; outputs are poison.
ExpertArgs LayerArgs(GpuRig& rig, const HostExperts& experts, const ExpertBank& bank, int32_t rows, int32_t terms);

// Routes of some rows on the host.
struct HostRoutes {
  int32_t rows = 0, used = 0;
  std::vector<int32_t> ids, slots;  // [rows * used]
  std::vector<float> weights;
};
// Distinct experts in each row.
HostRoutes RandomRoutes(int32_t rows, const LayerShape& shape, const std::vector<int32_t>& slot_of, uint64_t seed);
HostRoutes RowOf(const HostRoutes& routes, int32_t row);
// As the router leaves it: routes that have a slot, grouped by expert.
RouteTable UploadRoutes(GpuRig& rig, const HostRoutes& routes, const HostExperts& experts);

// A doorbell channel of up to 32 rows.
cuda::DoorbellChannel MakeChannel(GpuRig& rig, int32_t used, int64_t hidden);
// A router's weights as kernels take them.
std::vector<float> TimesNorm(std::vector<float> weights, const std::vector<float>& norm);
// The router of layer 1, softmax; what it writes is poison or zero. weights: TimesNorm's.
struct RouterShape {
  int32_t experts = 1, used = 1, rows = 1, bucket = 1;
};
RouterArgs MakeRouter(GpuRig& rig, const RouterShape& shape, const ResidualRows& x, const std::vector<float>& weights,
                      const std::vector<int32_t>& slot_of);

// One expert's exact result, [hidden], of columns of fc1's results; those from 0 on have the bias.
std::vector<double> ExpertResult(const HostExperts& experts, int32_t expert, const double* x, InnerRange inner = {});
// [rows][hidden]: the sum of a row's routes that have a slot, times port_scale, plus the residual.
std::vector<double> LayerResult(const HostExperts& experts, const HostRoutes& routes, const std::vector<float>& values,
                                const std::vector<double>& x);

}  // namespace bellhop::kernels
