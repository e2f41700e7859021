#include "sys/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "sys/cpuid.h"

namespace bellhop::sys {
namespace {

constexpr uint32_t B(int bit) { return 1u << bit; }

// A Sapphire-Rapids-like server with everything enabled.
CpuidSnapshot FullServer() {
  CpuidSnapshot s;
  s.max_leaf = 0x20;
  s.leaf1.ecx = B(12) | B(27) | B(28) | B(29);
  s.leaf7.eax = 2;
  s.leaf7.ebx = B(5) | B(8) | B(16) | B(17) | B(30) | B(31);
  s.leaf7.ecx = B(1) | B(8) | B(11);
  s.leaf7.edx = B(22) | B(23) | B(24) | B(25);
  s.leaf7_1.eax = B(4) | B(5);
  s.xcr0 = 0x602e7;
  s.amx_granted = true;
  s.model_name = "Test CPU";
  return s;
}

TEST(CpuFeaturesTest, FullServerHasEverything) {
  const CpuCaps caps = CapsFromCpuid(FullServer());
  EXPECT_EQ(caps.isa, Isa::kAmx);
  EXPECT_TRUE(caps.avx512_vnni && caps.avx512_bf16 && caps.avx512_fp16 && caps.avx512_vbmi);
  EXPECT_TRUE(caps.avx512_bytes && caps.fast_gathers);
  EXPECT_TRUE(caps.amx_bf16 && caps.amx_int8);
  EXPECT_EQ(caps.model_name, "Test CPU");
}

TEST(CpuFeaturesTest, OperatingSystemStateDecides) {
  CpuidSnapshot s = FullServer();
  s.xcr0 = 0x7;  // YMM saved, ZMM and tiles not
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx2);
  EXPECT_FALSE(CapsFromCpuid(s).avx512_vnni);
  EXPECT_FALSE(CapsFromCpuid(s).amx_bf16);

  s.xcr0 = 0xa7;  // the upper halves of ZMM0-15 are not saved
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx2);

  s.xcr0 = 0x3;  // XMM only
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kReference);

  s = FullServer();
  s.leaf1.ecx &= ~B(27);  // no OSXSAVE: XCR0 means nothing
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kReference);
}

TEST(CpuFeaturesTest, BytesNeedEveryPart) {
  CpuidSnapshot s = FullServer();
  s.leaf7.ecx &= ~B(1);  // AVX512_VBMI
  EXPECT_FALSE(CapsFromCpuid(s).avx512_bytes);
  s = FullServer();
  s.leaf7.ecx &= ~B(8);  // GFNI
  EXPECT_FALSE(CapsFromCpuid(s).avx512_bytes);
  EXPECT_TRUE(CapsFromCpuid(s).avx512_vbmi);
  s = FullServer();
  s.leaf7.ebx &= ~B(8);  // BMI2
  EXPECT_FALSE(CapsFromCpuid(s).avx512_bytes);
  s = FullServer();
  s.xcr0 = 0x7;  // ZMM not saved
  EXPECT_FALSE(CapsFromCpuid(s).avx512_bytes);
  s = FullServer();
  s.leaf7.edx &= ~B(23);  // AVX512_FP16
  EXPECT_TRUE(CapsFromCpuid(s).avx512_bytes);
  EXPECT_FALSE(CapsFromCpuid(s).fast_gathers);
  EXPECT_TRUE(LimitIsa(CapsFromCpuid(FullServer()), "avx512")->avx512_bytes);
  EXPECT_FALSE(LimitIsa(CapsFromCpuid(FullServer()), "avx2")->avx512_bytes);
}

TEST(CpuFeaturesTest, AmxNeedsPermissionAndTileState) {
  CpuidSnapshot s = FullServer();
  s.amx_granted = false;
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx512);
  EXPECT_FALSE(CapsFromCpuid(s).amx_bf16 || CapsFromCpuid(s).amx_int8);

  s = FullServer();
  s.xcr0 = 0x202e7;  // TILECFG without TILEDATA
  EXPECT_FALSE(CapsFromCpuid(s).amx_bf16);
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx512);
}

TEST(CpuFeaturesTest, AmxNeedsBf16TilesAndBf16Vectors) {
  EXPECT_EQ(CapsFromCpuid(FullServer()).isa, Isa::kAmx);

  CpuidSnapshot s = FullServer();
  s.leaf7.edx &= ~B(22);  // AMX-BF16
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx512);
  EXPECT_TRUE(CapsFromCpuid(s).amx_int8);

  s = FullServer();
  s.leaf7.edx &= ~B(24);  // AMX-TILE
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx512);

  s = FullServer();
  s.leaf7_1.eax &= ~B(5);  // AVX512_BF16
  EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx512);
}

