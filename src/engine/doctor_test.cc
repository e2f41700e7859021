#include "engine/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "base/units.h"
#include "engine/doctor_checks.h"
#include "sys/fake_machine_for_test.h"

namespace bellhop::engine {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::string Repo(const std::string& path) { return std::string(BELLHOP_SOURCE_DIR) + "/" + path; }

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

DoctorLine Find(const std::vector<DoctorLine>& lines, const std::string& group, const std::string& name) {
  for (const DoctorLine& line : lines) {
    if (line.group == group && line.name == name) return line;
  }
  ADD_FAILURE() << "no line " << group << "/" << name;
  return {};
}

// A line is complete, and says what to do exactly when something is to be done.
void ExpectSound(const std::vector<DoctorLine>& lines) {
  for (const DoctorLine& line : lines) {
    SCOPED_TRACE(line.group + "/" + line.name);
    EXPECT_FALSE(line.group.empty());
    EXPECT_FALSE(line.name.empty());
    EXPECT_FALSE(line.value.empty());
    EXPECT_EQ(line.remedy.empty(), line.level == CheckLevel::kOk) << line.remedy;
    EXPECT_EQ(line.value.find('\n'), std::string::npos);
  }
}

TEST(DoctorTest, ThisMachineGetsEveryGroupAndItsMeasurements) {
  const auto report = Diagnose({.measure = true, .threads = 1, .model_path = Repo("models/tiny-moe-q4_0.gguf")});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectSound(report->lines);
  std::set<std::string> groups;
  for (const DoctorLine& line : report->lines) groups.insert(line.group);
  EXPECT_EQ(groups,
            (std::set<std::string>{"CPU", "Memory", "Limits", "Measured", "GPU", "Calibration", "Build", "Model"}));
  EXPECT_GT(report->read_gb_per_s, 0);
  EXPECT_GT(report->pool_round_trip_ns, 0);
  EXPECT_EQ(Find(report->lines, "Model", "supported").level, CheckLevel::kOk);
  EXPECT_EQ(Find(report->lines, "Model", "memory").level, CheckLevel::kOk);
  EXPECT_EQ(Find(report->lines, "Build", "version").value, GetBuildInfo().version);
  EXPECT_GE(Find(report->lines, "Build", "commit").value.size(), 7u);
}

TEST(DoctorTest, NothingIsMeasuredUnasked) {
  const auto report = Diagnose({.measure = false, .threads = 0, .model_path = ""});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->read_gb_per_s, 0);
  for (const DoctorLine& line : report->lines) {
    EXPECT_NE(line.group, "Measured");
    EXPECT_NE(line.group, "Model");
  }
}

TEST(DoctorTest, BadOptionsAreErrors) {
  EXPECT_EQ(Diagnose({.measure = false, .threads = -1, .model_path = ""}).status().code(),
            StatusCode::kInvalidArgument);
  const auto missing = Diagnose({.measure = false, .threads = 1, .model_path = "/nowhere/m.gguf"});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Contains(missing.status().message(), "/nowhere/m.gguf"));
}

