// Holds what the emulated headers declare against the real ones. It is compiled with both, each of which must have
// these functions with these parameters, and these values. InterfaceTest compares the list with the sources.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

#define FUNCTION(result, name, parameters) [[maybe_unused]] static result(*const name##_as_used) parameters = &name;
#define VALUE(name, value) static_assert(static_cast<int>(name) == (value));

FUNCTION(cudaError_t, cudaFuncSetAttribute, (const void*, cudaFuncAttribute, int))
FUNCTION(cudaError_t, cudaGetDeviceCount, (int*))
FUNCTION(cudaError_t, cudaSetDevice, (int))
FUNCTION(cudaError_t, cudaGetDevice, (int*))
FUNCTION(cudaError_t, cudaDeviceGetAttribute, (int*, cudaDeviceAttr, int))
FUNCTION(cudaError_t, cudaGetDeviceProperties, (cudaDeviceProp*, int))
FUNCTION(cudaError_t, cudaDeviceGetPCIBusId, (char*, int, int))
FUNCTION(cudaError_t, cudaDriverGetVersion, (int*))
FUNCTION(cudaError_t, cudaRuntimeGetVersion, (int*))
FUNCTION(cudaError_t, cudaGetLastError, ())
FUNCTION(const char*, cudaGetErrorString, (cudaError_t))
FUNCTION(cudaError_t, cudaMalloc, (void**, std::size_t))
FUNCTION(cudaError_t, cudaFree, (void*))
FUNCTION(cudaError_t, cudaMallocHost, (void**, std::size_t))
FUNCTION(cudaError_t, cudaFreeHost, (void*))
FUNCTION(cudaError_t, cudaMemGetInfo, (std::size_t*, std::size_t*))
FUNCTION(cudaError_t, cudaMemsetAsync, (void*, int, std::size_t, cudaStream_t))
FUNCTION(cudaError_t, cudaMemcpyAsync, (void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t))
FUNCTION(cudaError_t, cudaDeviceGetStreamPriorityRange, (int*, int*))
FUNCTION(cudaError_t, cudaStreamCreateWithPriority, (cudaStream_t*, unsigned, int))
FUNCTION(cudaError_t, cudaStreamDestroy, (cudaStream_t))
FUNCTION(cudaError_t, cudaStreamSynchronize, (cudaStream_t))
FUNCTION(cudaError_t, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))
FUNCTION(cudaError_t, cudaEventCreate, (cudaEvent_t*))
FUNCTION(cudaError_t, cudaEventDestroy, (cudaEvent_t))
FUNCTION(cudaError_t, cudaEventRecord, (cudaEvent_t, cudaStream_t))
FUNCTION(cudaError_t, cudaEventQuery, (cudaEvent_t))
FUNCTION(cudaError_t, cudaEventSynchronize, (cudaEvent_t))
FUNCTION(cudaError_t, cudaEventElapsedTime, (float*, cudaEvent_t, cudaEvent_t))

FUNCTION(cublasStatus_t, cublasCreate_v2, (cublasHandle_t*))
FUNCTION(cublasStatus_t, cublasDestroy_v2, (cublasHandle_t))
FUNCTION(cublasStatus_t, cublasSetStream_v2, (cublasHandle_t, cudaStream_t))
FUNCTION(cublasStatus_t, cublasSetWorkspace_v2, (cublasHandle_t, void*, std::size_t))
FUNCTION(cublasStatus_t, cublasSetMathMode, (cublasHandle_t, cublasMath_t))
FUNCTION(cublasStatus_t, cublasGemmEx_64,
         (cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t, std::int64_t, std::int64_t, const void*,
          const void*, cudaDataType, std::int64_t, const void*, cudaDataType, std::int64_t, const void*, void*,
          cudaDataType, std::int64_t, cublasComputeType_t, cublasGemmAlgo_t))

FUNCTION(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t*))
FUNCTION(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t))
FUNCTION(cublasStatus_t, cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t*, cublasComputeType_t, cudaDataType))
FUNCTION(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t))
FUNCTION(cublasStatus_t, cublasLtMatmulDescSetAttribute,
         (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void*, std::size_t))
FUNCTION(cublasStatus_t, cublasLtMatrixLayoutCreate,
         (cublasLtMatrixLayout_t*, cudaDataType, std::uint64_t, std::uint64_t, std::int64_t))
