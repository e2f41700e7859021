#include "engine/traffic.h"

namespace bellhop::engine {
namespace {

constexpr uint64_t TrafficTotals::*kTotals[] = {
    &TrafficTotals::steps,        &TrafficTotals::hbm_bytes,  &TrafficTotals::pcie_bytes,
    &TrafficTotals::dram_bytes,   &TrafficTotals::disk_bytes, &TrafficTotals::hot_experts,
    &TrafficTotals::cold_experts, &TrafficTotals::rings,      &TrafficTotals::zero_cold_layers,
    &TrafficTotals::promotions,   &TrafficTotals::wait_ns,
};
static_assert(sizeof(kTotals) / sizeof(kTotals[0]) * sizeof(uint64_t) == sizeof(TrafficTotals));

}  // namespace

TrafficTotals& TrafficTotals::operator+=(const TrafficTotals& other) {
  for (const auto total : kTotals) this->*total += other.*total;
  return *this;
}

TrafficTotals TrafficTotals::operator-(const TrafficTotals& before) const {
  TrafficTotals difference;
  for (const auto total : kTotals) difference.*total = this->*total - before.*total;
  return difference;
}

StepBound GpuSummary::Bound(const TrafficTotals& traffic) const {
  StepBound bound;
  if (traffic.steps == 0) return bound;
  const auto steps = static_cast<double>(traffic.steps);
  const auto ms = [&](uint64_t bytes, double gbps) {
    return gbps > 0 ? static_cast<double>(bytes) / (gbps * 1e6) / steps : 0;
  };
  bound.hbm_ms = ms(traffic.hbm_bytes, hbm_gbps);
  bound.miss_ms = ms(traffic.dram_bytes + traffic.pcie_bytes, miss_gbps);
  bound.sync_ms = static_cast<double>(traffic.rings) / steps * sync_us * 1e-3;
  return bound;
}

}  // namespace bellhop::engine
