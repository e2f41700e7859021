// strftime for strftime_now: UTC, the C locale, the directives of Python and glibc.
#include <ctime>

#include "text/jinja_builtins.h"
#include "text/jinja_text.h"

namespace bellhop::text {
namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

struct CivilTime {
  int64_t unix_seconds;
  int64_t year;
  int month;  // 1..12
  int day;    // 1..31
  int hour;
  int minute;
  int second;
  int weekday;  // 0: Sunday
  int yearday;  // 0..365
};

bool IsLeap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

// Proleptic Gregorian calendar, in eras of 400 years that begin in March.
CivilTime ToCivil(int64_t unix_seconds) {
  CivilTime t{};
  t.unix_seconds = unix_seconds;
  int64_t days = unix_seconds / 86400;
  int64_t rest = unix_seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  t.hour = static_cast<int>(rest / 3600);
  t.minute = static_cast<int>(rest / 60 % 60);
  t.second = static_cast<int>(rest % 60);
  t.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_index = (5 * day_of_year + 2) / 153;
  t.day = static_cast<int>(day_of_year - (153 * month_index + 2) / 5 + 1);
  t.month = static_cast<int>(month_index < 10 ? month_index + 3 : month_index - 9);
  t.year = year_of_era + era * 400 + (t.month <= 2 ? 1 : 0);
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  t.yearday = kBefore[t.month - 1] + t.day - 1 + (t.month > 2 && IsLeap(t.year) ? 1 : 0);
  return t;
}

int WeekOfYear(const CivilTime& t, int first_weekday) {
  return (t.yearday + 7 - (t.weekday - first_weekday + 7) % 7) / 7;
}

// ISO 8601 week and the year it belongs to.
void IsoWeek(const CivilTime& t, int64_t* year, int* week) {
  const int monday_based = (t.weekday + 6) % 7;
  *year = t.year;
  *week = (t.yearday - monday_based + 10) / 7;
  const auto weeks_in = [](int64_t y) {
    const auto p = [](int64_t v) { return (v + v / 4 - v / 100 + v / 400) % 7; };
    return p(y) == 4 || p(y - 1) == 3 ? 53 : 52;
  };
  if (*week < 1) {
    --*year;
    *week = weeks_in(*year);
  } else if (*week > weeks_in(t.year)) {
    ++*year;
    *week = 1;
  }
}

struct Number {
  int64_t value;
  int width;
  char pad;
};

class Formatter {
 public:
  explicit Formatter(const CivilTime& time) : t_(time) {}

  void Format(std::string_view format, std::string* out) {
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        *out += format[i];
        continue;
      }
      const size_t start = i++;
      char flag = '\0';
      if (std::string_view("-_0^#").find(format[i]) != std::string_view::npos && i + 1 < format.size()) {
        flag = format[i++];
      }
      if (!Directive(format[i], flag, out)) *out += format.substr(start, i - start + 1);
    }
  }

 private:
  static void Put(Number number, char flag, std::string* out) {
    const char pad = flag == '-' ? '\0' : flag == '_' ? ' ' : flag == '0' ? '0' : number.pad;
    const std::string digits = fmt::format("{}", number.value);
    if (pad != '\0' && digits.size() < static_cast<size_t>(number.width)) {
      out->append(static_cast<size_t>(number.width) - digits.size(), pad);
    }
    *out += digits;
  }

  static void Put(std::string_view text, char flag, std::string* out) {
    *out += flag == '^' || flag == '#' ? ToUpper(text) : std::string(text);
  }

  bool Directive(char c, char flag, std::string* out) {
    const int hour12 = t_.hour % 12 == 0 ? 12 : t_.hour % 12;
    int64_t iso_year = 0;
    int iso_week = 0;
    IsoWeek(t_, &iso_year, &iso_week);
    switch (c) {
      case 'a': Put(kDays[t_.weekday].substr(0, 3), flag, out); return true;
      case 'A': Put(kDays[t_.weekday], flag, out); return true;
      case 'b':
      case 'h': Put(kMonths[t_.month - 1].substr(0, 3), flag, out); return true;
      case 'B': Put(kMonths[t_.month - 1], flag, out); return true;
      case 'p': *out += flag == '#' ? (t_.hour < 12 ? "am" : "pm") : (t_.hour < 12 ? "AM" : "PM"); return true;
      case 'P': *out += t_.hour < 12 ? "am" : "pm"; return true;
      case 'Y': Put({t_.year, 4, '\0'}, flag == '\0' ? '-' : flag, out); return true;
      case 'C': Put({t_.year / 100, 2, '0'}, flag, out); return true;
      case 'y': Put({t_.year % 100, 2, '0'}, flag, out); return true;
      case 'G': Put({iso_year, 4, '\0'}, flag == '\0' ? '-' : flag, out); return true;
      case 'g': Put({iso_year % 100, 2, '0'}, flag, out); return true;
      case 'V': Put({iso_week, 2, '0'}, flag, out); return true;
      case 'm': Put({t_.month, 2, '0'}, flag, out); return true;
      case 'd': Put({t_.day, 2, '0'}, flag, out); return true;
      case 'e': Put({t_.day, 2, ' '}, flag, out); return true;
      case 'j': Put({t_.yearday + 1, 3, '0'}, flag, out); return true;
      case 'H': Put({t_.hour, 2, '0'}, flag, out); return true;
      case 'I': Put({hour12, 2, '0'}, flag, out); return true;
      case 'k': Put({t_.hour, 2, ' '}, flag, out); return true;
      case 'l': Put({hour12, 2, ' '}, flag, out); return true;
      case 'M': Put({t_.minute, 2, '0'}, flag, out); return true;
      case 'S': Put({t_.second, 2, '0'}, flag, out); return true;
      case 'f': *out += "000000"; return true;
      case 's': Put({t_.unix_seconds, 1, '0'}, flag, out); return true;
      case 'u': Put({t_.weekday == 0 ? 7 : t_.weekday, 1, '0'}, flag, out); return true;
      case 'w': Put({t_.weekday, 1, '0'}, flag, out); return true;
      case 'U': Put({WeekOfYear(t_, 0), 2, '0'}, flag, out); return true;
      case 'W': Put({WeekOfYear(t_, 1), 2, '0'}, flag, out); return true;
      case 'D':
      case 'x': Format("%m/%d/%y", out); return true;
      case 'F': Format("%Y-%m-%d", out); return true;
      case 'T':
      case 'X': Format("%H:%M:%S", out); return true;
      case 'R': Format("%H:%M", out); return true;
      case 'r': Format("%I:%M:%S %p", out); return true;
      case 'c': Format("%a %b %e %H:%M:%S %Y", out); return true;
      case 'n': *out += '\n'; return true;
      case 't': *out += '\t'; return true;
      case 'z':
      case 'Z': return true;  // a time without a zone has no name for it
      case '%': *out += '%'; return true;
      default: return false;
    }
  }

  const CivilTime& t_;
};

}  // namespace

Result<std::string> FormatTime(JinjaRuntime& rt, std::string_view format, int64_t unix_seconds) {
  // Years 1 to 9999, as datetime.
  if (unix_seconds < -62135596800 || unix_seconds > 253402300799) return InvalidArgument("the time is out of range");
  BELLHOP_TRY(rt.CheckBytes(static_cast<int64_t>(format.size()) * 16));
  const CivilTime time = ToCivil(unix_seconds);
  std::string out;
  Formatter(time).Format(format, &out);
  return out;
}

}  // namespace bellhop::text
