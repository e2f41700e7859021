#include "decode/stop_matcher.h"

#include <algorithm>

#include "text/unicode.h"

namespace bellhop::decode {
namespace {

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const text::Utf8Step step = text::NextUtf8(bytes, i);
    if (step.kind != text::Utf8Kind::kCharacter) return false;
    i += step.length;
  }
  return true;
}

// Bytes of a character that the end of `bytes` leaves unfinished.
size_t UnfinishedBytes(std::string_view bytes) {
  constexpr size_t kLongestUnfinished = 3;
  for (size_t n = 1; n <= std::min(kLongestUnfinished, bytes.size()); ++n) {
    const size_t at = bytes.size() - n;
    if (text::NextUtf8(bytes, at).kind == text::Utf8Kind::kTruncated) return n;
  }
  return 0;
}

// The failure function of Knuth, Morris and Pratt.
std::vector<size_t> Fallbacks(std::string_view pattern) {
  std::vector<size_t> fallback(pattern.size(), 0);
  for (size_t i = 1; i < pattern.size(); ++i) {
    size_t length = fallback[i - 1];
    while (length > 0 && pattern[length] != pattern[i]) length = fallback[length - 1];
    fallback[i] = length + (pattern[length] == pattern[i] ? 1 : 0);
  }
  return fallback;
}

}  // namespace

Result<StopMatcher> StopMatcher::Create(std::vector<std::string> stops) {
  std::vector<Stop> prepared;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      return InvalidArgument("stop string {} of {} is empty and would stop before the first character: remove it",
                             i + 1, stops.size());
    }
    if (!IsUtf8(stops[i])) return InvalidArgument("stop string {} of {} is not valid UTF-8", i + 1, stops.size());
    prepared.push_back({.text = stops[i], .fallback = Fallbacks(stops[i])});
  }
  return StopMatcher(std::move(prepared));
}

bool StopMatcher::Advance(char byte) {
  bool found = false;
  for (size_t i = 0; i < stops_.size(); ++i) {
    Stop& stop = stops_[i];
    while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched - 1];
    if (stop.text[stop.matched] == byte) ++stop.matched;
    if (stop.matched < stop.text.size()) continue;
    if (!found || stop.text.size() > stops_[which_].text.size()) which_ = i;
    found = true;
  }
  return found;
}

size_t StopMatcher::HeldBytes() const {
  size_t held = UnfinishedBytes(pending_);
  for (const Stop& stop : stops_) held = std::max(held, stop.matched);
  return held;
}

StopMatcher::Output StopMatcher::Push(std::string_view piece) {
  Output out;
  if (!stopped_) {
    for (char byte : piece) {
      pending_.push_back(byte);
      if (!Advance(byte)) continue;
      stopped_ = true;
      out.text = pending_.substr(0, pending_.size() - stops_[which_].text.size());
      pending_.clear();
      break;
    }
  }
  if (!stopped_) {
    const size_t released = pending_.size() - HeldBytes();
    out.text = pending_.substr(0, released);
    pending_.erase(0, released);
  }
  out.stopped = stopped_;
  out.which = which_;
  return out;
}

std::string StopMatcher::Flush() {
  std::string rest = std::move(pending_);
  pending_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
  stopped_ = false;
  which_ = 0;
  return rest;
}

}  // namespace bellhop::decode
