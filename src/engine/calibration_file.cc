#include "engine/calibration_file.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include <nlohmann/json.hpp>

#include "engine/process.h"
#include "sys/file_io.h"

namespace bellhop::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr double kMaxRate = 1e6;
constexpr const char* kRemedy = "measure again: bellhop doctor --calibrate";

struct RateField {
  const char* name;
  double plan::MachineConstants::*member;
};
constexpr RateField kRates[] = {
    {"hbm_gbps", &plan::MachineConstants::hbm_gbps},
    {"dram_gbps", &plan::MachineConstants::dram_gbps},
    {"pcie_gbps", &plan::MachineConstants::pcie_gbps},
    {"both_dram_gbps", &plan::MachineConstants::both_dram_gbps},
    {"both_pcie_gbps", &plan::MachineConstants::both_pcie_gbps},
    {"sync_us", &plan::MachineConstants::sync_us},
};

// Fields of one file: errors name both.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  Status Wrong(const std::string& field, std::string_view expects) const {
    return Corrupt("{}: {}: expects {}; {}", path_, field, expects, kRemedy);
  }
  Result<const Json*> Find(const Json& object, const std::string& prefix, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) return Corrupt("{}: {}{} is missing; {}", path_, prefix, name, kRemedy);
    return &*found;
  }
  Result<const Json*> Object(const Json& object, const char* name) const {
    BELLHOP_TRY_ASSIGN(const Json* value, Find(object, "", name));
    if (!value->is_object()) return Wrong(name, "an object");
    return value;
  }
  Status Text(const Json& object, const std::string& prefix, const char* name, std::string* out) const {
    BELLHOP_TRY_ASSIGN(const Json* value, Find(object, prefix, name));
    if (!value->is_string()) return Wrong(prefix + name, "a string");
    *out = value->get<std::string>();
    return Status();
  }
  Status Count(const Json& object, const std::string& prefix, const char* name, int* out) const {
    BELLHOP_TRY_ASSIGN(const Json* value, Find(object, prefix, name));
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int>::max());
    if (!value->is_number_unsigned() || value->get<uint64_t>() > kMost) return Wrong(prefix + name, "a count");
    *out = static_cast<int>(value->get<uint64_t>());
    return Status();
  }
  Status Rate(const Json& object, const std::string& prefix, const char* name, double* out) const {
    BELLHOP_TRY_ASSIGN(const Json* value, Find(object, prefix, name));
    const double rate = value->is_number() ? value->get<double>() : -1;
    if (!(rate >= 0 && rate <= kMaxRate)) return Wrong(prefix + name, "a number from 0 to 1000000");
    *out = rate;
    return Status();
  }

 private:
  const std::string& path_;
};

Status Parse(const std::string& path, const std::string& text, Calibration* out) {
  const Reader reader(path);
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return Corrupt("{}: is no calibration (not a JSON object); {}", path, kRemedy);
  int version = 0;
  BELLHOP_TRY(reader.Count(file, "", "version", &version));
  if (version != kVersion) {
    return Unsupported("{}: version {} of the format, this program writes version {}; {}", path, version, kVersion,
                       kRemedy);
  }
  BELLHOP_TRY(reader.Text(file, "", "date", &out->date));
  BELLHOP_TRY(reader.Count(file, "", "threads", &out->threads));
  BELLHOP_TRY_ASSIGN(const Json* machine, reader.Object(file, "machine"));
  BELLHOP_TRY(reader.Text(*machine, "machine.", "cpu", &out->machine.cpu));
  BELLHOP_TRY(reader.Count(*machine, "machine.", "cores", &out->machine.cores));
  BELLHOP_TRY(reader.Text(*machine, "machine.", "gpu", &out->machine.gpu));
  BELLHOP_TRY(reader.Text(*machine, "machine.", "gpu_pci", &out->machine.gpu_pci));
  BELLHOP_TRY(reader.Text(*machine, "machine.", "driver", &out->machine.driver));
  BELLHOP_TRY_ASSIGN(const Json* rates, reader.Object(file, "rates"));
  for (const RateField& rate : kRates) {
    BELLHOP_TRY(reader.Rate(*rates, "rates.", rate.name, &(out->rates.*rate.member)));
  }
  if (out->rates.dram_gbps <= 0) return reader.Wrong("rates.dram_gbps", "a number above 0");
  BELLHOP_TRY_ASSIGN(const Json* notes, reader.Find(file, "", "notes"));
  if (!notes->is_array()) return reader.Wrong("notes", "a list of strings");
  for (const Json& note : *notes) {
    if (!note.is_string()) return reader.Wrong("notes", "a list of strings");
    out->notes.push_back(note.get<std::string>());
  }
  return Status();
}

std::string Describe(const MachineIdentity& machine) {
  std::string text = fmt::format("{}, {} cores", machine.cpu, machine.cores);
  if (machine.gpu.empty()) return text + ", no GPU";
  return fmt::format("{}, {} at PCI {}, driver for CUDA {}", text, machine.gpu, machine.gpu_pci, machine.driver);
}

}  // namespace