TEST(DoctorTest, ALimitedContainerIsExplained) {
  const sys::FakeMachine fake;
  fake.AddServer(2, 4, 2);
  fake.Write("sys/fs/cgroup/cpu.max", "250000 100000");
  fake.Write("sys/fs/cgroup/memory.max", std::to_string(8 * kGiB));
  fake.Write("sys/fs/cgroup/memory.current", "1048576");
  fake.Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  fake.Write("proc/cpuinfo", "model name\t: Test CPU 9000\nflags\t\t: fpu amx_tile avx2");
  MachineFacts facts = GatherMachine(fake.root(), {0, 1, 2, 3, 8});
  facts.caps = {};  // as if the CPU could nothing
  EXPECT_EQ(facts.online_cpus, 16);
  EXPECT_TRUE(facts.cpu_lists_amx);
  EXPECT_EQ(facts.huge_pages.transparent, "never");

  std::vector<DoctorLine> lines;
  CheckCpu(facts, &lines);
  CheckMemory(facts, &lines);
  CheckLimits(facts, true, &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "CPU", "cores").value.substr(0, 27), "4 cores, 5 hardware threads");
  EXPECT_EQ(Find(lines, "CPU", "affinity").value, "5 of 16 CPUs may be used");
  EXPECT_EQ(Find(lines, "CPU", "affinity").level, CheckLevel::kNote);
  EXPECT_EQ(Find(lines, "CPU", "instruction sets").level, CheckLevel::kProblem);
  EXPECT_TRUE(Contains(Find(lines, "CPU", "AMX").remedy, "ARCH_REQ_XCOMP_PERM"));
  EXPECT_EQ(Find(lines, "Memory", "transparent huge pages").level, CheckLevel::kNote);
  EXPECT_EQ(Find(lines, "Limits", "CPU quota").value, "2.5 CPUs of 4 cores");
  EXPECT_EQ(Find(lines, "Limits", "CPU quota").level, CheckLevel::kNote);
  EXPECT_TRUE(Contains(Find(lines, "Limits", "memory limit").value, FormatBytes(8 * kGiB)));
  EXPECT_EQ(Find(lines, "Limits", "locked memory").level, CheckLevel::kNote);

  std::vector<DoctorLine> without_gpu;
  CheckLimits(facts, false, &without_gpu);
  EXPECT_EQ(Find(without_gpu, "Limits", "locked memory").level, CheckLevel::kOk);
  EXPECT_TRUE((DoctorReport{.lines = lines}.problems()));
  EXPECT_FALSE((DoctorReport{.lines = without_gpu}.problems()));
}

TEST(DoctorTest, AnUnlimitedMachineHasNoNotes) {
  MachineFacts facts;
  for (int cpu = 0; cpu < 16; ++cpu) facts.topology.cpus.push_back({.cpu = cpu, .core = cpu});
  facts.topology.physical_cores = facts.online_cpus = 16;
  facts.topology.memory_total_bytes = 128 * kGiB;
  facts.topology.memory_available_bytes = 120 * kGiB;
  facts.topology.memlock_limit_bytes = UINT64_MAX;
  facts.host.cpu_model = "Test CPU 9000";
  facts.caps.isa = sys::Isa::kAmx;
  facts.caps.avx512_vnni = facts.caps.amx_bf16 = true;
  facts.huge_pages.transparent = "madvise";
  std::vector<DoctorLine> lines;
  CheckCpu(facts, &lines);
  CheckMemory(facts, &lines);
  CheckLimits(facts, true, &lines);
  CheckMeasurements(Measurements{.threads = 16, .read_gb_per_s = 96.44, .round_trip_ns = 1900}, {}, &lines);
  ExpectSound(lines);
  for (const DoctorLine& line : lines) EXPECT_EQ(line.level, CheckLevel::kOk) << line.name << ": " << line.value;
  EXPECT_EQ(Find(lines, "CPU", "instruction sets").value, "amx (also avx512, avx2, reference) VNNI");
  EXPECT_EQ(Find(lines, "CPU", "AMX").value, "usable: bf16");
  EXPECT_EQ(Find(lines, "Measured", "memory read bandwidth").value, "96.4 GB/s (16 threads)");
  EXPECT_EQ(Find(lines, "Measured", "worker round trip").value, "1.9 us (16 threads)");
}

TEST(DoctorTest, HugePagesAreExplained) {
  MachineFacts machine;
  machine.host.cpu_model = "Test CPU 9000";
  machine.topology.memory_total_bytes = 64 * kGiB;
  machine.topology.memory_available_bytes = 60 * kGiB;
  machine.topology.numa_nodes = 2;
  machine.huge_pages.transparent = "madvise";
  machine.huge_pages.pools = {{.page_bytes = uint64_t{2} << 20, .total = 20480, .free = 20000}};
  std::vector<DoctorLine> lines;
  CheckCpu(machine, &lines);
  CheckMemory(machine, &lines);
  ExpectSound(lines);
  EXPECT_TRUE(Contains(Find(lines, "CPU", "NUMA nodes").value, "2: workers are spread"));
  EXPECT_TRUE(Contains(Find(lines, "Memory", "transparent huge pages").value, "NUMA nodes"));
  EXPECT_TRUE(Contains(Find(lines, "Memory", "reserved huge pages").value, "20480 of 2.10 MB, 20000 free"));
  EXPECT_EQ(Find(lines, "Memory", "huge page share").level, CheckLevel::kNote);

  ModelFacts model;
  model.path = "m.gguf";
  model.weights = 20 * kGiB;
  const auto words = [&](uint64_t copy) {
    model.expert_copy = copy;
    std::vector<DoctorLine> about;
    CheckModel(model, machine, &about);
    ExpectSound(about);
    return Find(about, "Model", "--hugepages").value;
  };
  EXPECT_TRUE(Contains(words(18 * kGiB), "fits into the reserved pool"));
  machine.huge_pages.pools.clear();
  EXPECT_TRUE(words(18 * kGiB).ends_with(" fits"));
  machine.topology.memory_available_bytes = 10 * kGiB;
  EXPECT_TRUE(Contains(words(18 * kGiB), "does not fit"));
  machine.huge_pages.transparent = "never";
  EXPECT_TRUE(Contains(words(18 * kGiB), "vm.nr_hugepages="));
}

