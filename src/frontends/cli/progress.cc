#include "frontends/cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "engine/process.h"

namespace bellhop::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kFirstLine = std::chrono::seconds(2);  // shorter work needs no lines
constexpr int kBarCells = 24;

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(const Console& console, std::string what)
    : what_(std::move(what)), terminal_(engine::IsTerminal(engine::Stream::kErr)), start_(Clock::now()) {
  silent_ = console.quiet() || (console.json() && !terminal_);
}

Progress::~Progress() { Clear(); }

void Progress::Update(int64_t done, int64_t total, std::string_view detail) {
  if (silent_ || total <= 0) return;
  const Clock::time_point now = Clock::now();
  if (terminal_) {
    if (drawn_ && now - last_draw_ < kRedraw) return;
    last_draw_ = now;
    Draw(done, total, detail);
    return;
  }
  const auto tenth = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * 10);
  if (tenth <= last_tenth_ || now - start_ < kFirstLine) return;
  last_tenth_ = tenth;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::string line = fmt::format("{}: {} of {} ({} %), {}", what_, done, total, tenth * 10, Duration(seconds));
  if (!detail.empty()) line += ", " + OneLine(detail);
  std::fprintf(stderr, "%s\n", line.c_str());
}

void Progress::Draw(int64_t done, int64_t total, std::string_view detail) {
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const auto cells = static_cast<size_t>(share * kBarCells);
  const double seconds = std::chrono::duration<double>(last_draw_ - start_).count();
  std::string line = fmt::format("{} [{}{}] {:3.0f} %", what_, std::string(cells, '#'),
                                 std::string(kBarCells - cells, '.'), share * 100);
  if (share > 0.02 && share < 1) line += fmt::format(", {} left", Duration(seconds / share * (1 - share)));
  if (!detail.empty()) line += "  " + OneLine(detail);
  const auto columns = static_cast<size_t>(std::max(engine::TerminalColumns(engine::Stream::kErr) - 1, 20));
  if (line.size() > columns) line.resize(columns);
  std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace bellhop::cli
