#include "quant/planar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quant/codec.h"
#include "quant/half.h"
#include "quant/packed.h"
#include "quant/planar_encode.h"
#include "quant/random_weights.h"

namespace bellhop::quant {
namespace {

using F = WeightFormat;

std::vector<uint8_t> Hex(std::string_view text) {
  std::vector<uint8_t> bytes;
  std::string digits;
  for (const char c : text) {
    if (c != ' ') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<uint8_t> Pack(F format, int64_t rows, int64_t cols, const std::vector<uint8_t>& codes) {
  const PlanarTraits& p = Planar(format);
  const int64_t bytes = p.k_major ? rows / 2 * cols : rows * ((cols * p.bits + 7) / 8);
  std::vector<std::byte> packed(static_cast<size_t>(bytes), std::byte{0xEE});
  PackCodes(format, rows, cols, codes.data(), packed.data());
  const uint8_t* data = reinterpret_cast<const uint8_t*>(packed.data());
  return {data, data + bytes};
}

// The same places written with the formulas of the layouts alone, for reading back.
std::vector<uint8_t> Unpack(F format, int64_t rows, int64_t cols, const std::vector<uint8_t>& bytes) {
  const PlanarTraits& p = Planar(format);
  QuantView view;
  view.format = format;
  view.rows = rows;
  view.cols = cols;
  view.planes[kCodesPlane] = {reinterpret_cast<const std::byte*>(bytes.data()),
                              p.k_major ? rows / 2 : (cols * p.bits + 7) / 8};
  std::vector<uint8_t> codes;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) codes.push_back(static_cast<uint8_t>(PlanarCode(view, r, c)));
  }
  return codes;
}

std::vector<uint8_t> RandomCodes(int bits, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (uint8_t& c : codes) c = static_cast<uint8_t>(random() & ((1u << bits) - 1));
  return codes;
}

// ---- Golden vectors ------------------------------------------------------------------------------------------------

TEST(PlanarGolden, Int3Bitstream) {
  EXPECT_EQ(Pack(F::kInt3, 1, 8, {0, 1, 2, 3, 4, 5, 6, 7}), Hex("88 C6 FA"));
  EXPECT_EQ(Pack(F::kInt3, 1, 3, {0, 4, 7}), Hex("E0 01"));
  EXPECT_EQ(Pack(F::kInt3, 1, 8, std::vector<uint8_t>(8, 4)), Hex("24 49 92"));
  EXPECT_EQ(Unpack(F::kInt3, 1, 3, Hex("E0 01")), (std::vector<uint8_t>{0, 4, 7}));
  // Rows are padded to whole bytes of their own.
  EXPECT_EQ(Pack(F::kInt3, 2, 3, {0, 4, 7, 7, 4, 0}), Hex("E0 01 27 00"));
}

TEST(PlanarGolden, RawInt4AndInt8) {
  EXPECT_EQ(Pack(F::kInt4, 2, 3, {1, 2, 3, 4, 5, 6}), Hex("21 03 54 06"));
  EXPECT_EQ(Pack(F::kInt8, 2, 2, {1, 200, 3, 255}), Hex("01 C8 03 FF"));
  EXPECT_EQ(Pack(F::kMxfp4Planar, 1, 4, {15, 1, 2, 8}), Hex("1F 82"));
  EXPECT_EQ(Pack(F::kMxfp4KMajor, 4, 2, {0, 1, 2, 3, 4, 5, 6, 7}), Hex("20 64 31 75"));
}

TEST(PlanarGolden, Sm80Int4) {
  std::vector<uint8_t> codes;
  for (int n = 0; n < 4; ++n) {
    for (int k = 0; k < 64; ++k) codes.push_back(static_cast<uint8_t>((5 * n + 3 * k) % 16));
  }
  EXPECT_EQ(Pack(F::kInt4Sm80, 4, 64, codes), Hex("8080b3b3e6e619194c4c7f7fa2a2d5d5 8080b3b3e6e619194c4c7f7fa2a2d5d5"
                                                  "d5d508083b3b6e6e9191c4c4f7f72a2a d5d508083b3b6e6e9191c4c4f7f72a2a"
                                                  "2a2a5d5d8080b3b3e6e619194c4c7f7f 2a2a5d5d8080b3b3e6e619194c4c7f7f"
                                                  "7f7fa2a2d5d508083b3b6e6e9191c4c4 7f7fa2a2d5d508083b3b6e6e9191c4c4"));
}

// ---- The SM80 layouts against the packer's five steps, done one after the other ------------------------------------

struct Sm80Steps {
  int bits;
  std::vector<int> permutation;  // destination position t of a group takes source position permutation[t]
  int interleaved;               // columns (our rows) that share a tile
};

// Input codes [n][k]. 1: signed values, [k][n]. 2: permute k within groups. 3: k contiguous per column. 4: interleave
// columns in tiles of 64 k. 5: add the bias and reorder the elements of each 32-bit word.
std::vector<uint8_t> Sm80Pipeline(const Sm80Steps& s, int n_count, int k_count, const std::vector<uint8_t>& codes) {
  const int bias = 1 << (s.bits - 1);
  std::vector<std::vector<int>> rows(static_cast<size_t>(k_count), std::vector<int>(static_cast<size_t>(n_count)));
  for (int k = 0; k < k_count; ++k) {
    for (int n = 0; n < n_count; ++n) rows[k][n] = codes[static_cast<size_t>(n * k_count + k)] - bias;
  }
  std::vector<std::vector<int>> permuted = rows;
  const int group = static_cast<int>(s.permutation.size());
  for (int k = 0; k < k_count; ++k) permuted[k] = rows[k / group * group + s.permutation[k % group]];
  std::vector<std::vector<int>> columns(static_cast<size_t>(n_count), std::vector<int>(static_cast<size_t>(k_count)));
  for (int k = 0; k < k_count; ++k) {
    for (int n = 0; n < n_count; ++n) columns[n][k] = permuted[k][n];
  }
  std::vector<int> stream;
  for (int first = 0; first < n_count; first += s.interleaved) {
    for (int tile = 0; tile < k_count; tile += 64) {
      for (int n = first; n < first + s.interleaved; ++n) {
        for (int k = tile; k < tile + 64; ++k) stream.push_back(columns[n][k]);
      }
    }
  }
  const int per_word = 32 / s.bits;
  std::vector<uint8_t> bytes;
  for (size_t word = 0; word < stream.size(); word += static_cast<size_t>(per_word)) {
    uint32_t packed = 0;
    for (int i = 0; i < per_word; ++i) {
      const int to = i % 2 == 0 ? i / 2 : per_word / 2 + (i - 1) / 2;
      packed |= static_cast<uint32_t>(stream[word + static_cast<size_t>(i)] + bias) << (s.bits * to);
    }
    for (int b = 0; b < 4; ++b) bytes.push_back(static_cast<uint8_t>(packed >> (8 * b)));
  }
  return bytes;
}

TEST(PlanarSm80, ClosedFormsEqualTheFiveSteps) {
  const Sm80Steps int4 = {4,
                          {0, 1, 8,  9,  16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27,
                           4, 5, 12, 13, 20, 21, 28, 29, 6, 7, 14, 15, 22, 23, 30, 31},
                          4};
  const Sm80Steps int8 = {8, {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}, 2};
  for (const int n : {4, 8, 32, 64}) {
    for (const int k : {64, 128, 192}) {
      for (const auto& [format, steps] : {std::pair(F::kInt4Sm80, int4), std::pair(F::kInt8Sm80, int8)}) {
        const std::vector<uint8_t> codes = RandomCodes(steps.bits, n * k, static_cast<unsigned>(n + k));
        const std::vector<uint8_t> bytes = Sm80Pipeline(steps, n, k, codes);
        EXPECT_EQ(Pack(format, n, k, codes), bytes) << Traits(format).name << " " << n << " " << k;
        EXPECT_EQ(Unpack(format, n, k, bytes), codes) << Traits(format).name << " " << n << " " << k;
      }
    }
  }
}

TEST(PlanarLayout, EveryFormatReadsBackWhatItPacked) {
  for (const FormatTraits& t : AllFormats()) {
    if (!t.planar) continue;
    const PlanarTraits& p = Planar(t.format);
    // Raw rows may end within a byte.
    const std::vector<int64_t> cols =
        p.row_unit > 1 && !p.k_major ? std::vector<int64_t>{64, 320} : std::vector<int64_t>{1, 2, 3, 7, 8, 9, 33, 64};
    for (const int64_t k : cols) {
      const std::vector<uint8_t> codes = RandomCodes(p.bits, 8 * k, static_cast<unsigned>(k));
      EXPECT_EQ(Unpack(t.format, 8, k, Pack(t.format, 8, k, codes)), codes) << t.name << " " << k;
    }
  }
}

TEST(PlanarLayout, KMajorIsTheNibbleTransposeOfRowMajor) {
  const std::vector<uint8_t> codes = RandomCodes(4, 6 * 32, 1);
  const std::vector<uint8_t> row_major = Pack(F::kMxfp4Planar, 6, 32, codes);
  const std::vector<uint8_t> k_major = Pack(F::kMxfp4KMajor, 6, 32, codes);
  for (int n = 0; n < 6; ++n) {
    for (int k = 0; k < 32; ++k) {
      const int a = row_major[static_cast<size_t>(n * 16 + k / 2)] >> (4 * (k % 2)) & 15;
      const int b = k_major[static_cast<size_t>(k * 3 + n / 2)] >> (4 * (n % 2)) & 15;
      EXPECT_EQ(a, b);
    }
  }
}

// ---- Scales --------------------------------------------------------------------------------------------------------

TEST(PlanarScales, E8m0AndE4m3) {
  EXPECT_EQ(kE8m0[127], 1.0f);
  EXPECT_EQ(kE8m0[0], 0x1p-127f);
  EXPECT_EQ(kE8m0[1], 0x1p-126f);
  EXPECT_EQ(kE8m0[254], 0x1p127f);
  EXPECT_TRUE(std::isnan(kE8m0[255]));
  EXPECT_EQ(kE4m3[0x00], 0.0f);
  EXPECT_EQ(kE4m3[0x01], 0x1p-9f);
  EXPECT_EQ(kE4m3[0x07], 7 * 0x1p-9f);
  EXPECT_EQ(kE4m3[0x08], 0x1p-6f);
  EXPECT_EQ(kE4m3[0x38], 1.0f);
  EXPECT_EQ(kE4m3[0x7E], 448.0f);
  EXPECT_EQ(kE4m3[0xFE], -448.0f);
  EXPECT_TRUE(std::isnan(kE4m3[0x7F]) && std::isnan(kE4m3[0xFF]));
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(kE2m1[code], (std::vector<float>{0, 0.5, 1, 1.5, 2, 3, 4, 6})[static_cast<size_t>(code)]);
    EXPECT_EQ(kE2m1[code + 8], -kE2m1[code]);
  }
  EXPECT_TRUE(std::signbit(kE2m1[8]));
}

// One INT4 group of real bit patterns of each type: the same scale 0.75 whatever its encoding.
TEST(PlanarScales, TypesAreReadAsTheirOwnBits) {
  const uint16_t f16 = 0x3A00, bf16 = 0x3F40;
  const float f32 = 0.75f;
  std::vector<uint8_t> codes(32);
  for (size_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(i / 2);
  const std::vector<uint8_t> bytes = Pack(F::kInt4, 1, 32, codes);
  QuantView view;
  view.format = F::kInt4;
  view.rows = 1;
  view.cols = 32;
  view.group = 32;
  view.planes[kCodesPlane] = {reinterpret_cast<const std::byte*>(bytes.data()), 16};
  const std::pair<ScaleType, const void*> scales[] = {
      {ScaleType::kF16, &f16}, {ScaleType::kBF16, &bf16}, {ScaleType::kF32, &f32}};
  for (const auto& [type, data] : scales) {
    view.scale_type = type;
    view.planes[kScalesPlane] = {static_cast<const std::byte*>(data), ScaleBytes(type)};
    ASSERT_TRUE(CheckView(view).ok());
    std::vector<float> row(32);
    DecodeRow(view, 0, row.data());
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(row[i], 0.75f * static_cast<float>(static_cast<int>(i / 2) - 8));
  }
}

// ---- Decoding a whole matrix against its definition ----------------------------------------------------------------

struct Case {
  MatrixSpec spec;
  std::string Name() const {
    return fmt::format("{} {}x{} group {} zp {} type {}", Traits(spec.format).name, spec.rows, spec.cols, spec.group,
                       spec.zero_points, static_cast<int>(spec.scale_type));
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const FormatTraits& t : AllFormats()) {
    if (!t.planar) continue;
    const PlanarTraits& p = Planar(t.format);
    const bool sm80 = p.row_unit > 1 && !p.k_major;
    // Whole blocks, a partial last block, less than one block.
    for (const int64_t cols : sm80 ? std::vector<int64_t>{64, 192, 320} : std::vector<int64_t>{3, 64, 100, 144, 200}) {
      MatrixSpec spec = {.format = t.format, .rows = 8, .cols = cols, .global_scale = 0.5f};
      if (p.fp4) {
        spec.group = p.fp4_group;
        spec.scale_type = p.fp4_group == 32 ? ScaleType::kE8M0 : ScaleType::kE4M3;
        cases.push_back({spec});
        continue;
      }
      for (const int32_t group : {16, 32, 64, 128, static_cast<int32_t>(cols)}) {
        for (const ScaleType type : {ScaleType::kF16, ScaleType::kBF16, ScaleType::kF32}) {
          for (const bool zero_points : {false, true}) {
            spec.group = group;
            spec.scale_type = type;
            spec.zero_points = zero_points;
            cases.push_back({spec});
          }
        }
      }
    }
  }
  return cases;
}

TEST(PlanarDecode, EveryElementIsCodeTimesScale) {
  for (const Case& c : Cases()) {
    const OwnedMatrix m = RandomMatrix(c.spec, 11);
    const QuantView& v = m.view;
    ASSERT_TRUE(CheckView(v).ok()) << c.Name();
    const PlanarTraits& p = Planar(v.format);
    const int64_t scale_bytes = ScaleBytes(v.scale_type);
    bool any = false;
    for (int64_t r = 0; r < v.rows; ++r) {
      std::vector<float> row(static_cast<size_t>(v.cols) + 1, -777.0f);
      DecodeRow(v, r, row.data());
      EXPECT_EQ(row.back(), -777.0f);
      for (int64_t k = 0; k < v.cols; ++k) {
        const int64_t g = k / v.group;
        const std::byte* at = v.planes[kScalesPlane].data + r * v.planes[kScalesPlane].row_bytes + g * scale_bytes;
        float scale = 0;
        switch (v.scale_type) {
          case ScaleType::kF16: scale = F16ToF32(Load<uint16_t>(at)); break;
          case ScaleType::kBF16: scale = Bf16ToF32(Load<uint16_t>(at)); break;
          case ScaleType::kF32: scale = Load<float>(at); break;
          case ScaleType::kE8M0: scale = kE8m0[static_cast<uint8_t>(*at)]; break;
          case ScaleType::kE4M3: scale = kE4m3[static_cast<uint8_t>(*at)]; break;
          case ScaleType::kNone: FAIL();
        }
        float code = PlanarCodeValue(v.format, PlanarCode(v, r, k));
        if (c.spec.zero_points) {
          // Zero points are packed like a raw row of codes.
          const QuantPlane& zeros = v.planes[kZeroPointsPlane];
          const auto* z = reinterpret_cast<const uint8_t*>(zeros.data + r * zeros.row_bytes);
          int zero = 0;
          for (int bit = 0; bit < p.bits; ++bit) {
            const int64_t b = g * p.bits + bit;
            zero |= (z[b / 8] >> (b % 8) & 1) << bit;
          }
          code = static_cast<float>(static_cast<int>(PlanarCode(v, r, k)) - zero);
        }
        ASSERT_EQ(row[static_cast<size_t>(k)], code * scale * 0.5f) << c.Name() << " row " << r << " column " << k;
        any |= row[static_cast<size_t>(k)] != 0;
      }
    }
    EXPECT_TRUE(any) << c.Name();
  }
}

TEST(PlanarSlices, RowsAndColumnsOfAllFormatsKeepTheirValues) {
  std::vector<OwnedMatrix> matrices;
  for (const Case& c : Cases()) matrices.push_back(RandomMatrix(c.spec, 12));
  for (const FormatTraits& t : AllFormats()) {
    if (t.weights && !t.planar) matrices.push_back(RandomMatrix({.format = t.format, .rows = 8, .cols = 768}, 12));
  }
  size_t slices = 0;
  for (const OwnedMatrix& m : matrices) {
    const QuantView& v = m.view;
    const int64_t row_step = RowGranularity(v), col_step = ColumnGranularity(v);
    std::vector<float> whole(static_cast<size_t>(v.cols)), part(static_cast<size_t>(v.cols));
    for (int64_t r0 = 0; r0 < v.rows; r0 += row_step) {
      for (int64_t c0 = 0; c0 < v.cols; c0 += col_step) {
        for (const int64_t c1 : {std::min(c0 + col_step, v.cols), v.cols}) {
          // Cutting twice as well as once.
          const QuantView cut = ColumnSlice(RowSlice(v, r0, std::min(r0 + row_step, v.rows)), c0, c1);
          ASSERT_TRUE(CheckView(cut).ok()) << CheckView(cut).ToString();
          const QuantView again = ColumnSlice(ColumnSlice(v, c0, v.cols), 0, c1 - c0);
          for (int64_t r = 0; r < cut.rows; ++r) {
            DecodeRow(v, r0 + r, whole.data());
            for (const QuantView& slice : {cut, RowSlice(again, r0, v.rows)}) {
              DecodeRow(slice, r, part.data());
              ASSERT_EQ(std::memcmp(part.data(), whole.data() + c0, static_cast<size_t>(c1 - c0) * 4), 0)
                  << Traits(v.format).name << " columns " << c0 << " to " << c1 << " row " << r0 + r;
            }
            ++slices;
          }
        }
        if (v.cols / col_step > 50) c0 += 17 * col_step;  // plain formats: a few are enough
      }
    }
  }
  EXPECT_GT(slices, 1000u);
}

TEST(PlanarSlices, PlanarSlicesDecodeAnyColumns) {
  const OwnedMatrix m = RandomMatrix(
      {.format = F::kInt3, .rows = 2, .cols = 200, .scale_type = ScaleType::kBF16, .group = 64, .zero_points = true},
      4);
  std::vector<float> whole(200), part(200);
  DecodeRow(m.view, 1, whole.data());
  for (const int64_t begin : {0, 1, 63, 64, 65, 199}) {
    DecodePlanarSlice(m.view, 1, begin, 200 - begin, part.data());
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, static_cast<size_t>(200 - begin) * 4), 0) << begin;
  }
}

