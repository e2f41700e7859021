// Small text files of the kernel (/sys, /proc, cgroups), read without failing: what is missing is std::nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bellhop::sys {

// The whole file (at most 1 MiB) without trailing white space.
std::optional<std::string> ReadKernelText(const std::string& path);

// A decimal integer that fills the text, white space around it apart.
std::optional<int64_t> ParseKernelInt(std::string_view text);
std::optional<int64_t> ReadKernelInt(const std::string& path);

// "0-3,8,10-11" as an ascending list without duplicates; "" is the empty list. Numbers stop at 65535.
std::optional<std::vector<int>> ParseCpuList(std::string_view text);
std::optional<std::vector<int>> ReadCpuList(const std::string& path);

// The inverse, for messages.
std::string FormatCpuList(const std::vector<int>& ascending);

// Lines without their ends; fields between runs of spaces and tabs.
std::vector<std::string_view> SplitLines(std::string_view text);
std::vector<std::string_view> SplitFields(std::string_view line);

}  // namespace bellhop::sys
