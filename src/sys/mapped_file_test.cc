#include "sys/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "sys/temp_dir_for_test.h"

namespace bellhop::sys {
namespace {

std::string Text(const MappedFile& file) {
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

TEST(MappedFileTest, MapsTheWholeFile) {
  TempDir dir;
  const std::string path = dir.Write("a.bin", std::string(5000, 'x') + "end");
  Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->bytes().size(), 5003u);
  EXPECT_EQ(Text(*file).substr(4999), "xend");
  file->WillNeed(0, 5003);
  file->WillNeed(4999, SIZE_MAX);  // clamped
  file->WillNeed(SIZE_MAX, 1);     // beyond the end: nothing
}

TEST(MappedFileTest, EmptyFileIsAnEmptySpan) {
  TempDir dir;
  Result<MappedFile> file = MappedFile::Open(dir.Write("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
  file->WillNeed(0, 10);
}

TEST(MappedFileTest, MoveLeavesTheSourceEmpty) {
  TempDir dir;
  MappedFile a = *MappedFile::Open(dir.Write("a", "hello"));
  MappedFile b = std::move(a);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT: the moved-from state is part of the contract
  EXPECT_EQ(Text(b), "hello");
  MappedFile c = *MappedFile::Open(dir.Write("c", "other"));
  c = std::move(b);
  EXPECT_EQ(Text(c), "hello");
}

TEST(MappedFileTest, SharedMappingSeesWrites) {
  TempDir dir;
  const std::string path = dir.Write("a", "hello");
  Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out << "J" << std::flush;
  EXPECT_EQ(Text(*file), "Jello");
}

TEST(MappedFileTest, ErrorsNameThePath) {
  TempDir dir;
  const std::string missing = dir.path() + "/missing";
  Result<MappedFile> file = MappedFile::Open(missing);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find(missing), std::string::npos);

  file = MappedFile::Open(dir.path());
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kIo);
  EXPECT_NE(file.status().message().find("directory"), std::string::npos);

  EXPECT_EQ(MappedFile::Open("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(dir.Write("a", "x") + "/b").status().code(), StatusCode::kNotFound);
}

TEST(MappedFileTest, PipeIsRefusedWithoutWaiting) {
  TempDir dir;
  const std::string path = dir.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kIo);
}

TEST(MappedFileTest, UnreadableFileSaysSo) {
  TempDir dir;
  const std::string path = dir.Write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  constexpr uid_t kNobody = 65534;  // root reads every file, so the test gives root up for a moment
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const Result<MappedFile> file = MappedFile::Open(path);
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kIo);
  EXPECT_NE(file.status().message().find(path), std::string::npos);
}

}  // namespace
}  // namespace bellhop::sys
