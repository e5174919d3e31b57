// GEMMs of the emulated cuBLAS and cuBLASLt: the BLAS of this machine computes them when their stream comes to them.
#pragma once

#include <cblas.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <vector>

#include "tests/emulator/device.h"

namespace emulated {

/// Memory for the results of parts of a product.
struct Workspace {
    void* memory = nullptr;
    std::size_t bytes = 0;
    [[nodiscard]] bool is_valid() const {
        constexpr std::uintptr_t kAlignment = 256;
        if (reinterpret_cast<std::uintptr_t>(memory) % kAlignment != 0) return false;
        Device& device = Device::instance();
        return bytes == 0 || (device.place_of(memory) == Place::device && device.is_whole(memory, bytes));
    }
    /// So that whoever else keeps values there loses them.
    void fill() const {
        constexpr std::size_t kMost = 4096;
        if (memory == nullptr) return;
        std::memset(memory, 0xff, std::min(bytes, kMost));
        note_write(memory, std::min(bytes, kMost));
    }
};

/// A column-major matrix in device memory.
struct Matrix {
    void* data;
    std::int64_t rows, columns, width;
    cudaDataType type;
    /// From the first to behind the last element.
    [[nodiscard]] std::size_t elements() const {
        if (rows == 0 || columns == 0) return 0;
        return static_cast<std::size_t>(width * (columns - 1) + rows);
    }
    [[nodiscard]] std::size_t bytes() const { return elements() * (type == CUDA_R_16BF ? 2 : 4); }
    [[nodiscard]] bool is_valid() const {
        if (rows < 0 || columns < 0 || width < std::max<std::int64_t>(1, rows)) return false;
        if (bytes() == 0) return true;
        Device& device = Device::instance();
        return device.place_of(data) == Place::device && device.is_whole(data, bytes());
    }
    /// Its elements, with those between its columns.
    [[nodiscard]] std::vector<float> values() const {
        if (type == CUDA_R_32F) {
            const auto* first = static_cast<const float*>(data);
            return {first, first + elements()};
        }
        std::vector<float> wide(elements());
        const auto* first = static_cast<const __nv_bfloat16*>(data);
        std::transform(first, first + elements(), wide.begin(), __bfloat162float);
        return wide;
    }
    void write(const std::vector<float>& values) const {
        for (std::int64_t i = 0; i < rows * columns; ++i) {
            const std::int64_t at = i / rows * width + i % rows;
            const float value = values[static_cast<std::size_t>(at)];
            if (type == CUDA_R_32F) {
                static_cast<float*>(data)[at] = value;
            } else {
                static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
            }
        }
    }
};

/// c = factor * a b + keep * c + bias, summed in fp32; with `before_gelu` that gets it, and c its GELU.
struct Gemm {
    bool turns_a = false, turns_b = false;
    Matrix a, b, c;
    float factor = 1, keep = 0;
    Matrix bias{nullptr, 0, 0, 1, CUDA_R_32F};  // a column, or nothing
    Matrix before_gelu{nullptr, 0, 0, 1, CUDA_R_32F};
    Workspace workspace;

    [[nodiscard]] bool is_valid() const {
        return a.is_valid() && b.is_valid() && c.is_valid() && bias.is_valid() && before_gelu.is_valid();
    }
    [[nodiscard]] cudaError_t queue(cudaStream_t stream) const {
        return Device::instance().queue(stream, [gemm = *this] {
            if (gemm.c.elements() > 0) gemm.compute();
            return Progress::done;
        });
    }

  private:
    void compute() const {
        workspace.fill();
        for (const Matrix* factor_of : {&a, &b, &bias}) note_read(factor_of->data, factor_of->bytes());
        const std::int64_t inner = turns_a ? a.rows : a.columns;
        // cuBLAS does not read a result that it does not keep.
        std::vector<float> sum = keep == 0.0F ? std::vector<float>(c.elements()) : c.values();
        const std::vector<float> left = a.values(), right = b.values(), added = bias.values();
        const auto extent = [](std::int64_t value) { return static_cast<int>(value); };
        cblas_sgemm(CblasColMajor, turns_a ? CblasTrans : CblasNoTrans, turns_b ? CblasTrans : CblasNoTrans,
                    extent(c.rows), extent(c.columns), extent(inner), factor, left.data(), extent(a.width),
                    right.data(), extent(b.width), keep, sum.data(), extent(c.width));
        for (std::int64_t column = 0; column < (added.empty() ? 0 : c.columns); ++column) {
            for (std::int64_t row = 0; row < c.rows; ++row) {
                sum[static_cast<std::size_t>(column * c.width + row)] += added[static_cast<std::size_t>(row)];
            }
        }
        if (before_gelu.data != nullptr) take_gelu(sum);
        c.write(sum);
        note_write(c.data, c.bytes());
    }
    /// Of sums that are not rounded, in the form with the hyperbolic tangent.
    void take_gelu(std::vector<float>& sums) const {
        std::vector<float> stored(before_gelu.elements());
        for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
            const std::int64_t row = i % c.rows, column = i / c.rows;
            float& sum = sums[static_cast<std::size_t>(column * c.width + row)];
            stored[static_cast<std::size_t>(column * before_gelu.width + row)] = sum;
            const float inner = std::sqrt(2 / std::numbers::pi_v<float>) * (sum + 0.044715F * sum * sum * sum);
            sum = sum / 2 * (1 + std::tanh(inner));
        }
        before_gelu.write(stored);
        note_write(before_gelu.data, before_gelu.bytes());
    }
};

}  // namespace emulated
