#include "manifest/metadata.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace bellhop::manifest {
namespace {

MetaValue Uint(uint64_t v, MetaType type = MetaType::kU32) { return {type, v}; }
MetaValue Int(int64_t v, MetaType type = MetaType::kI32) { return {type, v}; }
MetaValue Float(double v, MetaType type = MetaType::kF32) { return {type, v}; }
MetaValue Bool(bool v) { return {MetaType::kBool, v}; }
MetaValue Text(std::string_view v) { return {MetaType::kString, v}; }

// The payload must outlive the value, as a mapped file does.
template <typename T>
MetaValue RawArray(MetaType type, const std::vector<T>& payload) {
  auto array = std::make_shared<MetaArray>();
  array->element_type = type;
  array->count = payload.size();
  array->raw = {reinterpret_cast<const std::byte*>(payload.data()), payload.size() * sizeof(T)};
  return {MetaType::kArray, array};
}

TEST(Metadata, KeepsFileOrderAndRefusesDuplicates) {
  Metadata m;
  ASSERT_TRUE(m.Add("z", Uint(1)).ok());
  ASSERT_TRUE(m.Add("a", Uint(2)).ok());
  const Status twice = m.Add("z", Uint(3));
  EXPECT_EQ(twice.code(), StatusCode::kCorrupt);
  EXPECT_NE(twice.message().find("'z'"), std::string_view::npos);
  ASSERT_EQ(m.entries().size(), 2u);
  EXPECT_EQ(m.entries()[0].key, "z");
  EXPECT_EQ(m.entries()[1].key, "a");
  EXPECT_EQ(*m.GetUint("z"), 1u);
}

TEST(Metadata, IntegerGettersTakeEveryWidthAndCheckTheSign) {
  Metadata m;
  ASSERT_TRUE(m.Add("u8", Uint(200, MetaType::kU8)).ok());
  ASSERT_TRUE(m.Add("i64", Int(7, MetaType::kI64)).ok());
  ASSERT_TRUE(m.Add("neg", Int(-7)).ok());
  ASSERT_TRUE(m.Add("big", Uint(std::numeric_limits<uint64_t>::max(), MetaType::kU64)).ok());
  EXPECT_EQ(*m.GetUint("u8"), 200u);
  EXPECT_EQ(*m.GetInt("u8"), 200);
  EXPECT_EQ(*m.GetUint("i64"), 7u);
  EXPECT_EQ(*m.GetInt("neg"), -7);
  EXPECT_EQ(m.GetUint("neg").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(*m.GetUint("big"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(m.GetInt("big").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(*m.GetFloat("neg"), -7.0);
}

TEST(Metadata, WrongTypeNamesKeyStoredAndWantedType) {
  Metadata m;
  ASSERT_TRUE(m.Add("k", Text("hello")).ok());
  const Status s = m.GetUint("k").status();
  EXPECT_EQ(s.code(), StatusCode::kCorrupt);
  for (const char* part : {"'k'", "string", "integer"}) {
    EXPECT_NE(s.message().find(part), std::string_view::npos) << s.message();
  }
  EXPECT_EQ(m.GetFloat("k").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(m.GetBool("k").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(m.GetIntArray("k").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(m.GetStringArray("k").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(*m.GetString("k"), "hello");
}

TEST(Metadata, MissingKeysAreNotFoundAndFallbacksApplyOnlyThen) {
  Metadata m;
  ASSERT_TRUE(m.Add("text", Text("x")).ok());
  EXPECT_EQ(m.GetUint("none").status().code(), StatusCode::kNotFound);
  EXPECT_NE(m.GetUint("none").status().message().find("'none'"), std::string_view::npos);
  EXPECT_EQ(*m.GetUintOr("none", 5), 5u);
  EXPECT_EQ(*m.GetFloatOr("none", 0.5), 0.5);
  EXPECT_EQ(*m.GetBoolOr("none", true), true);
  EXPECT_EQ(*m.GetStringOr("none", "d"), "d");
  EXPECT_EQ(m.GetUintOr("text", 5).status().code(), StatusCode::kCorrupt);
}

TEST(Metadata, FlagsTakeBoolsAndZeroOne) {
  Metadata m;
  ASSERT_TRUE(m.Add("b", Bool(true)).ok());
  ASSERT_TRUE(m.Add("one", Uint(1)).ok());
  ASSERT_TRUE(m.Add("two", Int(2)).ok());
  EXPECT_TRUE(*m.GetBool("b"));
  EXPECT_TRUE(*m.GetBool("one"));
  EXPECT_EQ(m.GetBool("two").status().code(), StatusCode::kCorrupt);
}

TEST(Metadata, ArraysConvertFromAnyWidthIncludingUnalignedPayloads) {
  const std::vector<uint8_t> u8 = {1, 3, 255};
  const std::vector<int64_t> i64 = {-1, 4};
  const std::vector<double> f64 = {0.5, -2};
  const std::vector<int16_t> i16 = {-3, 9};
  // f32 elements at an odd address.
  std::vector<uint8_t> shifted(1 + 2 * sizeof(float));
  const float values[2] = {1.25f, -8.f};
  std::memcpy(shifted.data() + 1, values, sizeof(values));
  auto unaligned = std::make_shared<MetaArray>();
  unaligned->element_type = MetaType::kF32;
  unaligned->count = 2;
  unaligned->raw = {reinterpret_cast<const std::byte*>(shifted.data() + 1), sizeof(values)};

  Metadata m;
  ASSERT_TRUE(m.Add("u8", RawArray(MetaType::kU8, u8)).ok());
  ASSERT_TRUE(m.Add("i64", RawArray(MetaType::kI64, i64)).ok());
  ASSERT_TRUE(m.Add("f64", RawArray(MetaType::kF64, f64)).ok());
  ASSERT_TRUE(m.Add("i16", RawArray(MetaType::kI16, i16)).ok());
  ASSERT_TRUE(m.Add("f32", {MetaType::kArray, unaligned}).ok());
  EXPECT_EQ(*m.GetIntArray("u8"), (std::vector<int64_t>{1, 3, 255}));
  EXPECT_EQ(*m.GetIntArray("i64"), (std::vector<int64_t>{-1, 4}));
  EXPECT_EQ(*m.GetFloatArray("f64"), (std::vector<float>{0.5f, -2.f}));
  EXPECT_EQ(*m.GetFloatArray("i16"), (std::vector<float>{-3.f, 9.f}));
  EXPECT_EQ(*m.GetFloatArray("f32"), (std::vector<float>{1.25f, -8.f}));
  EXPECT_EQ(m.GetIntArray("f64").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(m.GetBoolArray("u8").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(m.GetUint("u8").status().code(), StatusCode::kCorrupt);
}

TEST(Metadata, FloatArrayRefusesValuesBeyondF32) {
  const std::vector<double> f64 = {1e300};
  Metadata m;
  ASSERT_TRUE(m.Add("f64", RawArray(MetaType::kF64, f64)).ok());
  EXPECT_EQ(m.GetFloatArray("f64").status().code(), StatusCode::kCorrupt);
}

TEST(Metadata, BoolArraysTakeBoolsAndIntegers) {
  const std::vector<uint8_t> bytes = {1, 0, 1};
  const std::vector<uint32_t> ints = {0, 1};
  Metadata m;
  ASSERT_TRUE(m.Add("b", RawArray(MetaType::kBool, bytes)).ok());
  ASSERT_TRUE(m.Add("i", RawArray(MetaType::kU32, ints)).ok());
  EXPECT_EQ(*m.GetBoolArray("b"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*m.GetBoolArray("i"), (std::vector<bool>{false, true}));
}

TEST(Metadata, ToStringIsOneShortLine) {
  const std::vector<uint32_t> ints = {1, 2, 3};
  EXPECT_EQ(ToString(RawArray(MetaType::kU32, ints), 2), "u32[3] {1, 2, ...}");
  EXPECT_EQ(ToString(RawArray(MetaType::kU32, ints), 8), "u32[3] {1, 2, 3}");
  EXPECT_EQ(ToString(Text("a\n\"\x01")), "\"a\\n\\\"\\x01\"");
  EXPECT_EQ(ToString(Float(0.1f)), "0.1");
  EXPECT_EQ(ToString(Bool(false)), "false");
  EXPECT_LT(ToString(Text(std::string(5000, 'x'))).size(), 200u);
}

TEST(Metadata, StringArrays) {
  auto array = std::make_shared<MetaArray>();
  array->element_type = MetaType::kString;
  array->strings = {"a", "", "bc"};
  array->count = 3;
  Metadata m;
  ASSERT_TRUE(m.Add("s", {MetaType::kArray, array}).ok());
  EXPECT_EQ(*m.GetStringArray("s"), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_EQ(std::get<std::string_view>(array->At(2).value), "bc");
  EXPECT_EQ(m.GetIntArray("s").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace bellhop::manifest
