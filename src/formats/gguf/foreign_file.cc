#include "formats/gguf/foreign_file.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>

namespace bellhop::formats {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";

// The "size N" line of a Git LFS pointer: the size of the file that it stands for. Empty when there is none.
std::string_view LfsSize(std::string_view text) {
  constexpr std::string_view kSizeLine = "\nsize ";
  const size_t at = text.find(kSizeLine);
  if (at == std::string_view::npos) return {};
  std::string_view rest = text.substr(at + kSizeLine.size());
  size_t digits = 0;
  while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9') ++digits;
  return rest.substr(0, digits);
}

bool StartsWithHtml(std::string_view text) {
  std::string lower(text.substr(0, 64));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t first = lower.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  return lower.compare(first, 9, "<!doctype") == 0 || lower.compare(first, 5, "<html") == 0;
}

// The containers before GGUF kept their magic as a little-endian number.
bool IsGgmlPredecessor(std::string_view magic) {
  return magic == "lmgg" || magic == "fmgg" || magic == "tjgg" || magic == "algg" || magic == "ggml" ||
         magic == "ggmf" || magic == "ggjt" || magic == "GGML";
}

}  // namespace

Status CheckForeignFile(HostSpan<const std::byte> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 1024));
  if (text.substr(0, kMagic.size()) == kMagic) return {};
  if (text.empty()) return Corrupt("{}: header: offset 0: the file is empty; fetch it again", name);
  if (text.substr(0, kLfsPointer.size()) == kLfsPointer) {
    const std::string_view size = LfsSize(text);
    return Corrupt("{}: header: offset 0: a Git LFS pointer of {} bytes, not the model{}; run 'git lfs pull'", name,
                   bytes.size(), size.empty() ? "" : fmt::format(" (which has {} bytes)", size));
  }
  if (StartsWithHtml(text)) {
    return Corrupt("{}: header: offset 0: a web page, not a model; download the file itself", name);
  }
  if (kMagic.substr(0, text.size()) == text) {
    return Corrupt("{}: header: offset 0: the file ends inside the magic ({} bytes); fetch it again", name,
                   bytes.size());
  }
  const std::string_view magic = text.substr(0, kMagic.size());
  if (IsGgmlPredecessor(magic)) {
    return Unsupported("{}: header: offset 0: a GGML file from before GGUF; convert the model again", name);
  }
  std::string hex;
  for (const char c : magic) hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<unsigned char>(c));
  return Corrupt("{}: header: offset 0: not a GGUF file: it starts with {}, not 47 47 55 46 (\"GGUF\")", name, hex);
}

}  // namespace bellhop::formats
