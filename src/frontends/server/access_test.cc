#include "frontends/server/access.h"

#include <gtest/gtest.h>

namespace bellhop::server {
namespace {

TEST(AccessTest, ComparesWhole) {
  EXPECT_TRUE(EqualInConstantTime("secret", "secret"));
  for (const char* wrong : {"", "s", "secre", "secrets", "secreT", "Secret", "secretsecret"}) {
    EXPECT_FALSE(EqualInConstantTime(wrong, "secret")) << wrong;
  }
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_FALSE(EqualInConstantTime("x", ""));
}

TEST(AccessTest, KeysInEitherHeader) {
  AccessPolicy policy;
  EXPECT_TRUE(KeyAllowed(policy, "", ""));
  policy.api_keys = {"one", "two"};
  EXPECT_TRUE(KeyAllowed(policy, "Bearer one", ""));
  EXPECT_TRUE(KeyAllowed(policy, "Bearer two", ""));
  EXPECT_TRUE(KeyAllowed(policy, "", "two"));
  for (const char* wrong : {"", "one", "Bearer", "Bearer ", "Bearer three", "bearer one", "Basic one"}) {
    EXPECT_FALSE(KeyAllowed(policy, wrong, "")) << wrong;
  }
  EXPECT_FALSE(KeyAllowed(policy, "", ""));
}

TEST(AccessTest, OriginsAreOffUnlessAsked) {
  AccessPolicy policy;
  EXPECT_EQ(AllowedOrigin(policy, "https://a.example"), "");
  policy.cors_origins = {"https://a.example"};
  EXPECT_EQ(AllowedOrigin(policy, "https://a.example"), "https://a.example");
  EXPECT_EQ(AllowedOrigin(policy, "https://b.example"), "");
  EXPECT_EQ(AllowedOrigin(policy, "https://a.example.org"), "");
  policy.cors_origins = {"*"};
  EXPECT_EQ(AllowedOrigin(policy, "https://b.example"), "https://b.example");
  EXPECT_EQ(AllowedOrigin(policy, ""), "");
}

TEST(AccessTest, APageMayCallItsOwnServer) {
  EXPECT_TRUE(SameOrigin("http://127.0.0.1:8080", "127.0.0.1:8080"));
  EXPECT_FALSE(SameOrigin("http://127.0.0.1:8081", "127.0.0.1:8080"));
  EXPECT_FALSE(SameOrigin("null", "127.0.0.1:8080"));
}

TEST(AccessTest, HostsOfALoopbackServer) {
  AccessPolicy policy;
  for (const char* good : {"", "localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"}) {
    EXPECT_TRUE(HostAllowed(policy, good)) << good;
  }
  for (const char* bad : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80"}) {
    EXPECT_FALSE(HostAllowed(policy, bad)) << bad;
  }
  policy.loopback = false;
  EXPECT_TRUE(HostAllowed(policy, "my.host:8080"));
}

}  // namespace
}  // namespace bellhop::server
