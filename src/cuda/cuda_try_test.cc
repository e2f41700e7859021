#include "cuda/cuda_try.h"

#include <gtest/gtest.h>

namespace bellhop::cuda {
namespace {

TEST(CudaTryTest, ErrorsOfOneCallAreNotThoseOfTheDevice) {
  EXPECT_TRUE(CudaStatus(cudaSuccess, "x").ok());
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "cudaMalloc").code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(CudaStatus(cudaErrorNoDevice, "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(CudaStatus(cudaErrorNoKernelImageForDevice, "x").code(), StatusCode::kUnsupported);
  EXPECT_NE(CudaStatus(cudaErrorInvalidValue, "cudaFoo(a)").message().find("cudaFoo(a)"), std::string::npos);
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorNotReady,
                                  cudaErrorStreamCaptureInvalidated, cudaErrorHostMemoryAlreadyRegistered}) {
    EXPECT_FALSE(IsStickyError(error)) << cudaGetErrorName(error);
  }
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorAssert,
                                  cudaErrorMisalignedAddress, cudaErrorECCUncorrectable}) {
    EXPECT_TRUE(IsStickyError(error)) << cudaGetErrorName(error);
  }
}

}  // namespace
}  // namespace bellhop::cuda
