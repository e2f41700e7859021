#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "engine/calibrate.h"
#include "engine/calibration_file.h"
#include "sys/file_io.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::engine {
namespace {

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Calibration Example() {
  cuda::DeviceInfo gpu;
  gpu.name = "Test GPU";
  gpu.pci_id = "0000:17:00.0";
  gpu.driver_version = 13000;
  Calibration calibration;
  calibration.date = "2026-01-02T03:04:05Z";
  calibration.machine = IdentifyMachine("Test CPU \"9000\"", 16, &gpu);
  calibration.threads = 15;
  calibration.rates = {.hbm_gbps = 4000.5,
                       .dram_gbps = 300,
                       .pcie_gbps = 52.25,
                       .both_dram_gbps = 250,
                       .both_pcie_gbps = 40,
                       .sync_us = 7.125};
  calibration.notes = {"a note"};
  return calibration;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(CalibrationFileTest, IsReadAsWritten) {
  const sys::TempDir dir;
  // Missing folders are made.
  const config::CalibrationConfig where{.path = dir.path() + "/cache/bellhop/calibration.json"};
  const Calibration written = Example();
  for (int i = 0; i < 2; ++i) {
    const Status status = WriteCalibration(where, written);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  const auto read = ReadCalibration(where.path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->date, written.date);
  EXPECT_EQ(read->machine, written.machine);
  EXPECT_EQ(read->threads, written.threads);
  EXPECT_EQ(read->notes, written.notes);
  EXPECT_EQ(read->rates.hbm_gbps, 4000.5);
  EXPECT_EQ(read->rates.dram_gbps, 300);
  EXPECT_EQ(read->rates.pcie_gbps, 52.25);
  EXPECT_EQ(read->rates.both_dram_gbps, 250);
  EXPECT_EQ(read->rates.both_pcie_gbps, 40);
  EXPECT_EQ(read->rates.sync_us, 7.125);
  // Nothing else is left in the folder.
  const std::filesystem::directory_iterator files(dir.path() + "/cache/bellhop");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(CalibrationFileTest, CorruptFilesNameFileAndField) {
  const sys::TempDir dir;
  const config::CalibrationConfig where{.path = dir.path() + "/c.json"};
  ASSERT_TRUE(WriteCalibration(where, Example()).ok());
  const std::string good = *sys::ReadFile(where.path, 1 << 20);
  const struct {
    const char *from, *to, *field;
  } cases[] = {
      {"{", "[", "JSON"},
      {"\"date\"", "\"dat\"", "date is missing"},
      {"\"threads\": 15", "\"threads\": -1", "threads"},
      {"\"cores\": 16", "\"cores\": \"16\"", "machine.cores"},
      {"\"gpu_pci\"", "\"pci\"", "machine.gpu_pci is missing"},
      {"\"Test GPU\"", "7", "machine.gpu"},
      {"4000.5", "null", "rates.hbm_gbps"},
      {"4000.5", "1e300", "rates.hbm_gbps"},
      {"52.25", "-52.25", "rates.pcie_gbps"},
      {"300.0", "0.0", "rates.dram_gbps"},
      {"\"sync_us\"", "\"sync\"", "rates.sync_us is missing"},
      {"\"a note\"", "1", "notes"},
      {"\"machine\": {", "\"machine\": 1, \"x\": {", "machine"},
  };
  for (const auto& c : cases) {
    dir.Write("c.json", Replaced(good, c.from, c.to));
    const auto read = ReadCalibration(where.path);
    ASSERT_FALSE(read.ok()) << c.from;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt) << c.from;
    EXPECT_TRUE(Contains(read.status().message(), where.path)) << read.status().ToString();
    EXPECT_TRUE(Contains(read.status().message(), c.field)) << read.status().ToString();
  }
  for (size_t size = 0; size < good.size() - 2; size += 7) {
    dir.Write("c.json", good.substr(0, size));
    EXPECT_EQ(ReadCalibration(where.path).status().code(), StatusCode::kCorrupt) << size;
  }
  dir.Write("c.json", Replaced(good, "\"version\": 1", "\"version\": 2"));
  EXPECT_EQ(ReadCalibration(where.path).status().code(), StatusCode::kUnsupported);
}

TEST(CalibrationFileTest, RatesAreThoseOfThisMachineOrEstimates) {
  const sys::TempDir dir;
  config::CalibrationConfig where{.path = dir.path() + "/c.json"};
  const Calibration example = Example();
  const plan::MachineConstants estimates = plan::DefaultConstants(1000);
  const auto expect_estimates = [&](const MachineIdentity& machine, std::string_view note) {
    const auto rates = FindRates(where, machine, 1000);
    ASSERT_TRUE(rates.ok()) << rates.status().ToString();
    EXPECT_FALSE(rates->measured);
    EXPECT_EQ(rates->constants.hbm_gbps, estimates.hbm_gbps);
    ASSERT_EQ(rates->notes.size(), 1u);
    EXPECT_TRUE(Contains(rates->notes[0], note)) << rates->notes[0];
    where.is_explicit = true;
    const auto named = FindRates(where, machine, 1000);
    where.is_explicit = false;
    EXPECT_FALSE(named.ok());
    EXPECT_TRUE(Contains(named.status().message(), "--calibration")) << named.status().ToString();
  };
  expect_estimates(example.machine, "doctor --calibrate");  // no file
  ASSERT_TRUE(WriteCalibration(where, example).ok());
  const auto rates = FindRates(where, example.machine, 1000);
  ASSERT_TRUE(rates.ok());
  EXPECT_TRUE(rates->measured);
  EXPECT_EQ(rates->constants.hbm_gbps, 4000.5);
  EXPECT_EQ(rates->notes, (std::vector<std::string>{"calibration: a note"}));

  MachineIdentity other = example.machine;
  other.gpu_pci = "0000:18:00.0";
  expect_estimates(other, "of another machine");
  EXPECT_EQ(ReadCalibrationOf(where.path, other).status().code(), StatusCode::kInvalidArgument);
  expect_estimates(IdentifyMachine(example.machine.cpu, 16, nullptr), "no GPU");
  dir.Write("c.json", "{}");
  expect_estimates(example.machine, "version is missing");

  // The CPU's rate alone.
  Calibration cpu = example;
  cpu.rates = {.dram_gbps = 77};
  ASSERT_TRUE(WriteCalibration(where, cpu).ok());
  const auto mixed = FindRates(where, example.machine, 1000);
  ASSERT_TRUE(mixed.ok());
  EXPECT_FALSE(mixed->measured);
  EXPECT_EQ(mixed->constants.dram_gbps, 77);
  EXPECT_EQ(mixed->constants.hbm_gbps, estimates.hbm_gbps);
}

TEST(CalibrationFileTest, WhatCannotBeWrittenIsNamed) {
  const sys::TempDir dir;
  const std::string file = dir.Write("file", "x");
  const auto fails = [](const config::CalibrationConfig& where) {
    const Status status = WriteCalibration(where, Example());
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(PrepareCalibrationFolder(where).code(), status.code());
    return std::string(status.message());
  };
  EXPECT_TRUE(Contains(fails({}), "XDG_CACHE_HOME"));
  const std::string below = fails({.path = file + "/bellhop/calibration.json"});
  EXPECT_TRUE(Contains(below, file + "/bellhop") && Contains(below, "--calibration FILE")) << below;
  EXPECT_TRUE(Contains(fails({.path = dir.path() + "/none/c.json", .is_explicit = true}), "/none"));
  const Status folder = WriteCalibration({.path = dir.path(), .is_explicit = true}, Example());
  EXPECT_TRUE(Contains(folder.message(), "is a directory")) << folder.ToString();
}

TEST(CalibrateTest, TheCpuIsMeasuredEverywhere) {
  const auto devices = cuda::ListDevices();
  const auto calibration =
      Calibrate({.threads = 1, .max_buffer_bytes = uint64_t{64} << 20, .passes = 2, .both_seconds = 0.05});
  ASSERT_TRUE(calibration.ok()) << calibration.status().ToString();
  EXPECT_GT(calibration->rates.dram_gbps, 0);
  EXPECT_EQ(calibration->threads, 1);
  EXPECT_FALSE(calibration->machine.cpu.empty());
  EXPECT_EQ(DescribeRates(*calibration).size(), 6u);
  if (devices.ok()) {
    EXPECT_EQ(calibration->machine.gpu, devices->front().name);
    EXPECT_GT(calibration->rates.hbm_gbps, 0);
    EXPECT_GT(calibration->rates.pcie_gbps, 0);
    EXPECT_GT(calibration->rates.both_dram_gbps, 0);
    EXPECT_GT(calibration->rates.both_pcie_gbps, 0);
    EXPECT_GT(calibration->rates.sync_us, 0);
    return;
  }
  EXPECT_EQ(calibration->machine.gpu, "");
  EXPECT_EQ(calibration->rates.hbm_gbps, 0);
  EXPECT_EQ(calibration->rates.both_dram_gbps, 0);
  ASSERT_FALSE(calibration->notes.empty());
  EXPECT_TRUE(Contains(calibration->notes.back(), devices.status().message())) << calibration->notes.back();
  EXPECT_FALSE(Calibrate({.threads = -1}).ok());
  EXPECT_FALSE(Calibrate({.passes = 0}).ok());
}

}  // namespace
}  // namespace bellhop::engine
