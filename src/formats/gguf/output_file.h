// A file that appears under its name only when it is complete: written beside it under a temporary name, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/span.h"
#include "base/status.h"

namespace bellhop::formats {

class OutputFile {
 public:
  // Errors name the path: kNotFound when its folder does not exist, else kIo.
  static Result<OutputFile> Create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  // Removes the temporary file unless Commit succeeded.
  ~OutputFile();

  // kIo on a full disk, a size limit or any other refusal. After an error only the destructor may follow.
  Status Write(HostSpan<const std::byte> bytes);
  // Flushes and renames over `path`, replacing what was there.
  Status Commit();

 private:
  OutputFile(std::string path, std::string temporary, std::FILE* file);

  std::string path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace bellhop::formats
