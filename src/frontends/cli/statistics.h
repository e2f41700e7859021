// Summaries of repeated measurements.
#pragma once

#include <vector>

namespace bellhop::cli {

double Mean(const std::vector<double>& values);
double StandardDeviation(const std::vector<double>& values);  // of a sample; 0 for fewer than two
// Linear between neighbours; `share` 0.5 is the median. 0 for no values.
double Quantile(std::vector<double> values, double share);

}  // namespace bellhop::cli
