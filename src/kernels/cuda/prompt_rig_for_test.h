// Test support for the kernels of prompts: rows of bf16 that are there and on the host, and exact products.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/gpu_rig_for_test.h"
#include "kernels/cuda/prompt_step.h"

namespace bellhop::kernels {

// Rounding activations to bf16 costs 1.5e-3 of normal values; nothing else may be seen beside it.
inline constexpr double kPromptTolerance = 2e-3;
// Products of rounded activations are exact but for f32 sums; tensor cores cut, they do not round.
inline constexpr double kSumTolerance = 5e-5;

// What multiplies rows on this device: everywhere mma.sync, and what a model would use.
std::vector<PromptDevice> PromptDevices();

std::vector<float> RoundedToBf16(const std::vector<float>& values);
std::vector<double> ToDoubles(const std::vector<float>& values);

// One term, sums of rounded numbers, zeros behind a row.
TermRows UploadPromptRows(GpuRig& rig, const std::vector<float>& values, int32_t rows, int32_t cols);
// Poison everywhere, behind the rows too.
TermRows PoisonedPromptRows(GpuRig& rig, int32_t rows, int32_t cols);
// [rows][cols]; padding and sums must be as they have to be. A row that is `skipped` must be poison, and is NaN.
std::vector<float> DownloadPromptRows(GpuRig& rig, const TermRows& x, int32_t rows, int32_t cols,
                                      const std::vector<bool>& skipped = {});

// x [rows][w.cols] times W^T, [rows][w.rows].
std::vector<double> ExactProduct(const HostMatrix& w, const std::vector<double>& x, int32_t rows);

// [rows][cols] out of [rows + 1][stride] that was poison: everything outside must still be.
std::vector<float> TakeResults(const std::vector<float>& y, int32_t rows, int32_t cols, int64_t stride);

// Columns that a format's matrices may have, about `cols`.
int32_t NearestColumns(quant::WeightFormat format, int32_t cols);

}  // namespace bellhop::kernels
