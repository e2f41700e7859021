#include "sys/page_residency.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>
#include <string>

#include "sys/mapped_file.h"
#include "sys/temp_dir_for_test.h"

namespace bellhop::sys {
namespace {

constexpr size_t kPage = 4096;

HostSpan<const std::byte> Range(uint64_t begin, uint64_t end) {
  return {reinterpret_cast<const std::byte*>(begin), static_cast<size_t>(end - begin)};
}

TEST(ReadRangePagesTest, SumsTheMappingsOfTheRange) {
  TempDir root;
  root.Write("proc/self/smaps",
             "10000000-10400000 rw-p 00000000 00:00 0 \n"
             "Size:               4096 kB\nRss:                4096 kB\nAnonHugePages:      2048 kB\n"
             "Private_Hugetlb:       0 kB\nVmFlags: rd wr mr\n"
             "10400000-10800000 rw-p 00000000 00:0f 1234   /anon_hugepage (deleted)\n"
             "Rss:                   0 kB\nPrivate_Hugetlb:    4096 kB\n"
             "20000000-20800000 r--s 00000000 fe:00 99   /models/some model.gguf\n"
             "Rss:                8192 kB\nFilePmdMapped:      4096 kB\n");
  const auto all = ReadRangePages(Range(0x10000000, 0x10800000), root.path());
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(all->resident_bytes, 8u << 20);
  EXPECT_EQ(all->huge_bytes, 6u << 20);
  const auto half = ReadRangePages(Range(0x20000000, 0x20400000), root.path());
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(half->resident_bytes, 4u << 20);
  EXPECT_EQ(half->huge_bytes, 2u << 20);
  // A region that ends inside its last page is at most itself.
  const auto odd = ReadRangePages(Range(0x10400000, 0x107fffff), root.path());
  ASSERT_TRUE(odd.has_value());
  EXPECT_LE(odd->huge_bytes, (4u << 20) - 1);
  EXPECT_FALSE(ReadRangePages(Range(0x30000000, 0x30001000), root.path()).has_value());
  EXPECT_FALSE(ReadRangePages(Range(0x10000000, 0x10400000), root.path() + "/nowhere").has_value());
}

TEST(PopulateForReadingTest, MapsAFileAndReleasesIt) {
  TempDir dir;
  const Result<MappedFile> file = MappedFile::Open(dir.Write("a", std::string(64 * kPage + 100, 'x')));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(ReadRangePages(file->bytes())->resident_bytes, 0u);
  ASSERT_TRUE(PopulateForReading(file->bytes(), "a").ok());
  EXPECT_EQ(ReadRangePages(file->bytes())->resident_bytes, file->bytes().size());
  // Whole pages inside the range go; the ends, which others may use, stay.
  ReleasePages(file->bytes().subspan(100, 20 * kPage), false);
  const uint64_t left = ReadRangePages(file->bytes())->resident_bytes;
  EXPECT_LE(left, file->bytes().size() - 18 * kPage);
  EXPECT_GT(left, 0u);
  ReleasePages(file->bytes().subspan(0, 64 * kPage), true);
  EXPECT_EQ(file->bytes()[5000], std::byte{'x'});     // it comes back when it is read
  ReleasePages(file->bytes().subspan(10, 20), true);  // less than a page: nothing
  EXPECT_TRUE(PopulateForReading({}, "nothing").ok());
}

TEST(PopulateForReadingTest, AShortenedFileIsAnError) {
  TempDir dir;
  const std::string path = dir.Write("model.gguf", std::string(64 * kPage, 'x'));
  const Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 10 * kPage), 0);
  EXPECT_TRUE(PopulateForReading(file->bytes().subspan(0, 10 * kPage), path).ok());
  const Status status = PopulateForReading(file->bytes(), path);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find(path), std::string::npos);
  EXPECT_NE(status.message().find("shorter"), std::string::npos);
}

TEST(CountNodesTest, PagesOfThisProcessAreSomewhere) {
  std::string text(3 * kPage, 'x');
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  const std::vector<const std::byte*> addresses = {data, data + kPage, data + 2 * kPage, nullptr};
  const auto nodes = CountNodes(addresses);
  if (!nodes) GTEST_SKIP() << "this kernel does not say where pages are";
  EXPECT_EQ(std::accumulate(nodes->begin(), nodes->end(), uint64_t{0}), 3u);  // null is nowhere
  EXPECT_EQ(std::accumulate(CountNodes({})->begin(), CountNodes({})->end(), uint64_t{0}), 0u);
}

}  // namespace
}  // namespace bellhop::sys
