#include "sys/mapping_faults.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "sys/mapped_file.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::sys {
namespace {

// Death tests fork, so the handler stays in the child.
[[noreturn]] void ReadAfterTruncation(const std::string& path, off_t size, size_t at) {
  ExplainMappingFaults("tool: error: ", 3);
  const Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok() || truncate(path.c_str(), size) != 0) _exit(90);
  volatile std::byte sink = file->bytes()[at];
  (void)sink;
  _exit(0);
}

TEST(MappingFaultsTest, AShortenedFileIsNamed) {
  TempDir dir;
  const std::string path = dir.Write("some model.gguf", std::string(100'000, 'x'));
  EXPECT_EXIT(ReadAfterTruncation(path, 0, 99'999), testing::ExitedWithCode(3),
              "tool: error: .*/some model.gguf: the file became shorter while it was in use; start again");
}

TEST(MappingFaultsTest, WhatIsStillThereIsReadable) {
  TempDir dir;
  const std::string path = dir.Write("a", std::string(100'000, 'x'));
  EXPECT_EXIT(ReadAfterTruncation(path, 50'000, 100), testing::ExitedWithCode(0), "");
}

TEST(MappingFaultsTest, OtherBusErrorsActAsBefore) {
  EXPECT_EXIT(
      {
        ExplainMappingFaults("tool: error: ", 3);
        raise(SIGBUS);  // SI_TKILL: nobody's mapping
        raise(SIGBUS);
        _exit(0);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace bellhop::sys
