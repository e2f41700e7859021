// All of this runs in a signal handler of a process in an unknown state: system calls and fixed buffers, no allocation,
// no stdio. The file is looked up in /proc/self/maps, so nothing has to keep a list of mappings.
#include "sys/mapping_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

namespace bellhop::sys {
namespace {

const char* fault_prefix = "";
int fault_exit_code = 1;

// The line of /proc/self/maps at hand: "BEGIN-END PERMS OFFSET DEV INODE   PATH".
class MapsReader {
 public:
  explicit MapsReader(int fd) : fd_(fd) {}

  // Finds the file that is mapped at `address`; false when it is none. `path` gets at most kPathBytes.
  static constexpr size_t kPathBytes = 4096;
  bool Find(uint64_t address, char* path, uint64_t* file_offset) {
    for (;;) {
      uint64_t begin = 0, end = 0, offset = 0;
      int c = ReadHex(&begin);
      if (c < 0) return false;
      if (c == '-') c = ReadHex(&end);
      if (c == ' ') c = SkipField();  // permissions
      if (c == ' ') c = ReadHex(&offset);
      if (c == ' ') c = SkipField();  // device
      if (c == ' ') c = SkipField();  // inode
      while (c == ' ') c = Next();
      size_t length = 0;
      for (; c >= 0 && c != '\n'; c = Next()) {
        if (length + 1 < kPathBytes) path[length++] = static_cast<char>(c);
      }
      path[length] = '\0';
      if (begin <= address && address < end) {
        *file_offset = offset + (address - begin);
        return path[0] == '/';
      }
      if (c < 0) return false;
    }
  }

 private:
  int Next() {
    if (at_ == filled_) {
      const ssize_t got = read(fd_, buffer_, sizeof buffer_);
      if (got <= 0) return -1;
      filled_ = static_cast<size_t>(got);
      at_ = 0;
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  // Both return the character after the field.
  int ReadHex(uint64_t* value) {
    for (;;) {
      const int c = Next();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return c;
      *value = *value * 16 + static_cast<uint64_t>(digit);
    }
  }
  int SkipField() {
    for (;;) {
      const int c = Next();
      if (c < 0 || c == ' ' || c == '\n') return c;
    }
  }

  int fd_;
  char buffer_[512];
  size_t at_ = 0, filled_ = 0;
};

void WriteText(const char* text) {
  size_t left = strlen(text);
  while (left > 0) {
    const ssize_t written = write(STDERR_FILENO, text, left);
    if (written <= 0) return;
    text += written;
    left -= static_cast<size_t>(written);
  }
}

// Threads may fault at the same time: the first one speaks and ends the process, the others wait for that.
std::atomic_flag fault_lock = ATOMIC_FLAG_INIT;

void OnBusError(int number, siginfo_t* info, void*) {
  while (fault_lock.test_and_set(std::memory_order_acquire)) {
  }
  static char path[MapsReader::kPathBytes];
  uint64_t file_offset = 0;
  bool found = false;
  if (info->si_code == BUS_ADRERR) {
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      MapsReader reader(fd);
      found = reader.Find(reinterpret_cast<uintptr_t>(info->si_addr), path, &file_offset);
      close(fd);
    }
  }
  if (!found) {
    // Not ours to explain: the instruction runs again and does what it would have done.
    signal(number, SIG_DFL);
    fault_lock.clear(std::memory_order_release);
    return;
  }
  struct stat now {};
  const bool shorter = stat(path, &now) == 0 && static_cast<uint64_t>(now.st_size) <= file_offset;
  WriteText(fault_prefix);
  WriteText(path);
  WriteText(shorter ? ": the file became shorter while it was in use; start again with a whole file, and replace files "
                      "by renaming new ones over them\n"
                    : ": a part of the file cannot be read any more; check the disk or network it is on (dmesg), or "
                      "copy the file to another\n");
  _exit(fault_exit_code);
}

}  // namespace

void ExplainMappingFaults(const char* prefix, int exit_code) {
  fault_prefix = prefix;
  fault_exit_code = exit_code;
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace bellhop::sys
