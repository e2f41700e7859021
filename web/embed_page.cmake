# cmake -DSOURCE=<folder of web/> -DOUT=<folder> -P embed_page.cmake
# Writes OUT/page.html, index.html with each line @@name@@ replaced by that file, and OUT/page_html.cc, the same as an
# array of bytes.
file(READ "${SOURCE}/index.html" page)
foreach(part page.css common.js markdown.js chat.js experts.js start.js)
  file(READ "${SOURCE}/${part}" text)
  string(FIND "${text}" "</script" closes)
  if(NOT closes EQUAL -1)
    message(FATAL_ERROR "${part} contains </script, which would end the script that it is placed in")
  endif()
  string(FIND "${page}" "@@${part}@@" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "index.html has no place for ${part}: @@${part}@@")
  endif()
  string(REPLACE "@@${part}@@" "${text}" page "${page}")
endforeach()
file(WRITE "${OUT}/page.html" "${page}")
file(READ "${OUT}/page.html" hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" lines "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${lines}")
file(WRITE "${OUT}/page_html.cc" "// Generated from web/ by web/embed_page.cmake.
#include \"frontends/server/page/page.h\"

namespace bellhop::server {
namespace {

constexpr unsigned char kPage[] = {
${bytes}
};

}  // namespace

std::string_view PageHtml() { return {reinterpret_cast<const char*>(kPage), sizeof(kPage)}; }

}  // namespace bellhop::server
")
