#include "engine/process.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>

#include "cuda/device_info.h"
#include "sys/clock.h"
#include "sys/cpu_features.h"
#include "sys/file_io.h"
#include "sys/host_info.h"
#include "sys/mapping_faults.h"
#include "sys/signals.h"
#include "sys/terminal.h"
#include "sys/topology.h"

namespace bellhop::engine {
namespace {

sys::StandardStream ToSys(Stream stream) {
  return stream == Stream::kIn    ? sys::StandardStream::kIn
         : stream == Stream::kOut ? sys::StandardStream::kOut
                                  : sys::StandardStream::kErr;
}

}  // namespace

bool IsTerminal(Stream stream) { return sys::IsTerminal(ToSys(stream)); }
bool WaitForInput(int timeout_ms) { return sys::WaitForInput(timeout_ms); }
int TerminalColumns(Stream stream) { return sys::TerminalColumns(ToSys(stream)); }

Interrupts::Interrupts(Kind kind)
    : scope_(std::make_unique<sys::InterruptScope>(kind == Kind::kService ? std::vector<int>{SIGINT, SIGTERM}
                                                                          : std::vector<int>{SIGINT, SIGPIPE})) {}
Interrupts::~Interrupts() = default;
bool Interrupts::interrupted() const { return scope_->interrupted(); }
const std::atomic<bool>& Interrupts::flag() const { return scope_->flag(); }
void Interrupts::Rearm() { scope_->Rearm(); }

void ExplainMappingFaults(const char* prefix, int exit_code) { sys::ExplainMappingFaults(prefix, exit_code); }

Result<std::string> ReadText(const std::string& path, uint64_t max_bytes) {
  return path == "-" ? sys::ReadStdin(max_bytes) : sys::ReadFile(path, max_bytes);
}

Status WriteWholeFile(const std::string& path, std::string_view content) { return sys::WriteFileAtomic(path, content); }

Status CheckFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return Status();
  return NotFound("{}: cannot be written: there is no folder {}; make it first", path, folder.string());
}

std::string ExecutableDirectory() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : program.parent_path().string();
}

uint64_t PeakResidentBytes() { return sys::ReadProcessMemory().peak_resident_bytes; }

std::string UtcTimestamp() {
  const auto now = static_cast<std::time_t>(sys::UnixSeconds());
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

MachineSummary DescribeMachine() {
  const sys::Topology topology = sys::ReadTopology();
  const sys::CpuCaps caps = sys::DetectCpu();
  MachineSummary machine;
  machine.cpu = sys::ReadHostInfo(topology).cpu_model;
  // AMX is named among the features, so that machines with and without the permission share a name.
  const std::string_view vectors = sys::IsaName(std::min(caps.isa, sys::Isa::kAvx512));
  machine.isa = std::string(vectors);
  if (caps.avx512_vnni) machine.isa += ",vnni";
  if (caps.avx512_bf16) machine.isa += ",bf16";
  if (caps.avx512_fp16) machine.isa += ",fp16";
  if (caps.amx_bf16 || caps.amx_int8) machine.isa += ",amx";
  machine.cores = topology.physical_cores;
  machine.slug = fmt::format("{}-{}c", vectors, machine.cores);
  if (const auto devices = cuda::ListDevices(); devices.ok() && !devices->empty()) {
    machine.gpu = devices->front().name;
    machine.driver = cuda::FormatCudaVersion(devices->front().driver_version);
  }
  return machine;
}

}  // namespace bellhop::engine
