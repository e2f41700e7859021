#include "kernels/cuda/gpu_rig_for_test.h"

#include <cmath>

#include "base/units.h"
#include "kernels/cuda/tile_pack.h"
#include "quant/codebooks.h"
#include "quant/codec.h"
#include "quant/format.h"
#include "quant/half.h"
#include "quant/random_weights.h"

namespace bellhop::kernels {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }

int32_t Stride(int32_t cols) { return static_cast<int32_t>(RoundUp(int64_t{cols}, int64_t{kTermPadding})); }

template <typename T>
std::vector<T> Table(const T* from, size_t count) {
  return {from, from + count};
}

}  // namespace

std::unique_ptr<GpuRig> GpuRig::Open() {
  auto rig = std::make_unique<GpuRig>();
  auto device = cuda::Device::Open(DeviceId(0), &rig->ledger_);
  if (!device.ok()) {
    EXPECT_EQ(device.status().code(), StatusCode::kNotFound) << device.status().ToString();
    return nullptr;
  }
  rig->device_ = std::move(*device);
  auto stream = cuda::Stream::Create(rig->device_.get());
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  if (!stream.ok()) return nullptr;
  rig->stream_ = std::make_unique<cuda::Stream>(std::move(*stream));
  rig->books_ = HostCodebooks();
  Codebooks& b = rig->books_;
  b.iq2xxs_grid = rig->Upload(Table(b.iq2xxs_grid, sizeof(quant::kIq2xxsGrid)));
  b.iq2xs_grid = rig->Upload(Table(b.iq2xs_grid, sizeof(quant::kIq2xsGrid)));
  b.iq2s_grid = rig->Upload(Table(b.iq2s_grid, sizeof(quant::kIq2sGrid)));
  b.iq3xxs_grid = rig->Upload(Table(b.iq3xxs_grid, sizeof(quant::kIq3xxsGrid)));
  b.iq3s_grid = rig->Upload(Table(b.iq3s_grid, sizeof(quant::kIq3sGrid)));
  b.iq1s_grid_nibbles = rig->Upload(Table(b.iq1s_grid_nibbles, 2048));
  rig->kept_ = rig->buffers_.size();
  return rig;
}