TEST(DoctorTest, MeasurementsThatFailOrAreSlowHaveRemedies) {
  std::vector<DoctorLine> lines;
  CheckMeasurements(Measurements{.threads = 1, .read_gb_per_s = 5, .round_trip_ns = 90e3}, {"cannot pin to CPU 3"},
                    &lines);
  CheckMeasurements(OutOfMemory("no room for the buffer"), {}, &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "Measured", "worker round trip").level, CheckLevel::kNote);
  EXPECT_EQ(Find(lines, "Measured", "worker pool").value, "cannot pin to CPU 3");
  EXPECT_EQ(Find(lines, "Measured", "measurement").level, CheckLevel::kProblem);
}

TEST(DoctorTest, GpusAreListedWithWhatIsWrong) {
  std::vector<DoctorLine> lines;
  CheckGpus({.status = Unsupported("built without CUDA"), .devices = {}, .probes = {}}, &lines);
  EXPECT_TRUE(Contains(Find(lines, "GPU", "devices").remedy, "BELLHOP_CUDA=ON"));
  lines.clear();
  CheckGpus({.status = NotFound("no driver"), .devices = {}, .probes = {}}, &lines);
  EXPECT_TRUE(Contains(Find(lines, "GPU", "devices").remedy, "CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(lines[0].level, CheckLevel::kNote);
  lines.clear();
  CheckGpus({.status = CudaError("error 999"), .devices = {}, .probes = {}}, &lines);
  EXPECT_EQ(lines[0].level, CheckLevel::kProblem);

  cuda::DeviceInfo good;
  good.id = DeviceId(0);
  good.name = "Test GPU";
  good.compute_major = 9;
  good.total_bytes = 24 * kGiB;
  good.free_bytes = 23 * kGiB;
  good.driver_version = 13000;
  cuda::DeviceInfo bad = good;
  bad.id = DeviceId(1);
  bad.compute_major = 7;
  bad.compute_minor = 5;
  bad.note = "the device refused a context";
  GpuFacts facts;
  facts.devices = {good, bad};
  facts.probes.push_back(cuda::ProbeResult{.kernel_arch = 900});
  facts.probes.push_back(Unsupported("no code for sm_75"));
  lines.clear();
  CheckGpus(facts, &lines);
  ExpectSound(lines);
  EXPECT_TRUE(Contains(Find(lines, "GPU", "GPU 0").value, "Test GPU, sm_90"));
  EXPECT_TRUE(Contains(Find(lines, "GPU", "GPU 0").value, "driver for CUDA 13.0"));
  EXPECT_EQ(Find(lines, "GPU", "GPU 0 kernel").value, "runs, compiled for sm_90");
  EXPECT_TRUE(Contains(Find(lines, "GPU", "GPU 1").value, "refused a context"));
  EXPECT_TRUE(Contains(Find(lines, "GPU", "GPU 1 kernel").remedy, "75-real"));
}

TEST(DoctorTest, TheStoredCalibrationIsShown) {
  std::vector<DoctorLine> lines;
  CheckCalibration({}, NotFound("no such file"), &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "Calibration", "stored").value, "none");
  EXPECT_TRUE(Contains(lines[0].remedy, "doctor --calibrate"));
  lines.clear();
  const config::CalibrationConfig named{.path = "c.json", .is_explicit = true};
  CheckCalibration(named, Corrupt("c.json: rates is missing"), &lines);
  ExpectSound(lines);
  EXPECT_TRUE(Contains(lines[0].value, "c.json: rates is missing"));
  lines.clear();
  Calibration calibration{
      .date = "2026-01-01T00:00:00Z", .machine = {}, .threads = 4, .rates = {}, .notes = {"no GPU"}};
  calibration.rates.dram_gbps = 30;
  CheckCalibration(named, calibration, &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "Calibration", "stored").value, "c.json, measured 2026-01-01T00:00:00Z with 4 threads");
  EXPECT_EQ(Find(lines, "Calibration", "host memory, by the CPU").value, "30.0 GB/s");
  EXPECT_EQ(Find(lines, "Calibration", "doorbell").value, "not measured");
  EXPECT_EQ(Find(lines, "Calibration", "when measured").level, CheckLevel::kOk);  // there is no GPU
  lines.clear();
  calibration.machine.gpu = "Test GPU";
  CheckCalibration(named, calibration, &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "Calibration", "when measured").level, CheckLevel::kNote);
}

