#include "frontends/cli/table.h"

#include <gtest/gtest.h>

namespace bellhop::cli {
namespace {

TEST(TableTest, AlignsColumnsByCharacters) {
  Table table({Align::kLeft, Align::kRight, Align::kLeft});
  table.Add({"é", "10", "x"});
  table.Add({"long", "5", ""});
  EXPECT_EQ(table.Text(), "é     10  x\nlong   5\n");
  EXPECT_EQ(table.Text(2), "  é     10  x\n  long   5\n");
}

TEST(TableTest, Markdown) {
  Table table({Align::kLeft, Align::kRight});
  table.Add({"name", "n"});
  table.Add({"a", "12"});
  EXPECT_EQ(table.Markdown(), "| name |  n |\n| ---- | --:|\n| a    | 12 |\n");
}

TEST(TableTest, CsvQuotes) {
  Table table({Align::kLeft, Align::kLeft});
  table.Add({"a,b", "say \"x\""});
  EXPECT_EQ(table.Csv(), "\"a,b\",\"say \"\"x\"\"\"\n");
}

}  // namespace
}  // namespace bellhop::cli
