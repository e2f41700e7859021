#include "cuda/device_info.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace bellhop::cuda {
namespace {

// One test for the three kinds of machine: a build without CUDA, one with CUDA on a machine without a GPU, and a GPU.
TEST(DeviceInfoTest, ListsDevicesOrSaysWhyNot) {
  const Result<std::vector<DeviceInfo>> devices = ListDevices();
  if (!BuiltWithCuda()) {
    ASSERT_FALSE(devices.ok());
    EXPECT_EQ(devices.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(devices.status().message().find("built without CUDA"), std::string::npos);
    EXPECT_EQ(ProbeDevice(DeviceId(0)).status().code(), StatusCode::kUnsupported);
    return;
  }
  if (!devices.ok()) {
    EXPECT_EQ(devices.status().code(), StatusCode::kNotFound) << devices.status().ToString();
    EXPECT_NE(devices.status().message().find("--device cpu"), std::string::npos) << devices.status().ToString();
    EXPECT_FALSE(ProbeDevice(DeviceId(0)).ok());
    return;
  }
  ASSERT_FALSE(devices->empty());
  std::set<std::string> pci_ids;
  for (const DeviceInfo& info : *devices) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_GE(info.compute_major, 5);
    EXPECT_GT(info.sm_count, 0);
    EXPECT_GT(info.l2_bytes, 0u);
    EXPECT_GT(info.total_bytes, uint64_t{1} << 28);
    EXPECT_LE(info.free_bytes, info.total_bytes);
    EXPECT_GE(info.memory_gbps, 0);
    EXPECT_EQ(info.free_bytes == 0, !info.note.empty()) << info.note;
    EXPECT_TRUE(pci_ids.insert(info.pci_id).second) << info.pci_id;
    EXPECT_GE(info.driver_version, info.runtime_version / 1000 * 1000);
    const Result<ProbeResult> probe = ProbeDevice(info.id);
    ASSERT_TRUE(probe.ok()) << probe.status().ToString();
    EXPECT_EQ(probe->kernel_arch / 100, info.compute_major);
    EXPECT_LE(probe->kernel_arch, info.compute_major * 100 + info.compute_minor * 10);
  }
  EXPECT_EQ(ProbeDevice(DeviceId(static_cast<int>(devices->size()))).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ProbeDevice(DeviceId(-1)).status().code(), StatusCode::kInvalidArgument);
}

TEST(DeviceInfoTest, VersionsAsPeopleWriteThem) {
  EXPECT_EQ(FormatCudaVersion(13000), "13.0");
  EXPECT_EQ(FormatCudaVersion(12080), "12.8");
}

}  // namespace
}  // namespace bellhop::cuda