TEST(DoctorTest, SlowBuildsAreNamed) {
  BuildInfo build{.version = "1", .commit = "abc", .compiler = "12", .build_type = "Debug", .sanitizers = "thread"};
  std::vector<DoctorLine> lines;
  CheckBuild(build, &lines);
  ExpectSound(lines);
  EXPECT_TRUE(Contains(Find(lines, "Build", "type").value, "sanitizers: thread"));
  build.sanitizers = "";
  build.build_type = "Release";
  lines.clear();
  CheckBuild(build, &lines);
  EXPECT_EQ(Find(lines, "Build", "type").level, CheckLevel::kOk);
  EXPECT_EQ(Find(lines, "Build", "CUDA backend").value, "no");
}

TEST(DoctorTest, ModelsFitOrNot) {
  ModelFacts model;
  model.path = "m.gguf";
  model.weights = 40 * kGiB;
  model.cache_and_buffers = kGiB;
  model.context = 8192;
  MachineFacts machine;
  sys::Topology& topology = machine.topology;
  topology.memory_total_bytes = 64 * kGiB;
  const auto memory = [&](uint64_t available, uint64_t limit) {
    topology.memory_available_bytes = available;
    topology.memory_limit_bytes = limit;
    std::vector<DoctorLine> lines;
    CheckModel(model, machine, &lines);
    ExpectSound(lines);
    return Find(lines, "Model", "memory").level;
  };
  EXPECT_EQ(memory(41 * kGiB, 0), CheckLevel::kOk);
  EXPECT_EQ(memory(41 * kGiB - 1, 0), CheckLevel::kNote);
  EXPECT_EQ(memory(20 * kGiB, 32 * kGiB), CheckLevel::kProblem);
  topology.memory_total_bytes = 32 * kGiB;
  EXPECT_EQ(memory(30 * kGiB, 0), CheckLevel::kProblem);
  EXPECT_EQ(memory(0, 0), CheckLevel::kNote);
}

TEST(DoctorTest, ModelFilesAreReadForSupportAndSlowFormats) {
  sys::CpuCaps caps;
  caps.isa = sys::Isa::kAvx2;
  const auto unknown = GatherModel(Repo("tests/data/gguf/ok_all_tensor_types.gguf"), caps, 1);
  ASSERT_TRUE(unknown.ok()) << unknown.status().ToString();
  EXPECT_FALSE(unknown->supported.ok());
  EXPECT_GT(unknown->weights, 0u);
  std::vector<DoctorLine> lines;
  CheckModel(*unknown, GatherMachine(), &lines);
  ExpectSound(lines);
  EXPECT_EQ(Find(lines, "Model", "supported").level, CheckLevel::kProblem);

  const auto shipped = GatherModel(Repo("models/tiny-moe-q4_0.gguf"), caps, 1);
  ASSERT_TRUE(shipped.ok());
  EXPECT_TRUE(shipped->supported.ok());
  EXPECT_LT(shipped->weights, std::filesystem::file_size(Repo("models/tiny-moe-q4_0.gguf")));
  EXPECT_GT(shipped->cache_and_buffers, 0u);
  EXPECT_GT(shipped->context, 0);
  EXPECT_TRUE(shipped->slow_formats.empty());
}

}  // namespace
}  // namespace bellhop::engine
