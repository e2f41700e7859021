// Who may call: API keys, the origins of web pages, and the host names that a request may be meant for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bellhop::server {

// Takes the same time whatever the two have in common; only their lengths show.
bool EqualInConstantTime(std::string_view a, std::string_view b);

struct AccessPolicy {
  std::vector<std::string> api_keys;      // empty: no key is asked for
  std::vector<std::string> cors_origins;  // "https://example.org", or "*" for all; empty: no other page may call
  // Bound to the loopback address alone: requests must be meant for it, so that no web site reaches the server under a
  // name of its own that resolves to 127.0.0.1.
  bool loopback = true;
};

// `authorization`: the header's value, "Bearer KEY"; `x_api_key`: that header's. Either may carry the key.
bool KeyAllowed(const AccessPolicy& policy, std::string_view authorization, std::string_view x_api_key);
// The value of Access-Control-Allow-Origin for a request of this origin; empty: none.
std::string AllowedOrigin(const AccessPolicy& policy, std::string_view origin);
// A page may call its own server: the origin's host and port equal the Host header's.
bool SameOrigin(std::string_view origin, std::string_view host);
bool HostAllowed(const AccessPolicy& policy, std::string_view host);

}  // namespace bellhop::server
