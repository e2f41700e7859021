// A folder that lives as long as the object, for tests.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace bellhop::sys {

class TempDir {
 public:
  TempDir() {
    // In memory where possible: fake machines are thousands of tiny files.
    const bool memory = access("/dev/shm", W_OK) == 0;
    std::string pattern = memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    pattern += "/bellhop-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

  // Writes path()/name, making folders on the way, and returns the full path.
  std::string Write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

 private:
  std::string path_;
};

}  // namespace bellhop::sys
