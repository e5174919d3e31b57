// Which lane of a warp holds which element, compared with the figures of the manual (PTX ISA 9.0, "Matrix Fragments for
// mma.m16n8k16 with floating point type" and "ldmatrix"). Attention by tensor cores depends on it.
#include <array>

#include "tests/gpu/kernel_fixture.h"
#include "tests/gpu/ptx_kernels.h"

namespace orrery::exec {
namespace {

/// Holder of two neighbouring elements: 10 * lane + register, as in the figures: T<lane>: {a<2r>, a<2r + 1>}.
using Holders = std::vector<std::vector<int>>;

/// [row][pair of columns]
const Holders kOfA{
    {0, 10, 20, 30, 2, 12, 22, 32},           {40, 50, 60, 70, 42, 52, 62, 72},
    {80, 90, 100, 110, 82, 92, 102, 112},     {120, 130, 140, 150, 122, 132, 142, 152},
    {160, 170, 180, 190, 162, 172, 182, 192}, {200, 210, 220, 230, 202, 212, 222, 232},
    {240, 250, 260, 270, 242, 252, 262, 272}, {280, 290, 300, 310, 282, 292, 302, 312},
    {1, 11, 21, 31, 3, 13, 23, 33},           {41, 51, 61, 71, 43, 53, 63, 73},
    {81, 91, 101, 111, 83, 93, 103, 113},     {121, 131, 141, 151, 123, 133, 143, 153},
    {161, 171, 181, 191, 163, 173, 183, 193}, {201, 211, 221, 231, 203, 213, 223, 233},
    {241, 251, 261, 271, 243, 253, 263, 273}, {281, 291, 301, 311, 283, 293, 303, 313},
};
/// [pair of rows][column]
const Holders kOfB{
    {0, 40, 80, 120, 160, 200, 240, 280},   {10, 50, 90, 130, 170, 210, 250, 290},
    {20, 60, 100, 140, 180, 220, 260, 300}, {30, 70, 110, 150, 190, 230, 270, 310},
    {1, 41, 81, 121, 161, 201, 241, 281},   {11, 51, 91, 131, 171, 211, 251, 291},
    {21, 61, 101, 141, 181, 221, 261, 301}, {31, 71, 111, 151, 191, 231, 271, 311},
};
/// [row][column]; here one element a register.
const Holders kOfSums{
    {0, 1, 10, 11, 20, 21, 30, 31},           {40, 41, 50, 51, 60, 61, 70, 71},
    {80, 81, 90, 91, 100, 101, 110, 111},     {120, 121, 130, 131, 140, 141, 150, 151},
    {160, 161, 170, 171, 180, 181, 190, 191}, {200, 201, 210, 211, 220, 221, 230, 231},
    {240, 241, 250, 251, 260, 261, 270, 271}, {280, 281, 290, 291, 300, 301, 310, 311},
    {2, 3, 12, 13, 22, 23, 32, 33},           {42, 43, 52, 53, 62, 63, 72, 73},
    {82, 83, 92, 93, 102, 103, 112, 113},     {122, 123, 132, 133, 142, 143, 152, 153},
    {162, 163, 172, 173, 182, 183, 192, 193}, {202, 203, 212, 213, 222, 223, 232, 233},
    {242, 243, 252, 253, 262, 263, 272, 273}, {282, 283, 292, 293, 302, 303, 312, 313},
};

class PtxOnGpu : public KernelsOnGpu {};

std::uint32_t pair_of(float first, float second) {
    return to_bf16(first) | static_cast<std::uint32_t>(to_bf16(second)) << 16U;
}
std::size_t place(int holder, std::size_t registers) {
    return static_cast<std::size_t>(holder / 10) * registers + static_cast<std::size_t>(holder % 10);
}

TEST_F(PtxOnGpu, ProductsHaveTheFragmentsOfTheManual) {
    constexpr std::size_t kRows = 16, kColumns = 8, kInner = 16;
    const std::vector<float> a = numbers(kRows * kInner, DType::bf16), b = numbers(kInner * kColumns, DType::bf16),
                             c = numbers(kRows * kColumns, DType::fp32);
    std::vector<std::uint32_t> of_a(32 * 4), of_b(32 * 2);
    std::vector<float> of_sums(32 * 4);
    for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t pair = 0; pair < kInner / 2; ++pair) {
            const std::size_t at = row * kInner + pair * 2;
            of_a[place(kOfA[row][pair], 4)] = pair_of(a[at], a[at + 1]);
        }
        for (std::size_t column = 0; column < kColumns; ++column) {
            of_sums[place(kOfSums[row][column], 4)] = c[row * kColumns + column];
        }
    }
    for (std::size_t pair = 0; pair < kInner / 2; ++pair) {
        for (std::size_t column = 0; column < kColumns; ++column) {
            const std::size_t at = pair * 2 * kColumns + column;
            of_b[place(kOfB[pair][column], 2)] = pair_of(b[at], b[at + kColumns]);
        }
    }
    float* const sums = copy_of(of_sums);
    run_multiply_add(stream(), copy_of(of_a), copy_of(of_b), sums);
    const std::vector<float> got = words(sums, of_sums.size());
    for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t column = 0; column < kColumns; ++column) {
            auto exact = static_cast<double>(c[row * kColumns + column]);
            for (std::size_t inner = 0; inner < kInner; ++inner) {
                exact +=
                    static_cast<double>(a[row * kInner + inner]) * static_cast<double>(b[inner * kColumns + column]);
            }
            EXPECT_NEAR(static_cast<double>(got[place(kOfSums[row][column], 4)]), exact, 1e-5)
                << "row " << row << ", column " << column;
        }
    }
}

/// Element (row, column) of matrix m is m * 64 + row * 8 + column.
TEST_F(PtxOnGpu, MatricesAreLoadedAsInTheManual) {
    std::vector<std::uint32_t> matrices;
    for (std::uint32_t pair = 0; pair < 4 * 64 / 2; ++pair) matrices.push_back(2 * pair | (2 * pair + 1) << 16U);
    const std::uint32_t* const from = copy_of(matrices);
    std::uint32_t* const to = copy_of(std::vector<std::uint32_t>(32 * 4));
    for (const bool transposed : {false, true}) {
        run_load_matrices(stream(), transposed, from, to);
        const std::vector<std::uint32_t> got = words(to, 32 * 4);
        for (std::uint32_t lane = 0; lane < 32; ++lane) {
            for (std::uint32_t m = 0; m < 4; ++m) {
                // Without .trans, row r of a matrix is held by the lanes 4 r to 4 r + 3; with it, column r.
                const std::uint32_t along = lane / 4, across = lane % 4 * 2;
                const std::uint32_t first = m * 64 + (transposed ? across * 8 + along : along * 8 + across);
                EXPECT_EQ(got[lane * 4 + m], first | (first + (transposed ? 8 : 1)) << 16U)
                    << "lane " << lane << ", matrix " << m << (transposed ? ", transposed" : "");
            }
        }
    }
}

TEST_F(PtxOnGpu, SharedMemoryIsAsLargeAsAskedFor) {
    constexpr std::int64_t kBytes = 96 << 10;
    std::vector<std::uint32_t> words_to_copy;
    for (std::uint32_t i = 0; i < kBytes / 4; ++i) words_to_copy.push_back(i * 2654435761U);
    std::uint32_t* const to = copy_of(std::vector<std::uint32_t>(words_to_copy.size()));
    run_copy(stream(), kBytes, copy_of(words_to_copy), to);
    EXPECT_EQ(words(to, words_to_copy.size()), words_to_copy);
}

}  // namespace
}  // namespace orrery::exec
