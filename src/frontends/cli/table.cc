#include "frontends/cli/table.h"

#include <algorithm>

namespace bellhop::cli {
namespace {

// Characters, counting a UTF-8 sequence as one.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Padded(const std::string& cell, size_t width, Align align) {
  const std::string space(width - std::min(width, Width(cell)), ' ');
  return align == Align::kLeft ? cell + space : space + cell;
}

std::string CsvCell(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

std::vector<size_t> Table::Widths() const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], Width(row[c]));
  }
  return widths;
}

std::string Table::Text(size_t indent) const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (size_t c = 0; c < row.size(); ++c) line += (c > 0 ? "  " : "") + Padded(row[c], widths[c], columns_[c]);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string Table::Markdown() const {
  const std::vector<size_t> widths = Widths();
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    text += "|";
    for (size_t c = 0; c < rows_[r].size(); ++c) text += " " + Padded(rows_[r][c], widths[c], columns_[c]) + " |";
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string dashes(widths[c], '-');
      text += columns_[c] == Align::kRight ? " " + dashes + ":|" : " " + dashes + " |";
    }
    text += "\n";
  }
  return text;
}

std::string Table::Csv() const {
  std::string text;
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) text += (c > 0 ? "," : "") + CsvCell(row[c]);
    text += "\n";
  }
  return text;
}

}  // namespace bellhop::cli
