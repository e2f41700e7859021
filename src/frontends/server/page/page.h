// The server's page at /: chat and experts. One document with its style and script inside, which loads nothing else.
#pragma once

#include <string_view>

namespace bellhop::server {

// UTF-8 HTML; valid as long as the program runs.
std::string_view PageHtml();

}  // namespace bellhop::server
