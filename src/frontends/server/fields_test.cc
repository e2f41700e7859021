#include "frontends/server/fields.h"

#include <gtest/gtest.h>

#include "frontends/server/json_text.h"

namespace bellhop::server {
namespace {

TEST(FieldsTest, ReadsAndNamesWhatIsWrong) {
  const Json body = {{"a", 5.0}, {"b", "x"}, {"c", nullptr}, {"d", true}, {"e", Json::array()}};
  FieldReader good(body);
  EXPECT_EQ(good.Integer("a", 0, 10), 5);
  EXPECT_EQ(good.String("b"), "x");
  EXPECT_FALSE(good.String("c").has_value());
  EXPECT_EQ(good.Bool("d"), true);
  EXPECT_NE(good.Array("e"), nullptr);
  good.RejectUnknown();
  EXPECT_TRUE(good.ok());

  FieldReader wrong(body, "top[1]");
  EXPECT_FALSE(wrong.Integer("a", 6, 10).has_value());
  EXPECT_EQ(wrong.error().param, "top[1].a");
  EXPECT_NE(wrong.error().message.find("from 6 to 10"), std::string::npos);
  EXPECT_FALSE(wrong.String("b").has_value()) << "nothing is read after an error";

  FieldReader type(body);
  EXPECT_FALSE(type.Bool("b").has_value());
  EXPECT_EQ(type.error().message, "b: must be true or false, not a string");

  FieldReader unknown(body);
  unknown.Accept({"a", "b", "c", "d"});
  unknown.RejectUnknown();
  EXPECT_EQ(unknown.error().param, "e");

  FieldReader refused(body);
  refused.Refuse("c", nullptr, "no");
  EXPECT_TRUE(refused.ok());
  refused.Refuse("b", "y", "only y");
  EXPECT_EQ(refused.error().message, "b: only y");
}

TEST(FieldsTest, WholeNumbersAlone) {
  for (const Json& value : {Json(1.5), Json(-1), Json(11), Json(1e300), Json("1"), Json(true)}) {
    const Json body = {{"n", value}};
    FieldReader reader(body);
    EXPECT_FALSE(reader.Integer("n", 0, 10).has_value()) << value;
    EXPECT_FALSE(reader.ok()) << value;
  }
}

TEST(FieldsTest, BodiesOfRequests) {
  EXPECT_TRUE(ParseJsonObject("{\"a\": [1, {\"b\": \"]]]\"}]}").ok());
  for (const char* bad : {"", "[]", "3", "{", "{\"a\": }", "{\"a\": \"\xff\"}", "{} {}"}) {
    EXPECT_FALSE(ParseJsonObject(bad).ok()) << bad;
  }
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  const auto refused = ParseJsonObject(deep);
  EXPECT_NE(refused.status().message().find("nested deeper"), std::string_view::npos);
  EXPECT_EQ(JsonText({{"a", "\xff"}}), "{\"a\":\"\xEF\xBF\xBD\"}");
}

}  // namespace
}  // namespace bellhop::server
