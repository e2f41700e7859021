// Help texts, made from the option table, so that they cannot fall behind it.
#include <fmt/format.h>

#include <algorithm>

#include "config/parse_spec.h"

namespace bellhop::config {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kHelpColumn = 30;

// `text` broken into lines of at most kColumns - indent, each after `indent` spaces; the first line has no indent.
std::string Wrap(std::string_view text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (column > indent && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
    at = end + 1;
  }
  return out;
}

std::string Spellings(const OptionSpec& option) {
  if (!option.named) return option.value_name;
  std::vector<std::string> names;
  for (const std::string& alias : option.aliases) {
    if (!alias.starts_with("--")) names.push_back(alias);
  }
  names.push_back("--" + option.name);
  for (const std::string& alias : option.aliases) {
    if (alias.starts_with("--")) names.push_back(alias);
  }
  std::string text = names.front().starts_with("--") ? "    " : "";
  for (size_t i = 0; i < names.size(); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (option.takes_value()) text += " " + option.value_name;
  return text;
}

std::string OptionHelp(const OptionSpec& option) {
  std::string left = "  " + Spellings(option);
  std::string words = option.help;
  if (!option.default_text.empty()) words += fmt::format(" [{}]", option.default_text);
  if (option.required) words += " (required)";
  if (left.size() + 2 > kHelpColumn) {
    left += "\n" + std::string(kHelpColumn, ' ');
  } else {
    left.resize(kHelpColumn, ' ');
  }
  return left + Wrap(words, kHelpColumn) + "\n";
}

}  // namespace

std::string ProgramHelp(const std::vector<CommandSpec>& commands) {
  std::string text =
      "bellhop runs Mixture-of-Experts language models from GGUF files.\n\n"
      "Usage: bellhop COMMAND [MODEL] [options]\n\nCommands:\n";
  for (const CommandSpec& command : commands) text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  text +=
      "  help        Show the options of a command: bellhop help run\n\n"
      "Options:\n"
      "  -h, --help    This text\n"
      "  --version     Version and commit\n\n"
      "MODEL is a GGUF file; without one, commands take the shipped model.\n"
      "Every option has an environment twin, BELLHOP_CTX_SIZE for --ctx-size, and can be set in a file given by\n"
      "--config FILE.json. Arguments win over the environment, the environment over the file.\n"
      "Exit status: 0 done, 1 failed while running, 2 bad usage or bad input.\n";
  return text;
}

std::string CommandHelp(const CommandSpec& command) {
  std::string text = fmt::format("Usage: bellhop {}{}{} [options]\n\n{}\n", command.name,
                                 command.arguments.empty() ? "" : " ", command.arguments, Wrap(command.description, 0));
  // Groups in the order of their first option; later members join theirs.
  std::vector<std::string> groups;
  for (const OptionSpec& option : command.options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  }
  for (const std::string& group : groups) {
    text += "\n" + group + ":\n";
    for (const OptionSpec& option : command.options) {
      if (option.group == group) text += OptionHelp(option);
    }
  }
  text += "\n" +
          Wrap(
              "Defaults are in brackets. Flags also take =false. BELLHOP_<NAME> in the environment sets an option too "
              "(BELLHOP_CTX_SIZE for --ctx-size).",
              0) +
          "\n";
  return text;
}

}  // namespace bellhop::config