// ---- Sizes and checks ----------------------------------------------------------------------------------------------

TEST(PlanarSizes, ViewBytesCountsEveryPlane) {
  const auto bytes = [](const MatrixSpec& spec) {
    std::vector<std::byte> memory(MatrixBytes(spec));
    return ViewBytes(PlaceMatrix(spec, memory.data()));
  };
  // 2 bytes per scale, half a byte per zero point.
  EXPECT_EQ(bytes({F::kInt4, 8, 96, ScaleType::kF16, 32}), 8u * (48 + 6));
  EXPECT_EQ(bytes({F::kInt4, 8, 96, ScaleType::kF16, 32, true}), 8u * (48 + 6 + 2));
  EXPECT_EQ(bytes({F::kInt3, 5, 100, ScaleType::kF32, 64, true}), 5u * (38 + 8 + 1));
  EXPECT_EQ(bytes({F::kInt8Sm80, 8, 128, ScaleType::kBF16, 128}), 8u * (128 + 2));
  EXPECT_EQ(bytes({F::kNvfp4KMajor, 6, 32, ScaleType::kE4M3, 16}), 6u * (16 + 2));
  EXPECT_EQ(bytes({F::kMXFP4, 3, 64}), 3u * 34);
}

TEST(PlanarChecks, ReportWhatDoesNotFit) {
  std::vector<std::byte> memory(1 << 16);
  const auto view = [&](const MatrixSpec& spec) { return PlaceMatrix(spec, memory.data()); };
  const MatrixSpec good = {F::kInt4, 8, 96, ScaleType::kF16, 32};
  ASSERT_TRUE(CheckView(view(good)).ok());

  const std::pair<MatrixSpec, const char*> bad_specs[] = {
      {{F::kInt4, 0, 96, ScaleType::kF16, 32}, "0 rows"},
      {{F::kInt4, 8, 0, ScaleType::kF16, 32}, "0 columns"},
      {{F::kInt4, 8, 96, ScaleType::kE8M0, 32}, "E8M0 scales"},
      {{F::kInt4, 8, 96, ScaleType::kNone, 32}, "none scales"},
      {{F::kInt4, 8, 96, ScaleType::kF16, 0}, "groups of 0"},
      {{F::kInt4, 8, 96, ScaleType::kF16, -1}, "groups of -1"},
      {{F::kInt4, 8, 96, ScaleType::kF16, 48}, "groups of 48"},
      {{F::kInt4Sm80, 8, 192, ScaleType::kF16, 96}, "a multiple of 64"},
      {{F::kInt4Sm80, 6, 64, ScaleType::kF16, 32}, "multiples of 4 rows"},
      {{F::kInt4Sm80, 8, 96, ScaleType::kF16, 32}, "64 columns"},
      {{F::kInt8Sm80, 3, 64, ScaleType::kF16, 32}, "multiples of 2 rows"},
      {{F::kMxfp4Planar, 8, 96, ScaleType::kF16, 32}, "takes E8M0"},
      {{F::kMxfp4Planar, 8, 96, ScaleType::kE8M0, 16}, "groups of 16"},
      {{F::kNvfp4Planar, 8, 96, ScaleType::kE4M3, 32}, "groups of 32"},
      {{F::kNvfp4Planar, 8, 96, ScaleType::kE4M3, 16, true}, "zero points"},
      {{F::kMxfp4KMajor, 7, 96, ScaleType::kE8M0, 32}, "multiples of 2 rows"},
      {{F::kQ4_0, 8, 40}, "multiple of 32"},
      {{F::kQ8K, 8, 256}, "holds no weights"},
  };
  for (const auto& [spec, text] : bad_specs) {
    const Status status = CheckSpec(spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.message();
  }

  QuantView v = view(good);
  v.planes[kScalesPlane].data = nullptr;
  EXPECT_NE(CheckView(v).message().find("without scales"), std::string_view::npos) << CheckView(v).message();
  v = view(good);
  v.planes[kScalesPlane].row_bytes = 5;
  EXPECT_NE(CheckView(v).message().find("takes 6"), std::string_view::npos) << CheckView(v).message();
  v = view(good);
  v.planes[kCodesPlane].row_bytes = 47;
  EXPECT_FALSE(CheckView(v).ok());
  v = view(good);
  v.planes[kZeroPointsPlane] = {memory.data(), 1};
  EXPECT_NE(CheckView(v).message().find("zero points"), std::string_view::npos) << CheckView(v).message();
  v = view(good);
  v.first_group = -1;
  EXPECT_FALSE(CheckView(v).ok());
  v = view({F::kQ4_0, 8, 64});
  EXPECT_TRUE(CheckView(v).ok());
  v.planes[kCodesPlane].row_bytes = 35;
  EXPECT_FALSE(CheckView(v).ok());
  v = view({F::kF32, 1, 1});
  v.rows = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(CheckView(v).ok());
}

// ---- Encoding ------------------------------------------------------------------------------------------------------

std::vector<float> Gaussian(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TEST(PlanarEncode, ValuesComeBackWithinHalfAStep) {
  for (const Case& c : Cases()) {
    const std::vector<float> x = Gaussian(c.spec.rows * c.spec.cols, 8);
    std::vector<std::byte> memory(MatrixBytes(c.spec));
    const auto view = EncodeMatrix(c.spec, x.data(), memory);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    ASSERT_TRUE(CheckView(*view).ok());
    const PlanarTraits& p = Planar(c.spec.format);
    std::vector<float> row(static_cast<size_t>(c.spec.cols));
    for (int64_t r = 0; r < c.spec.rows; ++r) {
      DecodeRow(*view, r, row.data());
      for (int64_t k = 0; k < c.spec.cols; ++k) {
        const float want = x[static_cast<size_t>(r * c.spec.cols + k)];
        const float scale = std::fabs(PlanarScale(*view, r, k / view->group)) * 0.5f;
        // FP4: the widest step is 2, and MXFP4's power-of-two scale clips what is above 6 of its 8 steps. Integers:
        // half a step, a little more for rounding the scale, and another half where the zero point was rounded.
        const float steps = p.fp4 ? 2.01f : c.spec.zero_points ? 1.6f : 0.6f;
        ASSERT_LE(std::fabs(row[static_cast<size_t>(k)] - want), steps * scale) << c.Name() << " " << r << " " << k;
      }
    }
  }
}

TEST(PlanarEncode, Int3FollowsTheReferenceRule) {
  // scale = max(4 / 4, 6 / 3) = 2; an all-zero block stores a zero scale and zero-point codes.
  std::vector<float> x(64, 0.0f);
  x[0] = -4;
  x[1] = 6;
  x[2] = 3;  // 1.5 rounds to even: 2
  x[3] = 1;  // 0.5 rounds to even: 0
  const MatrixSpec spec = {F::kInt3, 1, 64, ScaleType::kF16, 32};
  std::vector<std::byte> memory(MatrixBytes(spec));
  const auto view = EncodeMatrix(spec, x.data(), memory);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(PlanarScale(*view, 0, 0), 2.0f);
  EXPECT_EQ(PlanarScale(*view, 0, 1), 0.0f);
  EXPECT_EQ(PlanarCode(*view, 0, 0), 2u);
  EXPECT_EQ(PlanarCode(*view, 0, 1), 7u);
  EXPECT_EQ(PlanarCode(*view, 0, 2), 6u);
  EXPECT_EQ(PlanarCode(*view, 0, 3), 4u);
  for (int64_t k = 4; k < 64; ++k) EXPECT_EQ(PlanarCode(*view, 0, k), 4u);
}

TEST(PlanarEncode, RefusesWhatItCannotHold) {
  std::vector<float> x(8 * 64, 1.0f);
  const MatrixSpec spec = {F::kInt4, 8, 64, ScaleType::kF16, 32};
  std::vector<std::byte> memory(MatrixBytes(spec));
  EXPECT_TRUE(EncodeMatrix(spec, x.data(), memory).ok());
  EXPECT_FALSE(EncodeMatrix(spec, x.data(), {memory.data(), memory.size() - 1}).ok());
  EXPECT_FALSE(EncodeMatrix({F::kQ4_0, 8, 64}, x.data(), memory).ok());
  EXPECT_FALSE(EncodeMatrix({F::kInt4, 8, 64, ScaleType::kF16, 7}, x.data(), memory).ok());
  x[65] = std::numeric_limits<float>::infinity();
  const auto status = EncodeMatrix(spec, x.data(), memory).status();
  EXPECT_NE(status.message().find("row 1 column 1"), std::string_view::npos) << status.message();
}

}  // namespace
}  // namespace bellhop::quant