TEST(CpuFeaturesTest, BundlesNeedAllTheirParts) {
  for (const int bit : {12, 28, 29}) {  // FMA, AVX, F16C
    CpuidSnapshot s = FullServer();
    s.leaf1.ecx &= ~B(bit);
    EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kReference) << bit;
  }
  for (const int bit : {16, 17, 30, 31}) {  // AVX-512 F, DQ, BW, VL
    CpuidSnapshot s = FullServer();
    s.leaf7.ebx &= ~B(bit);
    EXPECT_EQ(CapsFromCpuid(s).isa, Isa::kAvx2) << bit;
  }
}

TEST(CpuFeaturesTest, EmptySnapshotIsReference) { EXPECT_EQ(CapsFromCpuid(CpuidSnapshot{}).isa, Isa::kReference); }

// The kernel lists only features that it has enabled: an independent source for the same answer.
TEST(CpuFeaturesTest, AgreesWithProcCpuinfo) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags, model;
  while (std::getline(file, line) && (flags.empty() || model.empty())) {
    if (line.rfind("flags", 0) == 0) flags = line + " ";
    if (line.rfind("model name", 0) == 0) model = line.substr(line.find(':') + 2);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags";
  const auto has = [&](const std::string& name) { return flags.find(" " + name + " ") != std::string::npos; };
  const CpuCaps caps = DetectCpu();
  const bool avx2 = has("avx2") && has("fma") && has("f16c");
  const bool avx512 = avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
  // Tiles need a permission besides, which /proc/cpuinfo does not know.
  const bool amx = avx512 && has("avx512_bf16") && has("amx_tile") && has("amx_bf16") && caps.amx_bf16;
  EXPECT_EQ(caps.isa, amx ? Isa::kAmx : avx512 ? Isa::kAvx512 : avx2 ? Isa::kAvx2 : Isa::kReference);
  EXPECT_EQ(caps.avx512_vnni, avx512 && has("avx512_vnni"));
  EXPECT_EQ(caps.avx512_bf16, avx512 && has("avx512_bf16"));
  EXPECT_EQ(caps.avx512_fp16, avx512 && has("avx512_fp16"));
  EXPECT_EQ(caps.avx512_vbmi, avx512 && has("avx512vbmi"));
  EXPECT_EQ(caps.avx512_bytes, avx512 && has("avx512vbmi") && has("gfni") && has("bmi2"));
  EXPECT_TRUE(has("amx_bf16") || !caps.amx_bf16);
  EXPECT_EQ(caps.model_name, model);
}

TEST(CpuFeaturesTest, LimitIsaLowersAndClearsFinerFeatures) {
  const CpuCaps caps = CapsFromCpuid(FullServer());
  Result<CpuCaps> avx2 = LimitIsa(caps, "avx2");
  ASSERT_TRUE(avx2.ok());
  EXPECT_EQ(avx2->isa, Isa::kAvx2);
  EXPECT_FALSE(avx2->avx512_vnni || avx2->amx_bf16 || avx2->amx_int8);
  EXPECT_EQ(avx2->model_name, "Test CPU");
  EXPECT_EQ(LimitIsa(caps, "reference")->isa, Isa::kReference);
  Result<CpuCaps> avx512 = LimitIsa(caps, "avx512");
  EXPECT_EQ(avx512->isa, Isa::kAvx512);
  EXPECT_TRUE(avx512->avx512_vnni && avx512->avx512_bf16);
  EXPECT_FALSE(avx512->amx_bf16 || avx512->amx_int8);
  for (const char* name : {"amx", "auto"}) {
    EXPECT_EQ(LimitIsa(caps, name)->isa, Isa::kAmx) << name;
    EXPECT_TRUE(LimitIsa(caps, name)->amx_bf16) << name;
  }
}

TEST(CpuFeaturesTest, LimitIsaErrorsListWhatThereIs) {
  CpuidSnapshot s = FullServer();
  s.xcr0 = 0x7;
  const CpuCaps caps = CapsFromCpuid(s);
  const Result<CpuCaps> lacking = LimitIsa(caps, "avx512");
  ASSERT_FALSE(lacking.ok());
  EXPECT_EQ(lacking.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(lacking.status().message().find("available: reference, avx2, auto"), std::string::npos)
      << lacking.status().message();
  for (const char* name : {"", "AVX2", "sse", "avx51"}) {
    const Result<CpuCaps> unknown = LimitIsa(caps, name);
    ASSERT_FALSE(unknown.ok()) << name;
    EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(unknown.status().message().find("reference, avx2, auto"), std::string::npos);
  }
}

}  // namespace
}  // namespace bellhop::sys
