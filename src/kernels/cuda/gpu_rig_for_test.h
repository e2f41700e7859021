// Test support: a GPU with memory that lives as long as the test, and matrices and activations that are there and on
// the host.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/stream.h"
#include "kernels/block_decode.h"
#include "kernels/cuda/decode_step.h"
#include "kernels/cuda/device_matrix.h"

namespace bellhop::kernels {

class GpuRig {
 public:
  // Null where there is no GPU.
  static std::unique_ptr<GpuRig> Open();

  // Every byte 0xFF, which makes NaNs of floats and terms.
  uint8_t* PoisonedBytes(uint64_t bytes);
  template <typename T>
  T* Poisoned(size_t count) {
    return reinterpret_cast<T*>(PoisonedBytes(count * sizeof(T)));
  }
  template <typename T>
  T* Zeroed(size_t count) {
    return Upload(std::vector<T>(count));
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    auto* const to = Poisoned<T>(values.size());
    Copy(to, values.data(), values.size() * sizeof(T));
    return to;
  }
  template <typename T>
  std::vector<T> Download(const T* from, size_t count) {
    std::vector<T> values(count);
    Copy(values.data(), from, count * sizeof(T));
    return values;
  }
  // Zeroed.
  uint8_t* Pinned(uint64_t bytes);
  // After everything that was launched.
  void Copy(void* to, const void* from, uint64_t bytes);
  void Wait();

  const Codebooks& books() const { return books_; }
  cuda::LaunchQueue queue() const { return stream_->queue(); }
  // Gives back all memory but the codebooks, which makes the pointers to it invalid.
  void FreeMemory();

 private:
  cuda::MemoryLedger ledger_;
  std::unique_ptr<cuda::Device> device_;
  std::unique_ptr<cuda::Stream> stream_;
  std::vector<cuda::DeviceBuffer> buffers_;
  std::vector<cuda::PinnedBuffer> pinned_;
  size_t kept_ = 0;
  Codebooks books_{};
};

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    rig_ = GpuRig::Open();
    if (rig_ == nullptr) GTEST_SKIP() << "no GPU";
  }
  GpuRig& rig() { return *rig_; }

 private:
  std::unique_ptr<GpuRig> rig_;
};

// A matrix with moderate random weights, of a GGUF format or a planar one that becomes tiles.
struct HostMatrix {
  quant::WeightFormat format = quant::WeightFormat::kF32;
  int32_t rows = 0, cols = 0;
  int64_t row_bytes = 0;
  std::vector<uint8_t> file;  // [rows][row_bytes]; of planar formats the codes
  PlanarRows planar;
  std::vector<uint8_t> scales;  // planar formats: [rows][planar.scale_row_bytes]
  std::vector<float> weights;   // [rows][cols]
};
HostMatrix RandomHostMatrix(quant::WeightFormat format, int32_t rows, int32_t cols, uint64_t seed);

// The layout that the GPU backend gives a format.
MatrixLayout UsualLayout(quant::WeightFormat format);
// `data` is not set.
DeviceMatrix Describe(const HostMatrix& m, MatrixLayout layout);
uint64_t BytesOf(const DeviceMatrix& m);
// Writes all BytesOf(to): packs, or copies file rows.
void Place(GpuRig& rig, const HostMatrix& m, MatrixLayout layout, uint8_t* to);
DeviceMatrix OnDevice(GpuRig& rig, const HostMatrix& m, MatrixLayout layout);

std::vector<float> Normal(size_t count, float sigma, uint64_t seed);

// Terms of [rows][cols] values, zeros behind a row.
TermRows UploadTerms(GpuRig& rig, const std::vector<float>& values, int32_t rows, int32_t cols, int32_t terms);
// The first `rows` rows from `first`.
TermRows RowsFrom(const TermRows& x, int32_t first);
// Terms that a kernel is to write: zeros behind a row, poison where columns are.
TermRows PoisonedTerms(GpuRig& rig, int32_t rows, int32_t cols, int32_t terms);
// Values that terms stand for, [rows][cols]; what lies behind a row must be zero.
std::vector<float> DownloadTerms(GpuRig& rig, const TermRows& x, int32_t rows, int32_t cols);

// Residual rows with their squares and terms as a kernel before has left them.
ResidualRows UploadResidual(GpuRig& rig, const std::vector<float>& values, const std::vector<float>& norm, int32_t rows,
                            float epsilon, int32_t terms);
// The same memory as the next norm's kernel reads it; squares and terms are new and poisoned.
ResidualRows NextResidual(GpuRig& rig, const ResidualRows& x, const std::vector<float>& norm, int32_t rows);
// Squares, sums and terms belong to the values.
void ExpectResidual(GpuRig& rig, const ResidualRows& x, const std::vector<float>& norm, int32_t rows);

// [rows][cols]: values * norm / rms of the row.
std::vector<double> Normalised(const std::vector<float>& values, const std::vector<float>& norm, int32_t rows,
                               float epsilon);

double RelativeL2(const std::vector<float>& got, const std::vector<double>& want);
inline bool SameBits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}
// What results may differ from exact ones by.
inline double Tolerance(int32_t terms) { return terms == 2 ? 2e-5 : 1e-6; }

}  // namespace bellhop::kernels