FUNCTION(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t))
FUNCTION(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t*))
FUNCTION(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t))
FUNCTION(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
         (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*, std::size_t))
FUNCTION(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
         (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
          cublasLtMatmulHeuristicResult_t*, int*))
FUNCTION(cublasStatus_t, cublasLtMatmul,
         (cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*, cublasLtMatrixLayout_t, const void*,
          cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
          const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t))

FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId*))
FUNCTION(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*))
FUNCTION(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*))
FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t))
FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t))
FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t))
FUNCTION(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t*))
FUNCTION(const char*, ncclGetErrorString, (ncclResult_t))
FUNCTION(const char*, ncclGetLastError, (ncclComm_t))
FUNCTION(ncclResult_t, ncclAllReduce,
         (const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclAllGather, (const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclReduceScatter,
         (const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclAlltoAll, (const void*, void*, std::size_t, ncclDataType_t, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclBroadcast, (const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclReduce,
         (const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclGather, (const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclScatter, (const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclSend, (const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclRecv, (void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
FUNCTION(ncclResult_t, ncclGroupStart, ())
FUNCTION(ncclResult_t, ncclGroupEnd, ())

static_assert(sizeof(__nv_bfloat16) == 2 && sizeof(__nv_bfloat162) == 4);

VALUE(cudaSuccess, 0)
VALUE(cudaErrorInvalidValue, 1)
VALUE(cudaErrorMemoryAllocation, 2)
VALUE(cudaErrorInvalidConfiguration, 9)
VALUE(cudaErrorInsufficientDriver, 35)
VALUE(cudaErrorNoDevice, 100)
VALUE(cudaErrorInvalidDevice, 101)
VALUE(cudaErrorInvalidResourceHandle, 400)
VALUE(cudaErrorNotReady, 600)
VALUE(cudaErrorIllegalAddress, 700)
VALUE(cudaErrorLaunchFailure, 719)
VALUE(cudaFuncAttributeMaxDynamicSharedMemorySize, 8)
VALUE(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97)
VALUE(cudaMemcpyDeviceToDevice, 3)
VALUE(cudaMemcpyDefault, 4)
VALUE(cudaStreamNonBlocking, 1)

VALUE(CUBLAS_STATUS_SUCCESS, 0)
VALUE(CUBLAS_STATUS_NOT_INITIALIZED, 1)
VALUE(CUBLAS_STATUS_INVALID_VALUE, 7)
VALUE(CUBLAS_STATUS_EXECUTION_FAILED, 13)
VALUE(CUBLAS_STATUS_NOT_SUPPORTED, 15)
VALUE(CUBLAS_OP_N, 0)
VALUE(CUBLAS_OP_T, 1)
VALUE(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION, 16)
VALUE(CUBLAS_COMPUTE_32F, 68)
VALUE(CUBLAS_GEMM_DEFAULT, -1)
VALUE(CUDA_R_32F, 0)
VALUE(CUBLASLT_MATMUL_DESC_TRANSA, 3)
VALUE(CUBLASLT_MATMUL_DESC_TRANSB, 4)
VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)
VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)
VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)
VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)
VALUE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)
VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)
VALUE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)
VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)
VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)
VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)
VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)
VALUE(CUBLASLT_EPILOGUE_DEFAULT, 1)
VALUE(CUBLASLT_EPILOGUE_BIAS, 4)
VALUE(CUBLASLT_EPILOGUE_GELU_AUX, 160)
VALUE(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)
VALUE(CUBLASLT_REDUCTION_SCHEME_NONE, 0)
VALUE(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)
VALUE(CUDA_R_16BF, 14)

VALUE(ncclSuccess, 0)
VALUE(ncclUnhandledCudaError, 1)
VALUE(ncclSystemError, 2)
VALUE(ncclInternalError, 3)
VALUE(ncclInvalidArgument, 4)
VALUE(ncclInvalidUsage, 5)
VALUE(ncclRemoteError, 6)
VALUE(ncclInProgress, 7)
VALUE(ncclSum, 0)
VALUE(ncclMax, 2)
VALUE(ncclAvg, 4)
VALUE(ncclUint8, 1)
VALUE(ncclInt32, 2)
VALUE(ncclInt64, 4)
VALUE(ncclFloat32, 7)
VALUE(ncclFloat64, 8)
VALUE(ncclBfloat16, 9)
VALUE(NCCL_MAJOR, 2)
VALUE(NCCL_SPLIT_NOCOLOR, -1)
