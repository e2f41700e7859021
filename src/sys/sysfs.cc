#include "sys/sysfs.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>

namespace bellhop::sys {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int kMaxCpu = 65535;
constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> SplitAny(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> out;
  size_t begin = text.find_first_not_of(separators);
  while (begin != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(separators, end);
  }
  return out;
}

}  // namespace

std::optional<std::string> ReadKernelText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  char chunk[4096];
  do {
    file.read(chunk, sizeof chunk);
    text.append(chunk, static_cast<size_t>(file.gcount()));
  } while (file && text.size() < kMaxFileBytes);
  if (text.empty() && !file.eof()) return std::nullopt;  // a folder, or an error while reading
  text.resize(text.find_last_not_of(kSpace) + 1);
  return text;
}

std::optional<int64_t> ParseKernelInt(std::string_view text) {
  text = Trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ReadKernelInt(const std::string& path) {
  const std::optional<std::string> text = ReadKernelText(path);
  return text ? ParseKernelInt(*text) : std::nullopt;
}

std::optional<std::vector<int>> ParseCpuList(std::string_view text) {
  std::vector<int> out;
  for (const std::string_view part : SplitAny(Trim(text), ",")) {
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = ParseKernelInt(part.substr(0, dash));
    const std::optional<int64_t> last = dash == std::string_view::npos ? first : ParseKernelInt(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMaxCpu) return std::nullopt;
    for (int64_t cpu = *first; cpu <= *last; ++cpu) out.push_back(static_cast<int>(cpu));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::optional<std::vector<int>> ReadCpuList(const std::string& path) {
  const std::optional<std::string> text = ReadKernelText(path);
  return text ? ParseCpuList(*text) : std::nullopt;
}

std::string FormatCpuList(const std::vector<int>& ascending) {
  std::string out;
  for (size_t i = 0; i < ascending.size();) {
    size_t j = i;
    while (j + 1 < ascending.size() && ascending[j + 1] == ascending[j] + 1) ++j;
    if (!out.empty()) out += ',';
    out += j == i ? fmt::format("{}", ascending[i]) : fmt::format("{}-{}", ascending[i], ascending[j]);
    i = j + 1;
  }
  return out;
}

std::vector<std::string_view> SplitLines(std::string_view text) { return SplitAny(text, "\n"); }
std::vector<std::string_view> SplitFields(std::string_view line) { return SplitAny(line, " \t"); }

}  // namespace bellhop::sys
