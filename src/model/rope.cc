#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bellhop::model {
namespace {

// The pair index at which a wavelength fits `beta` times into the original context.
double YarnCorrection(double beta, int32_t dims, double base, double original_context) {
  return dims * std::log(original_context / (beta * 2 * std::numbers::pi)) / (2 * std::log(base));
}

void ApplyYarn(const manifest::RopeHparams& rope, double base, RopeSpec* spec) {
  double low = YarnCorrection(rope.yarn_beta_fast, spec->dims, base, rope.original_context);
  double high = YarnCorrection(rope.yarn_beta_slow, spec->dims, base, rope.original_context);
  if (rope.yarn_truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, spec->dims - 1.0);
  for (size_t j = 0; j < spec->frequencies.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double extrapolate = (1 - ramp) * rope.yarn_ext_factor;
    const double theta = spec->frequencies[j];
    spec->frequencies[j] = theta * extrapolate + theta / rope.factor * (1 - extrapolate);
  }
  spec->magnitude = rope.attn_factor * rope.yarn_attn_factor * (1 + 0.1 * std::log(rope.factor));
}

}  // namespace

Result<RopeSpec> MakeRope(RopeKind kind, const manifest::RopeHparams& rope, double base,
                          const std::vector<float>& factors) {
  RopeSpec spec;
  spec.kind = kind;
  spec.dims = static_cast<int32_t>(rope.dims);
  if (kind == RopeKind::kNone) return spec;
  if (spec.dims < 2 || spec.dims % 2 != 0)
    return Corrupt("rope.dimension_count {}: must be even and positive", spec.dims);
  if (!(base > 1) || !std::isfinite(base)) return Corrupt("rope.freq_base {}: must be above 1", base);
  if (!(rope.factor >= 1) || !std::isfinite(rope.factor)) {
    return Corrupt("rope.scaling.factor {}: must be at least 1", rope.factor);
  }
  spec.frequencies.resize(static_cast<size_t>(spec.dims / 2));
  for (size_t j = 0; j < spec.frequencies.size(); ++j) {
    spec.frequencies[j] = std::pow(base, -2.0 * static_cast<double>(j) / spec.dims);
    if (!factors.empty()) {
      if (!(factors[j] > 0))
        return Corrupt("tensor rope_freqs.weight: factor {} of pair {} must be positive", factors[j], j);
      spec.frequencies[j] /= factors[j];
    }
  }
  switch (rope.scaling) {
    case manifest::RopeScaling::kNone: break;
    case manifest::RopeScaling::kLinear:
      for (double& f : spec.frequencies) f /= rope.factor;
      break;
    case manifest::RopeScaling::kYarn:
      if (rope.original_context < 1) return Corrupt("rope.scaling.original_context_length is 0; YaRN needs it");
      ApplyYarn(rope, base, &spec);
      break;
    case manifest::RopeScaling::kLongRope:
      return Unsupported("rope.scaling.type longrope is not implemented; use a file with none, linear or yarn scaling");
  }
  return spec;
}

void FillRopeRow(const RopeSpec& rope, int32_t position, float* cos_sin) {
  for (size_t j = 0; j < rope.frequencies.size(); ++j) {
    const double angle = position * rope.frequencies[j];
    cos_sin[2 * j] = static_cast<float>(std::cos(angle) * rope.magnitude);
    cos_sin[2 * j + 1] = static_cast<float>(std::sin(angle) * rope.magnitude);
  }
}

}  // namespace bellhop::model