nlohmann::ordered_json MachineJson(const MachineIdentity& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"gpu", machine.gpu},
          {"gpu_pci", machine.gpu_pci},
          {"driver", machine.driver}};
}

MachineIdentity IdentifyMachine(std::string cpu, int cores, const cuda::DeviceInfo* gpu) {
  MachineIdentity machine{.cpu = std::move(cpu), .cores = cores, .gpu = {}, .gpu_pci = {}, .driver = {}};
  if (gpu == nullptr) return machine;
  machine.gpu = gpu->name;
  machine.gpu_pci = gpu->pci_id;
  machine.driver = cuda::FormatCudaVersion(gpu->driver_version);
  return machine;
}

std::vector<CalibrationLine> DescribeRates(const Calibration& calibration) {
  const plan::MachineConstants& rates = calibration.rates;
  const auto gbps = [](double rate) {
    return rate > 0 ? fmt::format("{:.1f} GB/s", rate) : std::string("not measured");
  };
  return {
      {"GPU memory", gbps(rates.hbm_gbps)},
      {"host memory, by the CPU", gbps(rates.dram_gbps)},
      {"host memory, by the GPU", gbps(rates.pcie_gbps)},
      {"both at once, the CPU", gbps(rates.both_dram_gbps)},
      {"both at once, the GPU", gbps(rates.both_pcie_gbps)},
      // Without a GPU it is 0 as well.
      {"doorbell", rates.hbm_gbps > 0 ? fmt::format("{:.1f} us", rates.sync_us) : std::string("not measured")},
  };
}

Result<Calibration> ReadCalibration(const std::string& path) {
  BELLHOP_TRY_ASSIGN(const std::string text, sys::ReadFile(path, kMaxFileBytes));
  Calibration calibration;
  BELLHOP_TRY(Parse(path, text, &calibration));
  return calibration;
}

Status PrepareCalibrationFolder(const config::CalibrationConfig& where) {
  if (where.path.empty()) {
    return InvalidArgument(
        "there is no cache folder to store the calibration in: neither XDG_CACHE_HOME nor HOME names one; give "
        "--calibration FILE");
  }
  if (!where.is_explicit) {
    const std::filesystem::path folder = std::filesystem::path(where.path).parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return IoError("{}: cannot make the folder for the calibration: {}; give --calibration FILE", folder.string(),
                     error.message());
    }
  }
  return CheckFolderOf(where.path);
}

Status WriteCalibration(const config::CalibrationConfig& where, const Calibration& calibration) {
  BELLHOP_TRY(PrepareCalibrationFolder(where));
  Json rates;
  for (const RateField& rate : kRates) rates[rate.name] = calibration.rates.*rate.member;
  const Json file = {{"version", kVersion},
                     {"date", calibration.date},
                     {"machine", MachineJson(calibration.machine)},
                     {"threads", calibration.threads},
                     {"rates", rates},
                     {"notes", calibration.notes}};
  const Status written =
      sys::WriteFileAtomic(where.path, file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return written.WithContext("the calibration cannot be stored (--calibration FILE names another place)");
}

Result<Calibration> ReadCalibrationOf(const std::string& path, const MachineIdentity& machine) {
  if (path.empty()) return NotFound("no cache folder is known (neither XDG_CACHE_HOME nor HOME names one)");
  BELLHOP_TRY_ASSIGN(Calibration calibration, ReadCalibration(path));
  if (calibration.machine != machine) {
    return InvalidArgument("{}: is of another machine ({}; this one is {}); {}", path, Describe(calibration.machine),
                           Describe(machine), kRemedy);
  }
  return calibration;
}

Result<MachineRates> FindRates(const config::CalibrationConfig& where, const MachineIdentity& machine,
                               double gpu_memory_gbps) {
  MachineRates rates;
  rates.constants = plan::DefaultConstants(gpu_memory_gbps);
  const Result<Calibration> stored = ReadCalibrationOf(where.path, machine);
  if (!stored.ok()) {
    if (where.is_explicit) return stored.status().WithContext("--calibration");
    const bool none = stored.status().code() == StatusCode::kNotFound;
    rates.notes.push_back(none
                              ? std::string("this machine's rates are estimates: `bellhop doctor --calibrate` measures "
                                            "them")
                              : fmt::format("this machine's rates are estimates: {}", stored.status().message()));
    return rates;
  }
  if (stored->rates.hbm_gbps > 0) {
    rates.constants = stored->rates;
    rates.measured = true;
  } else {
    rates.constants.dram_gbps = stored->rates.dram_gbps;
    rates.notes.push_back(
        "the calibration has no rates of the GPU, which are estimates: `bellhop doctor --calibrate` "
        "measures them");
  }
  for (const std::string& note : stored->notes) rates.notes.push_back("calibration: " + note);
  return rates;
}

}  // namespace bellhop::engine
