#include "sys/file_io.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "sys/temp_dir_for_test.h"

namespace bellhop::sys {
namespace {

size_t FilesIn(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(FileIoTest, ReadsWholeFiles) {
  TempDir dir;
  const std::string big(200'001, 'b');
  EXPECT_EQ(*ReadFile(dir.Write("big", big), 1 << 20), big);
  EXPECT_EQ(*ReadFile(dir.Write("zero", std::string("a\0b", 3)), 3), std::string("a\0b", 3));
  EXPECT_EQ(*ReadFile(dir.Write("empty", ""), 0), "");
}

TEST(FileIoTest, BoundIsExact) {
  TempDir dir;
  const std::string path = dir.Write("f", std::string(100, 'x'));
  EXPECT_TRUE(ReadFile(path, 100).ok());
  const Result<std::string> over = ReadFile(path, 99);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(over.status().message().find(path), std::string::npos);
  EXPECT_FALSE(ReadFile("/dev/zero", 1000).ok());  // endless, no size
  EXPECT_EQ(*ReadFile("/dev/null", 10), "");
  EXPECT_FALSE(ReadFile("/proc/self/maps", 10).ok());  // size 0, content not
  EXPECT_TRUE(ReadFile("/proc/self/maps", 1 << 24).ok());
}

TEST(FileIoTest, ReadErrorsNameThePath) {
  TempDir dir;
  const Result<std::string> missing = ReadFile(dir.path() + "/missing", 10);
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find(dir.path() + "/missing"), std::string::npos);
  const Result<std::string> folder = ReadFile(dir.path(), 10);
  EXPECT_EQ(folder.status().code(), StatusCode::kIo);
  EXPECT_NE(folder.status().message().find("directory"), std::string::npos);
}

TEST(FileIoTest, ReadsStandardInput) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDIN_FILENO);
  dup2(ends[0], STDIN_FILENO);
  close(ends[0]);
  ASSERT_EQ(write(ends[1], "hello", 5), 5);
  close(ends[1]);
  const Result<std::string> text = ReadStdin(5);
  dup2(saved, STDIN_FILENO);
  close(saved);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text, "hello");
}

TEST(FileIoTest, WriteReplacesAndLeavesNothingBehind) {
  TempDir dir;
  const std::string path = dir.path() + "/out.json";
  ASSERT_TRUE(WriteFileAtomic(path, "one").ok());
  EXPECT_EQ(*ReadFile(path, 10), "one");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(WriteFileAtomic(path, "two").ok());
  EXPECT_EQ(*ReadFile(path, 10), "two");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_EQ(FilesIn(dir.path()), 1u);
}

TEST(FileIoTest, NewFilesHonourTheMask) {
  TempDir dir;
  const mode_t before = umask(027);
  const Status status = WriteFileAtomic(dir.path() + "/f", "x");
  umask(before);
  ASSERT_TRUE(status.ok());
  struct stat info {};
  ASSERT_EQ(stat((dir.path() + "/f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST(FileIoTest, WriteFollowsLinksAndDevices) {
  TempDir dir;
  const std::string real = dir.Write("real", "old");
  ASSERT_EQ(symlink(real.c_str(), (dir.path() + "/link").c_str()), 0);
  ASSERT_TRUE(WriteFileAtomic(dir.path() + "/link", "new").ok());
  EXPECT_EQ(*ReadFile(real, 10), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir.path() + "/link"));
  EXPECT_TRUE(WriteFileAtomic("/dev/null", "gone").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(FileIoTest, WriteErrorsNameThePathAndLeaveNothing) {
  TempDir dir;
  const std::string path = dir.path() + "/no/such/folder/f";
  Status status = WriteFileAtomic(path, "x");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find(path), std::string::npos);
  EXPECT_EQ(WriteFileAtomic(dir.path(), "x").code(), StatusCode::kIo);
  EXPECT_EQ(WriteFileAtomic("", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomic("/dev/full", "x").code(), StatusCode::kIo);
  EXPECT_EQ(FilesIn(dir.path()), 0u);
}

}  // namespace
}  // namespace bellhop::sys
