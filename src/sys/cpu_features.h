// What the CPU can do, asked once at start. Operating-system state (XCR0, AMX permission) is part of the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bellhop::sys {

// Kernel bundles, worst to best. kAvx2 = AVX2 + FMA + F16C; kAvx512 = F, BW, DQ, VL and kAvx2; kAmx = AMX-TILE,
// AMX-BF16, AVX512_BF16 and kAvx512, with the operating system's permission. Few kernel families have rows for kAmx;
// the others use kAvx512 there.
enum class Isa : uint8_t { kReference, kAvx2, kAvx512, kAmx };
inline constexpr Isa kAllIsas[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};

std::string_view IsaName(Isa isa);  // "reference", "avx2", "avx512", "amx"

struct CpuCaps {
  Isa isa = Isa::kReference;  // best bundle to use
  // Finer features, for reports and later kernels.
  bool avx512_vnni = false, avx512_bf16 = false, avx512_fp16 = false, avx512_vbmi = false;
  bool avx512_bytes = false;  // AVX512_VBMI, GFNI and BMI2: lookups and rearrangement of bytes and bits
  // A 16-lane gather costs less than its loads one by one. Told by FP16: the CPUs before it are slow at gathers, by
  // design or by the mitigation of gather data sampling.
  bool fast_gathers = false;
  bool amx_bf16 = false, amx_int8 = false;  // usable: the permission was granted
  std::string model_name;
};

CpuCaps DetectCpu();

// `caps` lowered to the named bundle ("reference", "avx2", "avx512", "amx", "auto"). Finer features above the bundle
// are cleared. kInvalidArgument for an unknown name, kUnsupported for one that this CPU lacks; both list what there is.
Result<CpuCaps> LimitIsa(const CpuCaps& caps, std::string_view name);

}  // namespace bellhop::sys
