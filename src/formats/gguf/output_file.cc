#include "formats/gguf/output_file.h"

#include <cerrno>
#include <utility>

#include "sys/os_error.h"

namespace bellhop::formats {

Result<OutputFile> OutputFile::Create(const std::string& path) {
  if (path.empty()) return InvalidArgument("cannot write a file with an empty name");
  // Exclusive creation: a second writer, or what a killed one left behind, takes another number.
  constexpr int kAttempts = 100;
  for (int i = 0; i < kAttempts; ++i) {
    std::string temporary = fmt::format("{}.partial{}", path, i);
    errno = 0;
    if (std::FILE* file = std::fopen(temporary.c_str(), "wbx"); file != nullptr) {
      return OutputFile(path, std::move(temporary), file);
    }
    if (errno != EEXIST) return sys::OsError(errno, path, "create");
  }
  return IoError("{}: cannot create: {} temporary files are beside it; delete {}.partial*", path, kAttempts, path);
}

OutputFile::OutputFile(std::string path, std::string temporary, std::FILE* file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::exchange(other.file_, nullptr)) {}

OutputFile::~OutputFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

Status OutputFile::Write(HostSpan<const std::byte> bytes) {
  if (bytes.empty()) return {};
  errno = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return sys::OsError(errno, path_, "write");
  return {};
}

Status OutputFile::Commit() {
  errno = 0;
  const int closed = std::fclose(std::exchange(file_, nullptr));
  if (closed != 0) return sys::OsError(errno, path_, "write");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return sys::OsError(errno, path_, "rename the new file to");
  temporary_.clear();
  return {};
}

}  // namespace bellhop::formats
