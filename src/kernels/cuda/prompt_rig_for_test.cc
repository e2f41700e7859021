#include "kernels/cuda/prompt_rig_for_test.h"

#include <cmath>

#include "base/units.h"
#include "quant/format.h"
#include "quant/half.h"

namespace bellhop::kernels {
namespace {

size_t Size(int64_t n) { return static_cast<size_t>(n); }
int32_t Stride(int32_t cols) { return static_cast<int32_t>(RoundUp(int64_t{cols}, int64_t{kTermPadding})); }

}  // namespace

std::vector<PromptDevice> PromptDevices() {
  PromptDevice best;
  EXPECT_EQ(ChoosePromptMath(&best), cudaSuccess);
  std::vector<PromptDevice> devices = {PromptDevice{}};
  if (best.math != PromptMath::kMma) devices.push_back(best);
  return devices;
}

std::vector<float> RoundedToBf16(const std::vector<float>& values) {
  std::vector<float> rounded;
  rounded.reserve(values.size());
  for (const float v : values) rounded.push_back(quant::Bf16ToF32(quant::F32ToBf16(v)));
  return rounded;
}

std::vector<double> ToDoubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

TermRows UploadPromptRows(GpuRig& rig, const std::vector<float>& values, int32_t rows, int32_t cols) {
  TermRows x;
  x.terms = 1;
  x.stride = Stride(cols);
  std::vector<uint16_t> data(Size(int64_t{rows} * x.stride));
  std::vector<float> sums(Size(int64_t{rows} * x.stride / 16));
  for (int64_t i = 0; i < int64_t{rows} * cols; ++i) {
    const auto m = i / cols, e = i % cols;
    const uint16_t rounded = quant::F32ToBf16(values[Size(i)]);
    data[Size(m * x.stride + PromptPosition(static_cast<int32_t>(e)))] = rounded;
    sums[Size(m * x.stride / 16 + e / 16)] += quant::Bf16ToF32(rounded);
  }
  x.data = rig.Upload(data);
  x.sums = rig.Upload(sums);
  x.group_sums = rig.Poisoned<uint16_t>(sums.size());
  return x;
}

TermRows PoisonedPromptRows(GpuRig& rig, int32_t rows, int32_t cols) {
  TermRows x;
  x.terms = 1;
  x.stride = Stride(cols);
  x.data = rig.Poisoned<uint16_t>(Size(int64_t{rows} * x.stride));
  x.sums = rig.Poisoned<float>(Size(int64_t{rows} * x.stride / 16));
  x.group_sums = rig.Poisoned<uint16_t>(Size(int64_t{rows} * x.stride / 16));
  return x;
}

std::vector<float> DownloadPromptRows(GpuRig& rig, const TermRows& x, int32_t rows, int32_t cols,
                                      const std::vector<bool>& skipped) {
  const auto data = rig.Download(x.data, Size(int64_t{rows} * x.stride));
  const auto sums = rig.Download(x.sums, Size(int64_t{rows} * x.stride / 16));
  std::vector<float> values(Size(int64_t{rows} * cols), NAN);
  int touched = 0, padding = 0, wrong_sums = 0;
  for (int32_t m = 0; m < rows; ++m) {
    if (!skipped.empty() && skipped[Size(m)]) {
      for (int32_t e = 0; e < x.stride; ++e) touched += data[Size(int64_t{m} * x.stride + e)] != 0xFFFF ? 1 : 0;
      continue;
    }
    for (int32_t first = 0; first < x.stride; first += 16) {
      double sum = 0, magnitude = 0;
      for (int32_t e = first; e < first + 16; ++e) {
        const float v = quant::Bf16ToF32(data[Size(int64_t{m} * x.stride + PromptPosition(e))]);
        sum += v;
        magnitude += std::fabs(v);
        if (e < cols) {
          values[Size(int64_t{m} * cols + e)] = v;
        } else {
          padding += v != 0 ? 1 : 0;
        }
      }
      const float got = sums[Size(int64_t{m} * (x.stride / 16) + first / 16)];
      wrong_sums += std::fabs(got - sum) <= 1e-6 * magnitude ? 0 : 1;
    }
  }
  EXPECT_EQ(touched, 0) << "numbers in rows that nobody computes";
  EXPECT_EQ(padding, 0) << "numbers behind the rows that are not zero";
  EXPECT_EQ(wrong_sums, 0) << "sums that are not those of the rounded numbers";
  return values;
}

std::vector<double> ExactProduct(const HostMatrix& w, const std::vector<double>& x, int32_t rows) {
  std::vector<double> y(Size(int64_t{rows} * w.rows));
  const std::vector<double> weights(w.weights.begin(), w.weights.end());
  for (int32_t m = 0; m < rows; ++m) {
    const double* const from = x.data() + int64_t{m} * w.cols;
    for (int32_t r = 0; r < w.rows; ++r) {
      const double* const row = weights.data() + int64_t{r} * w.cols;
      double sum = 0;
      for (int32_t c = 0; c < w.cols; ++c) sum += row[c] * from[c];
      y[Size(int64_t{m} * w.rows + r)] = sum;
    }
  }
  return y;
}

std::vector<float> TakeResults(const std::vector<float>& y, int32_t rows, int32_t cols, int64_t stride) {
  std::vector<float> results;
  int written = 0, missing = 0;
  for (int64_t i = 0; i < (rows + 1) * stride; ++i) {
    const bool result = i / stride < rows && i % stride < cols, number = !std::isnan(y[Size(i)]);
    missing += result && !number ? 1 : 0;
    written += !result && number ? 1 : 0;
    if (result) results.push_back(y[Size(i)]);
  }
  EXPECT_EQ(written, 0) << "numbers outside of the results";
  EXPECT_EQ(missing, 0) << "results that are no number";
  return results;
}

int32_t NearestColumns(quant::WeightFormat format, int32_t cols) {
  const auto block = static_cast<int32_t>(quant::Traits(format).block_elems);
  return std::max(1, (cols + block / 2) / block) * block;
}

}  // namespace bellhop::kernels