uint8_t* GpuRig::PoisonedBytes(uint64_t bytes) {
  auto buffer = cuda::DeviceBuffer::Create(device_.get(), std::max<uint64_t>(bytes, 16), MemoryTag::kWorkspace);
  EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
  if (!buffer.ok()) return nullptr;
  buffers_.push_back(std::move(*buffer));
  const auto memory = buffers_.back().bytes();
  EXPECT_EQ(cudaMemset(memory.data(), 0xFF, memory.size()), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return reinterpret_cast<uint8_t*>(memory.data());
}

uint8_t* GpuRig::Pinned(uint64_t bytes) {
  auto buffer = cuda::PinnedBuffer::Create(device_.get(), bytes, MemoryTag::kStaging);
  EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
  if (!buffer.ok()) return nullptr;
  pinned_.push_back(std::move(*buffer));
  return pinned_.back().as<uint8_t>().data();
}

void GpuRig::Copy(void* to, const void* from, uint64_t bytes) {
  Wait();
  if (bytes == 0) return;
  EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
  // A copy of pageable memory may still be under way, and the rig's stream does not wait for it.
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

void GpuRig::Wait() {
  const Status status = stream_->Synchronize();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

void GpuRig::FreeMemory() {
  Wait();
  buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(kept_), buffers_.end());
  pinned_.clear();
}

namespace {

HostMatrix RandomPlanarMatrix(quant::WeightFormat format, int32_t rows, int32_t cols, uint64_t seed) {
  const bool fp4 = format == quant::WeightFormat::kMxfp4Planar;
  const int32_t least = TileScaleColumns(format);
  const quant::MatrixSpec spec{.format = format,
                               .rows = rows,
                               .cols = cols,
                               .scale_type = fp4 ? quant::ScaleType::kE8M0 : quant::ScaleType::kF16,
                               .group = fp4 || cols % 3 != 0 ? least : 2 * least};
  EXPECT_TRUE(quant::CheckSpec(spec).ok()) << quant::CheckSpec(spec).ToString();
  const quant::OwnedMatrix made = quant::RandomMatrix(spec, seed);
  const auto plane = [&](size_t p, int64_t* row_bytes) {
    const quant::QuantPlane& from = made.view.planes[p];
    *row_bytes = from.row_bytes;
    const auto* const begin = reinterpret_cast<const uint8_t*>(from.data);
    return std::vector<uint8_t>(begin, begin + rows * from.row_bytes);
  };
  HostMatrix m;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  m.file = plane(quant::kCodesPlane, &m.row_bytes);
  m.planar = {.format = format, .group = spec.group};
  m.scales = plane(quant::kScalesPlane, &m.planar.scale_row_bytes);
  m.weights.resize(Size(int64_t{rows} * cols));
  for (int32_t r = 0; r < rows; ++r) quant::DecodeRow(made.view, r, m.weights.data() + int64_t{r} * cols);
  return m;
}

}  // namespace

HostMatrix RandomHostMatrix(quant::WeightFormat format, int32_t rows, int32_t cols, uint64_t seed) {
  if (PlanarBits(format) > 0) return RandomPlanarMatrix(format, rows, cols, seed);
  HostMatrix m;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  m.row_bytes = static_cast<int64_t>(quant::RowBytes(format, static_cast<uint64_t>(cols)).value());
  m.file.resize(Size(rows * m.row_bytes));
  m.weights.resize(Size(int64_t{rows} * cols));
  for (int32_t r = 0; r < rows; ++r) {
    auto* const row = reinterpret_cast<std::byte*>(m.file.data() + r * m.row_bytes);
    quant::FillRandomBlocks(format, cols, quant::RandomScales::kModerate, seed * 100003 + static_cast<uint64_t>(r),
                            row);
    quant::DecodeRow(format, row, cols, m.weights.data() + int64_t{r} * cols);
  }
  return m;
}

MatrixLayout UsualLayout(quant::WeightFormat format) {
  return Tiles(TileFormatOf(format)).chunk_cols == 0 ? MatrixLayout::kFile : MatrixLayout::kTiles;
}

DeviceMatrix Describe(const HostMatrix& m, MatrixLayout layout) {
  DeviceMatrix d;
  d.format = TileFormatOf(m.format);
  d.layout = layout;
  d.rows = m.rows;
  d.cols = m.cols;
  d.row_bytes = m.row_bytes;
  d.planar = m.planar;
  if (layout == MatrixLayout::kTiles) {
    d.chunks = static_cast<int32_t>(CeilDiv(m.cols, Tiles(d.format).chunk_cols));
  }
  return d;
}

uint64_t BytesOf(const DeviceMatrix& m) {
  return m.layout == MatrixLayout::kFile ? static_cast<uint64_t>(m.rows * m.row_bytes)
                                         : DeviceMatrixBytes(m.format, m.rows, m.cols, m.row_bytes);
}

void Place(GpuRig& rig, const HostMatrix& m, MatrixLayout layout, uint8_t* to) {
  if (layout == MatrixLayout::kFile) return rig.Copy(to, m.file.data(), m.file.size());
  const PackArgs pack{.format = m.format,
                      .from = rig.Upload(m.file),
                      .row_bytes = m.row_bytes,
                      .scales = m.scales.empty() ? nullptr : rig.Upload(m.scales),
                      .scale_row_bytes = m.planar.scale_row_bytes,
                      .scale_group = m.planar.group,
                      .rows = m.rows,
                      .cols = m.cols,
                      .to = to};
  EXPECT_EQ(LaunchPackTiles(pack, rig.queue()), cudaSuccess);
  rig.Wait();
}

DeviceMatrix OnDevice(GpuRig& rig, const HostMatrix& m, MatrixLayout layout) {
  DeviceMatrix d = Describe(m, layout);
  auto* const to = rig.PoisonedBytes(BytesOf(d));
  Place(rig, m, layout, to);
  d.data = to;
  return d;
}

std::vector<float> Normal(size_t count, float sigma, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

TermRows UploadTerms(GpuRig& rig, const std::vector<float>& values, int32_t rows, int32_t cols, int32_t terms) {
  TermRows x;
  x.stride = Stride(cols);
  x.terms = terms;
  std::vector<uint16_t> data(Size(int64_t{rows} * terms * x.stride));
  std::vector<float> sums(Size(int64_t{rows} * x.stride / 16));
  for (int32_t m = 0; m < rows; ++m) {
    for (int32_t e = 0; e < cols; ++e) {
      float rest = values[Size(int64_t{m} * cols + e)];
      sums[Size(int64_t{m} * x.stride / 16 + e / 16)] += rest;
      for (int32_t i = 0; i < terms; ++i) {
        const uint16_t term = quant::F32ToBf16(rest);
        data[Size((int64_t{m} * terms + i) * x.stride + TermPosition(e))] = term;
        rest -= quant::Bf16ToF32(term);
      }
    }
  }
  x.data = rig.Upload(data);
  x.sums = rig.Upload(sums);
  return x;
}

TermRows RowsFrom(const TermRows& x, int32_t first) {
  TermRows rows = x;
  rows.data += int64_t{first} * x.terms * x.stride;
  rows.sums += int64_t{first} * (x.stride / 16);
  return rows;
}

TermRows PoisonedTerms(GpuRig& rig, int32_t rows, int32_t cols, int32_t terms) {
  TermRows x;
  x.stride = Stride(cols);
  x.terms = terms;
  std::vector<uint16_t> data(Size(int64_t{rows} * terms * x.stride));
  std::vector<float> sums(Size(int64_t{rows} * x.stride / 16));
  for (int32_t m = 0; m < rows; ++m) {
    for (int32_t e = 0; e < cols; ++e) {
      sums[Size(int64_t{m} * x.stride / 16 + e / 16)] = NAN;
      for (int32_t i = 0; i < terms; ++i) {
        data[Size((int64_t{m} * terms + i) * x.stride + TermPosition(e))] = 0xFFFF;
      }
    }
  }
  x.data = rig.Upload(data);
  x.sums = rig.Upload(sums);
  return x;
}

std::vector<float> DownloadTerms(GpuRig& rig, const TermRows& x, int32_t rows, int32_t cols) {
  const auto data = rig.Download(x.data, Size(int64_t{rows} * x.terms * x.stride));
  std::vector<float> values(Size(int64_t{rows} * cols));
  int bad = 0;
  for (int32_t m = 0; m < rows; ++m) {
    for (int32_t e = 0; e < x.stride; ++e) {
      float sum = 0;
      for (int32_t i = 0; i < x.terms; ++i) {
        sum += quant::Bf16ToF32(data[Size((int64_t{m} * x.terms + i) * x.stride + TermPosition(e))]);
      }
      if (e < cols) {
        values[Size(int64_t{m} * cols + e)] = sum;
      } else if (sum != 0) {
        ++bad;
      }
    }
  }
  EXPECT_EQ(bad, 0) << "terms behind the row are not zero";
  return values;
}

ResidualRows UploadResidual(GpuRig& rig, const std::vector<float>& values, const std::vector<float>& norm, int32_t rows,
                            float epsilon, int32_t terms) {
  ResidualRows x;
  x.hidden = static_cast<int32_t>(norm.size());
  x.epsilon = epsilon;
  std::vector<float> normed(values.size()), squares;
  for (size_t i = 0; i < values.size(); ++i) normed[i] = values[i] * norm[i % norm.size()];
  for (size_t m = 0; m < Size(rows); ++m) {
    for (size_t first = 0; first < norm.size(); first += 16) {
      float square[16] = {};  // added as SumOf16 does
      for (size_t i = 0; i < std::min<size_t>(16, norm.size() - first); ++i) {
        const float value = values[m * norm.size() + first + i];
        square[i] = value * value;
      }
      for (size_t step = 8; step > 0; step /= 2) {
        for (size_t i = 0; i < step; ++i) square[i] += square[i + step];
      }
      squares.push_back(square[0]);
    }
  }
  x.values = rig.Upload(values);
  x.norm = rig.Upload(norm);
  x.squares = rig.Upload(squares);
  x.terms = UploadTerms(rig, normed, rows, x.hidden, terms);
  return x;
}

ResidualRows NextResidual(GpuRig& rig, const ResidualRows& x, const std::vector<float>& norm, int32_t rows) {
  ResidualRows next = x;
  next.norm = rig.Upload(norm);
  next.squares = rig.Poisoned<float>(Size(int64_t{rows} * x.square_count()));
  next.terms = PoisonedTerms(rig, rows, x.hidden, x.terms.terms);
  return next;
}

void ExpectResidual(GpuRig& rig, const ResidualRows& x, const std::vector<float>& norm, int32_t rows) {
  const auto count = Size(int64_t{rows} * x.hidden);
  const auto values = rig.Download(x.values, count);
  const auto squares = rig.Download(x.squares, Size(int64_t{rows} * x.square_count()));
  const auto sums = rig.Download(x.terms.sums, Size(int64_t{rows} * x.terms.stride / 16));
  const auto terms = DownloadTerms(rig, x.terms, rows, x.hidden);
  const double precision = x.terms.terms == 2 ? 0x1p-17 : 0x1p-23;
  for (int32_t m = 0; m < rows; ++m) {
    for (int32_t first = 0; first < x.hidden; first += 16) {
      double square = 0, sum = 0, magnitude = 0;
      for (int32_t c = first; c < std::min(first + 16, x.hidden); ++c) {
        const size_t i = Size(int64_t{m} * x.hidden + c);
        const float want = values[i] * norm[Size(c)];
        square += double{values[i]} * values[i];
        sum += want;
        magnitude += std::fabs(want);
        ASSERT_NEAR(terms[i], want, std::fabs(want) * precision + 1e-30) << "row " << m << " column " << c;
      }
      ASSERT_NEAR(squares[Size(int64_t{m} * x.square_count() + first / 16)], square, 1e-6 * square)
          << m << " " << first;
      ASSERT_NEAR(sums[Size(int64_t{m} * (x.terms.stride / 16) + first / 16)], sum, 1e-6 * magnitude) << m;
    }
  }
}

std::vector<double> Normalised(const std::vector<float>& values, const std::vector<float>& norm, int32_t rows,
                               float epsilon) {
  std::vector<double> out(values.size());
  const size_t hidden = norm.size();
  for (size_t m = 0; m < Size(rows); ++m) {
    double squares = 0;
    for (size_t c = 0; c < hidden; ++c) squares += double{values[m * hidden + c]} * values[m * hidden + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
    for (size_t c = 0; c < hidden; ++c) out[m * hidden + c] = double{values[m * hidden + c]} * norm[c] * scale;
  }
  return out;
}

double RelativeL2(const std::vector<float>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, total = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    total += want[i] * want[i];
  }
  return std::sqrt(error / total);
}

}  // namespace bellhop::kernels
