#include "frontends/server/access.h"

#include <algorithm>

namespace bellhop::server {

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  // Volatile: the loop may not be left early.
  volatile unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference =
        difference | static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other));
  }
  return difference == 0;
}

bool KeyAllowed(const AccessPolicy& policy, std::string_view authorization, std::string_view x_api_key) {
  if (policy.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view key = x_api_key;
  if (authorization.starts_with(kBearer)) key = authorization.substr(kBearer.size());
  bool allowed = false;
  for (const std::string& candidate : policy.api_keys) allowed = EqualInConstantTime(key, candidate) || allowed;
  return allowed;
}

std::string AllowedOrigin(const AccessPolicy& policy, std::string_view origin) {
  if (origin.empty()) return {};
  for (const std::string& allowed : policy.cors_origins) {
    if (allowed == "*" || allowed == origin) return std::string(origin);
  }
  return {};
}

bool SameOrigin(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && origin.substr(scheme + 3) == host;
}

bool HostAllowed(const AccessPolicy& policy, std::string_view host) {
  if (!policy.loopback || host.empty()) return true;
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos;
  const std::string_view name = has_port ? host.substr(0, colon) : host;
  constexpr std::string_view kNames[] = {"localhost", "127.0.0.1", "[::1]"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace bellhop::server
