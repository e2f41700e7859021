// What experts and feed-forward parts make of their gate and up products.
#pragma once

#include "kernels/cuda/decode_step.h"

namespace bellhop::kernels {

// limit 0: none.
template <typename Args>
__device__ __forceinline__ void Clamp(const Args& args, float* gate, float* up) {
  if (args.limit > 0) {
    *gate = fminf(*gate, args.limit);
    *up = fminf(fmaxf(*up, -args.limit), args.limit);
  }
}

// Exact as the CPU's, up to expf. Args: ExpertArgs and what names its activation alike.
template <typename Args>
__device__ __forceinline__ float Activate(const Args& args, float gate, float up) {
  if (args.activation == DeviceActivation::kGeGlu) {
    const float cube = gate * gate * gate;
    const float inner = 0.7978845608028654f * (gate + 0.044715f * cube);
    return 0.5f * gate * (1.0f + tanhf(inner)) * up;
  }
  Clamp(args, &gate, &up);
  return gate / (1.0f + expf(-args.alpha * gate)) * (up + args.beta);
}

// To some units of f32's last place, for what is rounded to bf16 next.
template <typename Args>
__device__ __forceinline__ float ActivateFast(const Args& args, float gate, float up) {
  if (args.activation == DeviceActivation::kGeGlu) return Activate(args, gate, up);
  Clamp(args, &gate, &up);
  return __fdividef(gate, 1.0f + __expf(-args.alpha * gate)) * (up + args.beta);
}

}  // namespace bellhop::kernels
