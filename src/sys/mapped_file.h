// A read-only, shared memory mapping of a whole file.
#pragma once

#include <cstddef>
#include <string>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::sys {

class MappedFile {
 public:
  // kNotFound, kIo (not a regular file, no permission, map refused); messages name the path.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  HostSpan<const std::byte> bytes() const { return {data_, size_}; }
  // Asks the kernel to read [offset, offset + length) ahead. Advice only.
  void WillNeed(size_t offset, size_t length) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bellhop::sys
