// What the parsers of chat output share. A machine takes steps over buffered text; a step takes a decision that more
// text could not change, or waits.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_output.h"

namespace bellhop::text {

inline constexpr std::string_view kWhite = " \t\r\n";

// Bytes at the end of `text` that may be the beginning of `tag`, the whole tag excepted.
size_t TagSuffix(std::string_view text, std::string_view tag);
size_t WhiteSuffix(std::string_view text);

class ChatOutputParser::Machine {
 public:
  virtual ~Machine() = default;
  void Push(std::string_view text, std::vector<ChatDelta>* deltas);
  void Finish(std::vector<ChatDelta>* deltas);
  int32_t tools() const { return tools_; }

 protected:
  // Takes text off the buffer's front. False: nothing more can be decided; with `last` everything must have been taken.
  virtual bool Step(bool last) = 0;

  void Emit(ChatDelta::Kind kind, std::string_view text);
  void BeginTool(std::string_view name);

  std::string buffer_;

 private:
  std::vector<ChatDelta>* out_ = nullptr;
  int32_t tools_ = 0;
};

std::unique_ptr<ChatOutputParser::Machine> MakeTagMachine(const ChatOutputParser::Options& options);
std::unique_ptr<ChatOutputParser::Machine> MakeHarmonyMachine(const ChatOutputParser::Options& options);

// The head of a call in JSON, {"name": "...", "arguments": as far as a value begins.
struct CallHead {
  enum class State : uint8_t { kUnfinished, kFound, kOther };
  State state = State::kOther;
  std::string name;
  size_t end = 0;  // where the arguments begin
};
CallHead ReadCallHead(std::string_view text);

// Finds the end of a JSON object that comes in pieces.
class JsonObjectEnd {
 public:
  // Bytes of `text` that belong to the object; less than all once it is complete.
  size_t Take(std::string_view text);
  bool complete() const { return complete_; }

 private:
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, complete_ = false;
};

}  // namespace bellhop::text
