#include "sys/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "sys/os_error.h"

namespace bellhop::sys {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  if (path.empty()) return InvalidArgument("cannot open a file with an empty name");
  if (path.find('\0') != std::string::npos) return InvalidArgument("file name holds a NUL character");
  // O_NONBLOCK: opening a pipe must fail below, not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return OsError(errno, path, "open");
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return OsError(error, path, "stat");
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return IoError("{}: is {}, not a regular file; name a file", path,
                   S_ISDIR(info.st_mode) ? "a directory" : "a pipe, socket or device");
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (data == MAP_FAILED) return OsError(error, path, "map");
    file.data_ = static_cast<const std::byte*>(data);
  } else {
    close(fd);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::WillNeed(size_t offset, size_t length) const {
  if (offset >= size_ || length == 0) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = offset / page * page;
  const size_t end = offset + std::min(length, size_ - offset);
  (void)madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

}  // namespace bellhop::sys
