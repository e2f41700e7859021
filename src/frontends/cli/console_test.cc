#include "frontends/cli/console.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace bellhop::cli {
namespace {

TEST(ExitCodeTest, SeparatesBadInputFromFailures) {
  EXPECT_EQ(ExitCode(Status()), 0);
  EXPECT_EQ(ExitCode(InvalidArgument("x")), 2);
  EXPECT_EQ(ExitCode(NotFound("x")), 2);
  EXPECT_EQ(ExitCode(Corrupt("x")), 2);
  EXPECT_EQ(ExitCode(Unsupported("x")), 2);
  EXPECT_EQ(ExitCode(OutOfMemory("x")), 1);
  EXPECT_EQ(ExitCode(IoError("x")), 1);
  EXPECT_EQ(ExitCode(CudaError("x")), 1);
  EXPECT_EQ(ExitCode(Internal("x")), 1);
}

TEST(OneLineTest, ShowsControlCharacters) {
  EXPECT_EQ(OneLine("plain é\ttext"), "plain é\ttext");
  EXPECT_EQ(OneLine("a\nb\x1b[31m\x7f"), "a\\nb\\x1b[31m\\x7f");
  EXPECT_EQ(OneLine(std::string_view("\0", 1)), "\\x00");
}

TEST(ConsoleTest, AnUnwritableLogFileIsAnError) {
  for (const std::string path : {"/nonexistent\n/x.log", "/dev/null/x.log", "/"}) {
    const auto console = Console::Create({.log_file = path});
    ASSERT_FALSE(console.ok()) << path;
    EXPECT_EQ(ExitCode(console.status()), 2);
    EXPECT_EQ(console.status().message().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists("/nonexistent\n"));
}

TEST(PrettyJsonTest, KeepsListsOfPlainValuesTogether) {
  const nlohmann::ordered_json value = {
      {"ids", {1, 2, 3}}, {"text", "a\xff"}, {"none", nlohmann::ordered_json::object()}, {"rows", {{1, 2}, {3}}}};
  const std::string text = PrettyJson(value);
  EXPECT_EQ(text,
            "{\n  \"ids\": [1,2,3],\n  \"text\": \"a\xEF\xBF\xBD\",\n  \"none\": {},\n"
            "  \"rows\": [\n    [1,2],\n    [3]\n  ]\n}");
  EXPECT_EQ(nlohmann::ordered_json::parse(text)["rows"], value["rows"]);
}

}  // namespace
}  // namespace bellhop::cli
