#include "sys/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/units.h"
#include "sys/os_error.h"

namespace bellhop::sys {
namespace {

class UniqueFd {
 public:
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  int get() const { return fd_; }
  int Close() { return close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

Result<std::string> ReadAll(int fd, std::string_view name, uint64_t size_hint, uint64_t max_bytes) {
  constexpr size_t kChunk = size_t{1} << 16;
  std::string text;
  text.reserve(static_cast<size_t>(std::min(size_hint, max_bytes)));
  size_t used = 0;
  for (;;) {
    // One byte more than allowed is read, to tell a file that fits exactly from one that does not.
    const uint64_t room = max_bytes - used < kChunk ? max_bytes - used + 1 : kChunk;
    text.resize(used + static_cast<size_t>(room));
    const ssize_t got = read(fd, text.data() + used, static_cast<size_t>(room));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return OsError(errno, name, "read");
    used += static_cast<size_t>(got);
    if (used > max_bytes) return InvalidArgument("{}: longer than the {} allowed here", name, FormatBytes(max_bytes));
    if (got == 0) break;
  }
  text.resize(used);
  return text;
}

Status WriteAll(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = write(fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return OsError(errno, path, "write");
    content.remove_prefix(static_cast<size_t>(put));
  }
  return Status();
}

// Makes a rename survive a crash. Best effort: some file systems refuse it for folders.
void SyncFolder(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) (void)fsync(fd.get());
}

mode_t NewFileMode() {
  // The mask can only be read by setting it. A process-wide effect of two instructions; umask(2) offers no other way.
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

Status FillTemporary(UniqueFd& fd, const std::string& temporary, mode_t mode, std::string_view content) {
  BELLHOP_TRY(WriteAll(fd.get(), temporary, content));
  if (fchmod(fd.get(), mode) != 0) return OsError(errno, temporary, "set the permissions");
  if (fsync(fd.get()) != 0) return OsError(errno, temporary, "write");
  if (fd.Close() != 0) return OsError(errno, temporary, "close");
  return Status();
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return OsError(errno, path, "open");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return OsError(errno, path, "stat");
  if (S_ISDIR(info.st_mode)) return IoError("{}: is a directory, not a file; name a file", path);
  return ReadAll(fd.get(), path, S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) + 1 : 0, max_bytes);
}

Result<std::string> ReadStdin(uint64_t max_bytes) { return ReadAll(STDIN_FILENO, "standard input", 0, max_bytes); }

Status WriteFileAtomic(const std::string& path, std::string_view content) {
  if (path.empty()) return InvalidArgument("cannot write a file with an empty name");
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return IoError("{}: is a directory, not a file; name a file", path);
  if (exists && !S_ISREG(info.st_mode)) {
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0) return OsError(errno, path, "open");
    return WriteAll(fd.get(), path, content);
  }
  std::string target = path;
  if (exists) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
    if (real == nullptr) return OsError(errno, path, "resolve");
    target = real.get();
  }
  std::string temporary = target + ".tmp-XXXXXX";
  UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (fd.get() < 0) return OsError(errno, path, "write");
  Status status = FillTemporary(fd, temporary, exists ? info.st_mode & 07777 : NewFileMode(), content);
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0) status = OsError(errno, path, "replace");
  if (!status.ok()) {
    (void)unlink(temporary.c_str());
    return status;
  }
  SyncFolder(target);
  return Status();
}

}  // namespace bellhop::sys
