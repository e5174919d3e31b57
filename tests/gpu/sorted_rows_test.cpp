// The sort of rows by key, and the gradient of token embeddings, which adds up sorted rows, on other numbers in each
// run.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/kernels.h"
#include "sim/program/kernel_memory.h"
#include "tests/gpu/kernel_fixture.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using k::Floats;

/// Rows with keys in [0, keys), of which those in [first, first + places) are sorted. The part `equal` of the rows has
/// the same key.
struct KeyCase {
    std::int64_t rows = 0, keys = 0, first = 0, places = 0;
    double equal = 0;
};

class SortedRowsOnGpu : public KernelsOnGpu {
  protected:
    [[nodiscard]] std::vector<std::int32_t> keys_of(const KeyCase& one) {
        const std::vector<float> chosen = numbers(2 * one.rows + 1, DType::fp32);
        const auto draw = [&](std::int64_t i) {
            const double share = (static_cast<double>(chosen[static_cast<std::size_t>(i)]) + 1) / 2;
            return static_cast<std::int32_t>(share * static_cast<double>(one.keys));
        };
        std::vector<std::int32_t> keys;
        for (std::int64_t r = 0; r < one.rows; ++r) {
            const bool is_equal =
                static_cast<double>(chosen[static_cast<std::size_t>(one.rows + r)]) + 1 < 2 * one.equal;
            keys.push_back(draw(is_equal ? 2 * one.rows : r));
        }
        // The first and last keys that are sorted, and their neighbours, as far as there are rows.
        std::vector<std::int64_t> ends{one.first + one.places - 1, one.first, one.first + one.places, one.first - 1};
        for (std::size_t i = 0; i < ends.size() && 2 * i + 1 < keys.size(); ++i) {
            keys[2 * i + 1] = static_cast<std::int32_t>(ends[i]);
        }
        return keys;
    }
    /// As little as promised, and in use before.
    [[nodiscard]] void* scratch(std::int64_t rows) {
        return copy_of(std::vector<std::uint8_t>(static_cast<std::size_t>(k::sort_bytes(rows)), 0x5a));
    }
};

TEST_F(SortedRowsOnGpu, AreInOrder) {
    // From one to 21 bits, of which a pass takes eight at most, and from one row to more than ten tiles.
    for (const KeyCase& one : {KeyCase{.rows = 1, .keys = 1, .first = 0, .places = 1},
                               KeyCase{.rows = 31, .keys = 9, .first = 2, .places = 5},
                               KeyCase{.rows = 2048, .keys = 300, .first = 20, .places = 255},
                               KeyCase{.rows = 2049, .keys = 300, .first = 20, .places = 256},
                               KeyCase{.rows = 5003, .keys = 200'000, .first = 30'000, .places = 70'000},
                               KeyCase{.rows = 2300, .keys = 1 << 20, .first = 0, .places = 1 << 20, .equal = 0.5},
                               KeyCase{.rows = 4097, .keys = 66'000, .first = 0, .places = 66'000, .equal = 1},
                               KeyCase{.rows = 22'777, .keys = 4, .first = 1, .places = 2}}) {
        const std::vector<std::int32_t> keys = keys_of(one);
        std::vector<k::SortedRow> expected;
        for (std::int64_t r = 0; r < one.rows; ++r) {
            const std::int64_t place = keys[static_cast<std::size_t>(r)] - one.first;
            const bool is_here = place >= 0 && place < one.places;
            expected.push_back({static_cast<std::int32_t>(is_here ? place : one.places), static_cast<std::int32_t>(r)});
        }
        std::stable_sort(expected.begin(), expected.end(),
                         [](const auto& a, const auto& b) { return a.place < b.place; });
        const k::SortedRow* const sorted =
            k::sort_rows(stream(), one.rows, copy_of(keys), one.first, one.places, scratch(one.rows));
        const std::vector<k::SortedRow> got = words(sorted, expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i].place, expected[i].place) << one.rows << " rows, at " << i;
            ASSERT_EQ(got[i].row, expected[i].row) << one.rows << " rows, at " << i;
        }
    }
}

/// The Program predicts the memory without the kernels.
TEST_F(SortedRowsOnGpu, TakeTheMemoryOfTheProgram) {
    for (const std::int64_t rows : {0, 1, 2048, 2049, 1 << 20}) {
        EXPECT_EQ(k::sort_bytes(rows), program::sort_bytes(rows)) << rows;
    }
}

/// Every bit is that of the gradient to which the rows are added one after the other in fp32. Two gradients in the same
/// memory, the second of other tokens.
TEST_F(SortedRowsOnGpu, AreAddedInOrder) {
    for (const KeyCase& one : {KeyCase{.rows = 1, .keys = 1, .first = 0, .places = 1},
                               KeyCase{.rows = 300, .keys = 60, .first = 10, .places = 40},
                               KeyCase{.rows = 700, .keys = 80'000, .first = 9'000, .places = 70'000, .equal = 0.5},
                               KeyCase{.rows = 2100, .keys = 1, .first = 0, .places = 1, .equal = 1},
                               KeyCase{.rows = 50, .keys = 30, .first = 100, .places = 7}}) {
        const std::int64_t width = one.rows == 300 ? 263 : one.rows == 50 ? 260 : 4;
        for (const DType type : {DType::fp32, DType::bf16}) {
            void* const memory = scratch(one.rows);
            std::vector<float> dweight = numbers(one.places * width, type);
            const Floats got = on_device(dweight, type);
            for (int pass = 0; pass < 2; ++pass) {
                const std::vector<std::int32_t> tokens = keys_of(one);
                const std::vector<float> dy = numbers(one.rows * width, type);
                k::embedding_backward(
                    stream(), {.rows = one.rows, .width = width, .vocab_start = one.first, .vocab_rows = one.places},
                    on_device(dy, type), copy_of(tokens), got, memory);
                for (std::int64_t i = 0; i < one.rows * width; ++i) {
                    const std::int64_t place = tokens[static_cast<std::size_t>(i / width)] - one.first;
                    if (place < 0 || place >= one.places) continue;
                    dweight[static_cast<std::size_t>(place * width + i % width)] += dy[static_cast<std::size_t>(i)];
                }
                if (type == DType::bf16) {
                    for (float& value : dweight) value = from_bf16(to_bf16(value));
                }
            }
            const std::vector<float> read_back = read(got, one.places * width);
            for (std::size_t i = 0; i < dweight.size(); ++i) {
                ASSERT_EQ(read_back[i], dweight[i]) << one.rows << " rows of " << name_of(type) << ", element " << i;
            }
        }
    }
}

}  // namespace
}  // namespace orrery::exec
