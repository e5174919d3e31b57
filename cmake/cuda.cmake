# Sets ORRERY_HAS_CUDA: whether the CUDA backend is built. ORRERY_CUDA is AUTO (build it if nvcc and the headers of
# cuBLAS and NCCL are found), ON (fail if they are not found) or OFF.
set(ORRERY_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(ORRERY_CUDA_ARCHITECTURES "80-virtual;90-real" CACHE STRING
    "What CUDA kernels are compiled for: machine code for Hopper, and PTX that anything from Ampere on can translate")
set(ORRERY_HAS_CUDA OFF)
if(ORRERY_CUDA STREQUAL "OFF")
  return()
endif()

find_program(ORRERY_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
if(ORRERY_NVCC)
  get_filename_component(cuda_folder ${ORRERY_NVCC} REALPATH)
  get_filename_component(cuda_folder ${cuda_folder}/../.. ABSOLUTE)
endif()
find_path(ORRERY_CUBLAS_INCLUDE cublas_v2.h HINTS ${cuda_folder}/include)
find_path(ORRERY_NCCL_INCLUDE nccl.h HINTS ${cuda_folder}/include)
foreach(part ORRERY_NVCC ORRERY_CUBLAS_INCLUDE ORRERY_NCCL_INCLUDE)
  if(NOT ${part})
    if(ORRERY_CUDA STREQUAL "ON")
      message(FATAL_ERROR "ORRERY_CUDA is ON, and ${part} was not found: nvcc, cublas_v2.h and nccl.h are needed")
    endif()
    message(STATUS "Without the CUDA backend: ${part} was not found")
    return()
  endif()
endforeach()

set(CMAKE_CUDA_COMPILER ${ORRERY_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_ARCHITECTURES ${ORRERY_CUDA_ARCHITECTURES})
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
# CMake 3.25 does not know nvcc's option for C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit REQUIRED)
get_filename_component(ORRERY_CUDA_LIBRARIES ${cuda_folder}/lib64 ABSOLUTE)

# For sources that call CUDA: headers and the runtime, which is linked statically and loads the driver on its first
# call. cuBLAS and NCCL are loaded at run time (kernels/cuda/library.h).
add_library(orrery_cuda INTERFACE)
target_include_directories(orrery_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${ORRERY_CUBLAS_INCLUDE}
                                                        ${ORRERY_NCCL_INCLUDE})
target_link_libraries(orrery_cuda INTERFACE CUDA::cudart_static)
target_compile_definitions(orrery_cuda INTERFACE ORRERY_HAS_CUDA ORRERY_CUDA_LIBRARIES="${ORRERY_CUDA_LIBRARIES}")
set(ORRERY_HAS_CUDA ON)
