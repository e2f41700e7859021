#include "decode/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "text/unicode.h"

namespace bellhop::decode {
namespace {

StopMatcher Make(std::vector<std::string> stops) {
  Result<StopMatcher> matcher = StopMatcher::Create(std::move(stops));
  EXPECT_TRUE(matcher.ok()) << matcher.status().ToString();
  return std::move(matcher).value();
}

struct Streamed {
  std::string text;
  bool stopped = false;
  size_t which = 0;
  std::vector<std::string> outputs;
};

Streamed Feed(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  Streamed run;
  for (const std::string& piece : pieces) {
    const StopMatcher::Output out = matcher.Push(piece);
    run.text += out.text;
    run.outputs.push_back(out.text);
    if (run.stopped) {
      EXPECT_TRUE(out.stopped);
      EXPECT_EQ(out.text, "");
    }
    run.stopped = out.stopped;
    if (out.stopped) run.which = out.which;
  }
  run.text += matcher.Flush();
  return run;
}

TEST(StopMatcherTest, RefusesEmptyAndMalformedStops) {
  const Result<StopMatcher> empty = StopMatcher::Create({"a", ""});
  EXPECT_EQ(empty.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(empty.status().message().find("stop string 2 of 2 is empty"), std::string::npos);
  EXPECT_EQ(StopMatcher::Create({"\x80x"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StopMatcher::Create({"caf\xC3"}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(StopMatcher::Create({}).ok());
}

TEST(StopMatcherTest, WithoutStopsEverythingPassesAtOnce) {
  StopMatcher matcher = Make({});
  const Streamed run = Feed(matcher, {"Hel", "lo", "", " world"});
  EXPECT_EQ(run.text, "Hello world");
  EXPECT_EQ(run.outputs, (std::vector<std::string>{"Hel", "lo", "", " world"}));
  EXPECT_FALSE(run.stopped);
}

TEST(StopMatcherTest, AStopMadeOfSeveralTokens) {
  StopMatcher matcher = Make({"O P Q"});
  const Streamed run = Feed(matcher, {"L", " M", " N", " O", " P", " Q", " R", " S"});
  EXPECT_EQ(run.text, "L M N ");
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.outputs, (std::vector<std::string>{"L", " M", " N", " ", "", "", "", ""}));
}

TEST(StopMatcherTest, AStopInsideOneToken) {
  StopMatcher matcher = Make({"\n\n"});
  EXPECT_EQ(Feed(matcher, {"one.\n\nTwo"}).text, "one.");
  EXPECT_EQ(Feed(matcher, {"one\ntwo\n", "\n"}).text, "one\ntwo");  // usable again after Flush
  EXPECT_EQ(Feed(matcher, {"\n\n"}).text, "");
  EXPECT_EQ(Feed(matcher, {"one\n"}).text, "one\n");  // held back, then released at the end
}

TEST(StopMatcherTest, HeldTextComesOutWhenItTurnsOutHarmless) {
  StopMatcher matcher = Make({"</s>"});
  EXPECT_EQ(matcher.Push("a<").text, "a");
  EXPECT_EQ(matcher.Push("/").text, "");
  EXPECT_EQ(matcher.Push("<").text, "</");  // the old beginning is out, a new one is held
  EXPECT_EQ(matcher.Push("/t>").text, "</t>");
  EXPECT_EQ(matcher.Push("</s").text, "");
  EXPECT_EQ(matcher.Flush(), "</s");
}

TEST(StopMatcherTest, OverlappingStops) {
  {
    StopMatcher matcher = Make({"bcd", "abcdef"});  // the one that ends first wins: no waiting for the longer one
    const Streamed run = Feed(matcher, {"xabcd", "ef"});
    EXPECT_EQ(run.text, "xa");
    EXPECT_EQ(run.which, 0u);
  }
  {
    StopMatcher matcher = Make({"cd", "abcd", "bcd"});  // same end: the one that starts first
    const Streamed run = Feed(matcher, {"xab", "cd"});
    EXPECT_EQ(run.text, "x");
    EXPECT_EQ(run.which, 1u);
  }
  {
    StopMatcher matcher = Make({"ab", "abc", "ab"});  // same start: the shorter one is complete earlier
    const Streamed run = Feed(matcher, {"xa", "bc"});
    EXPECT_EQ(run.text, "x");
    EXPECT_EQ(run.which, 0u);
  }
  {
    StopMatcher matcher = Make({"aab"});  // a failed beginning that contains another
    EXPECT_EQ(Feed(matcher, {"a", "a", "a", "b"}).text, "a");
  }
  {
    StopMatcher matcher = Make({"abab", "bb"});
    const Streamed run = Feed(matcher, {"ababab"});
    EXPECT_EQ(run.text, "");
    EXPECT_EQ(run.which, 0u);
  }
}

TEST(StopMatcherTest, StopEqualToASpecialTokensText) {
  StopMatcher matcher = Make({"<|im_end|>"});
  const Streamed run = Feed(matcher, {"Hi <", "|im_", "start|> <|im_end|>", "more"});
  EXPECT_EQ(run.text, "Hi <|im_start|> ");
  EXPECT_TRUE(run.stopped);
}

TEST(StopMatcherTest, CharactersAreNeverSplit) {
  const std::string emoji = "\xF0\x9F\x98\x80", other = "\xF0\x9F\x98\x81", cyrillic = "\xD0\x96";
  for (const std::vector<std::string>& stops : {std::vector<std::string>{}, {emoji}, {"x" + cyrillic}}) {
    StopMatcher matcher = Make(stops);
    std::string joined;
    for (char byte : "a" + other + cyrillic + "b" + other) {
      const std::string text = matcher.Push(std::string(1, byte)).text;
      for (size_t i = 0; i < text.size();) {
        const text::Utf8Step step = text::NextUtf8(text, i);
        ASSERT_EQ(step.kind, text::Utf8Kind::kCharacter);
        i += step.length;
      }
      joined += text;
    }
    EXPECT_EQ(joined + matcher.Flush(), "a" + other + cyrillic + "b" + other);
  }
  StopMatcher matcher = Make({emoji});
  EXPECT_EQ(Feed(matcher, {"ok\xF0\x9F", "\x98", "\x80", "!"}).text, "ok");
  EXPECT_EQ(Feed(matcher, {"cut \xF0\x9F"}).text, "cut \xF0\x9F");  // the end of generation inside a character
}

TEST(StopMatcherTest, MalformedBytesPass) {
  StopMatcher matcher = Make({"stop"});
  EXPECT_EQ(Feed(matcher, {"\xFF\x80", "a\xC3", "(st"}).text,
            "\xFF\x80"
            "a\xC3(st");
}

// What the class comment says, on the whole text at once.
struct Expected {
  std::string text;
  std::optional<size_t> which;
};
Expected WholeText(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].size() > end || text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopMatcherTest, RandomTextsInRandomPiecesFollowTheRule) {
  std::mt19937 rng(3);
  const auto word = [&rng](size_t longest) {
    std::string s(1 + rng() % longest, 'a');
    for (char& c : s) c = static_cast<char>('a' + rng() % 3);
    return s;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(rng() % 4);
    for (std::string& stop : stops) stop = word(5) + (rng() % 2 == 0 ? word(3) : "");
    const std::string text = word(40);
    const Expected want = WholeText(stops, text);
    StopMatcher matcher = Make(stops);
    std::string got;
    bool done = false;
    for (size_t at = 0; at < text.size() && !done;) {
      const size_t length = std::min<size_t>(rng() % 5, text.size() - at);
      const StopMatcher::Output out = matcher.Push(std::string_view(text).substr(at, length));
      at += length;
      got += out.text;
      done = out.stopped;
      if (done) {
        ASSERT_EQ(std::optional<size_t>(out.which), want.which);
        continue;
      }
      // Exactly the longest suffix that begins a stop is held back.
      const std::string seen = text.substr(0, at);
      size_t held = 0;
      for (const std::string& stop : stops) {
        for (size_t n = 1; n < stop.size() && n <= seen.size(); ++n) {
          if (seen.compare(seen.size() - n, n, stop, 0, n) == 0) held = std::max(held, n);
        }
      }
      ASSERT_EQ(got.size() + held, seen.size()) << seen;
    }
    got += matcher.Flush();
    ASSERT_EQ(got, want.text) << text;
    ASSERT_EQ(done, want.which.has_value());
    stopped += done ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 2900);
}

}  // namespace
}  // namespace bellhop::decode
