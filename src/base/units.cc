#include "base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>

namespace bellhop {

Result<uint64_t> ParseByteSize(std::string_view text) {
  const std::string_view original = text;
  auto fail = [&] {
    return InvalidArgument("'{}' is not a size; write for example 12GiB, 12GB, 512MiB or a number of bytes", original);
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0 || std::signbit(number)) return fail();
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);

  std::string unit;
  for (char c : text) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  double factor = 1;
  if (!unit.empty()) {
    const double base = unit.size() == 2 && unit[1] == 'i' ? 1024 : 1000;
    if (unit.size() > 2 || (unit.size() == 2 && base == 1000)) return fail();
    switch (unit[0]) {
      case 'k': factor = base; break;
      case 'm': factor = base * base; break;
      case 'g': factor = base * base * base; break;
      case 't': factor = base * base * base * base; break;
      default: return fail();
    }
  }
  const double bytes = number * factor;
  if (bytes >= 9.2e18) return InvalidArgument("'{}' is larger than any memory; write for example 12GiB", original);
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace bellhop
