// Columns of text, aligned.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bellhop::cli {

enum class Align : uint8_t { kLeft, kRight };

class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Two spaces between columns, `indent` before the first; nothing after the last.
  std::string Text(size_t indent = 0) const;
  // The first row is the head.
  std::string Markdown() const;
  std::string Csv() const;

 private:
  std::vector<size_t> Widths() const;

  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace bellhop::cli
