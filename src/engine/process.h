// The process around an engine: standard streams, signals, files, the machine. For front ends, which make no calls to
// the operating system and see nothing below engine/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace bellhop::sys {
class InterruptScope;
}

namespace bellhop::engine {

enum class Stream : uint8_t { kIn, kOut, kErr };

bool IsTerminal(Stream stream);
int TerminalColumns(Stream stream);  // 80 when it is no terminal
// True once standard input has something to read or ended; false after `timeout_ms` or at a signal.
bool WaitForInput(int timeout_ms);

// While it lives, Ctrl-C and a broken output pipe set a flag instead of ending the process, once: the second time they
// do what they always did, unless Rearm was called in between. One at a time.
class Interrupts {
 public:
  // kService: Ctrl-C and SIGTERM instead.
  enum class Kind : uint8_t { kWork, kService };
  explicit Interrupts(Kind kind = Kind::kWork);
  ~Interrupts();

  bool interrupted() const;
  const std::atomic<bool>& flag() const;
  void Rearm();

 private:
  std::unique_ptr<sys::InterruptScope> scope_;
};

// From now on a mapped file that can no longer be read ends the process with `exit_code`, after `prefix`, the file's
// name and what to do on one line of standard error; without this the system ends it by SIGBUS. For programs, not
// libraries: it is a signal handler. `prefix` must live for ever.
void ExplainMappingFaults(const char* prefix, int exit_code);

// The whole file; "-" is standard input. kInvalidArgument when it is longer than `max_bytes`.
Result<std::string> ReadText(const std::string& path, uint64_t max_bytes);
// Readers see the old file or the new one, never a part.
Status WriteWholeFile(const std::string& path, std::string_view content);

// kNotFound when the folder that `path` is to be written into does not exist: for work that takes long before it
// writes.
Status CheckFolderOf(const std::string& path);

// Folder of the running program; empty when the system does not say.
std::string ExecutableDirectory();

uint64_t PeakResidentBytes();
std::string UtcTimestamp();  // "2026-12-01T10:00:00Z"

struct MachineSummary {
  std::string cpu, isa;  // "Intel(R) Xeon(R) 8480C", "avx512,vnni,bf16,fp16,amx"
  int cores = 0;         // physical ones that this process may use
  std::string gpu, driver;
  std::string slug;  // "avx512-2c": short name of this kind of machine, for result folders
};
MachineSummary DescribeMachine();

}  // namespace bellhop::engine
