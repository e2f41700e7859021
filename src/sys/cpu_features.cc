#include "sys/cpu_features.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "sys/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bellhop::sys {
namespace {

constexpr bool Bit(uint64_t value, int bit) { return (value >> bit & 1) != 0; }

// XCR0 state components (Intel SDM volume 1, 13.1).
constexpr uint64_t kXcr0Avx = 0x6;      // XMM, YMM
constexpr uint64_t kXcr0Avx512 = 0xe6;  // and opmask, upper ZMM, ZMM16-31
constexpr uint64_t kXcr0Amx = 0x60000;  // TILECFG, TILEDATA
constexpr bool HasAll(uint64_t value, uint64_t mask) { return (value & mask) == mask; }

bool CpuReportsAmx(const CpuidSnapshot& s) { return Bit(s.leaf7.edx, 24) && HasAll(s.xcr0, kXcr0Amx); }

std::string Trimmed(const char* text) {
  std::string out(text);
  const size_t begin = out.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return out.substr(begin, out.find_last_not_of(' ') - begin + 1);
}

#if defined(__x86_64__)
uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux saves the 8 KiB tile state only for processes that asked (Documentation/arch/x86/xstate.rst).
bool RequestAmxPermission() {
  constexpr int kGetXcompPerm = 0x1022, kReqXcompPerm = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kReqXcompPerm, kTileData) != 0) return false;
  uint64_t granted = 0;
  return syscall(SYS_arch_prctl, kGetXcompPerm, &granted) == 0 && Bit(granted, kTileData);
}

CpuidLeaf Leaf(uint32_t leaf, uint32_t sub_leaf) {
  CpuidLeaf r;
  __cpuid_count(leaf, sub_leaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

std::string BrandString() {
  if (Leaf(0x80000000u, 0).eax < 0x80000004u) return "";
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const CpuidLeaf leaf = Leaf(0x80000002u + i, 0);
    std::memcpy(brand + 16 * i, &leaf, sizeof leaf);
  }
  return Trimmed(brand);
}
#endif

std::string AvailableIsas(const CpuCaps& caps) {
  std::string out;
  for (int i = 0; i <= static_cast<int>(caps.isa); ++i) {
    out += IsaName(static_cast<Isa>(i));
    out += ", ";
  }
  return out + "auto";
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kReference: return "reference";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "reference";
}

CpuidSnapshot ReadCpuid() {
  CpuidSnapshot s;
#if defined(__x86_64__)
  s.max_leaf = Leaf(0, 0).eax;
  s.model_name = BrandString();
  if (s.max_leaf >= 1) s.leaf1 = Leaf(1, 0);
  if (s.max_leaf >= 7) {
    s.leaf7 = Leaf(7, 0);
    if (s.leaf7.eax >= 1) s.leaf7_1 = Leaf(7, 1);
  }
  if (Bit(s.leaf1.ecx, 27)) s.xcr0 = ReadXcr0();
  if (CpuReportsAmx(s)) s.amx_granted = RequestAmxPermission();
#endif
  return s;
}

CpuCaps CapsFromCpuid(const CpuidSnapshot& s) {
  CpuCaps caps;
  caps.model_name = s.model_name;
  const bool osxsave = Bit(s.leaf1.ecx, 27);
  const bool avx = osxsave && HasAll(s.xcr0, kXcr0Avx) && Bit(s.leaf1.ecx, 28);
  const bool avx2 = avx && Bit(s.leaf1.ecx, 12) && Bit(s.leaf1.ecx, 29) && Bit(s.leaf7.ebx, 5);
  if (!avx2) return caps;
  caps.isa = Isa::kAvx2;
  const bool avx512 = HasAll(s.xcr0, kXcr0Avx512) && Bit(s.leaf7.ebx, 16) && Bit(s.leaf7.ebx, 17) &&
                      Bit(s.leaf7.ebx, 30) && Bit(s.leaf7.ebx, 31);
  if (!avx512) return caps;
  caps.isa = Isa::kAvx512;
  caps.avx512_vbmi = Bit(s.leaf7.ecx, 1);
  caps.avx512_bytes = caps.avx512_vbmi && Bit(s.leaf7.ecx, 8) && Bit(s.leaf7.ebx, 8);
  caps.avx512_vnni = Bit(s.leaf7.ecx, 11);
  caps.avx512_fp16 = Bit(s.leaf7.edx, 23);
  caps.fast_gathers = caps.avx512_fp16;
  caps.avx512_bf16 = Bit(s.leaf7_1.eax, 5);
  const bool amx = CpuReportsAmx(s) && s.amx_granted;
  caps.amx_bf16 = amx && Bit(s.leaf7.edx, 22);
  caps.amx_int8 = amx && Bit(s.leaf7.edx, 25);
  if (caps.amx_bf16 && caps.avx512_bf16) caps.isa = Isa::kAmx;
  return caps;
}

CpuCaps DetectCpu() {
  static const CpuCaps caps = CapsFromCpuid(ReadCpuid());
  return caps;
}

Result<CpuCaps> LimitIsa(const CpuCaps& caps, std::string_view name) {
  if (name == "auto") return caps;
  for (const Isa isa : kAllIsas) {
    if (name != IsaName(isa)) continue;
    if (isa > caps.isa) {
      return Unsupported("ISA '{}' cannot be used: this CPU ({}) or its operating system lacks it; available: {}", name,
                         caps.model_name.empty() ? "model unknown" : caps.model_name, AvailableIsas(caps));
    }
    if (isa == caps.isa) return caps;
    CpuCaps lowered;  // the finer features all build on AVX-512
    if (isa == Isa::kAvx512) lowered = caps;
    lowered.isa = isa;
    lowered.amx_bf16 = lowered.amx_int8 = false;
    lowered.model_name = caps.model_name;
    return lowered;
  }
  return InvalidArgument("unknown ISA '{}'; available on this CPU: {}", name, AvailableIsas(caps));
}

}  // namespace bellhop::sys
