// Reductions of every element type, and reduce-scatter that accumulates or consumes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "exec/transport/collective.h"
#include "exec/transport/reduce.h"
#include "tests/unit/exec/collective_data.h"
#include "tests/unit/exec/collective_walk.h"

namespace {

using namespace orrery;
using namespace orrery::exec;
using program::CommKind;

/// Runs the operation in place on all members; returns their results.
std::vector<Buffer> all_reduced(ReduceOp op, DType dtype, int n, std::int64_t elements) {
    std::vector<Buffer> data = inputs(dtype, n, elements);
    std::vector<Collective> members;
    for (int m = 0; m < n; ++m) {
        std::byte* const at = data[static_cast<std::size_t>(m)].data();
        members.emplace_back(CollectiveArguments{.kind = CommKind::all_reduce,
                                                 .reduce = op,
                                                 .dtype = dtype,
                                                 .elements = elements,
                                                 .in = at,
                                                 .out = at,
                                                 .members = n,
                                                 .me = m});
    }
    EXPECT_EQ(total(run(members)), 2 * (n - 1) * elements * size_of(dtype));
    return data;
}

TEST(ReduceScatter, AccumulatesOutPlusTheSum) {
    // In fp32 (2^24 + 1) + 1 is 2^24 but 2^24 + (1 + 1) is not, so the order of the additions shows.
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const DType dtype : kReducible) {
            for (const std::int64_t block : {0L, 1L, 1000L, 70001L}) {
                if (block > 1000 && dtype != DType::fp32) continue;
                const std::vector<Buffer> original = inputs(dtype, n, n * block);
                std::vector<Buffer> in = original;
                std::vector<Buffer> sums(in.size(), untouched(dtype, block));
                std::vector<Buffer> out;
                const int held = dtype == DType::fp32 ? 1 << 24 : dtype == DType::fp16 ? 2048 : 256;
                for (int m = 0; m < n; ++m) out.push_back(filled(dtype, block, [&](std::int64_t) { return held; }));
                std::vector<Buffer> wanted = out;
                for (const bool accumulates : {false, true}) {
                    std::vector<Collective> members;
                    for (int m = 0; m < n; ++m) {
                        const auto at = static_cast<std::size_t>(m);
                        members.emplace_back(CollectiveArguments{.kind = CommKind::reduce_scatter,
                                                                 .dtype = dtype,
                                                                 .elements = n * block,
                                                                 .in = in[at].data(),
                                                                 .out = accumulates ? out[at].data() : sums[at].data(),
                                                                 .members = n,
                                                                 .me = m,
                                                                 .accumulates = accumulates});
                    }
                    for (const std::int64_t sent : run(members)) ASSERT_EQ(sent, (n - 1) * block * size_of(dtype));
                }
                ASSERT_EQ(in, original);
                const Buffer all = combined(dtype, n, n * block, ReduceOp::sum);
                for (int m = 0; m < n; ++m) {
                    const auto at = static_cast<std::size_t>(m);
                    ASSERT_EQ(sums[at], part(all, m, block * size_of(dtype)));
                    exec::combine(ReduceOp::sum, dtype, wanted[at].data(), sums[at].data(), wanted[at].data(), block);
                    ASSERT_EQ(out[at], wanted[at]) << n << " members, " << block << " " << name_of(dtype);
                }
            }
        }
    }
}

TEST(ReduceScatter, ConsumingZeroesTheRestOfItsInput) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const std::int64_t block : {0L, 1L, 1000L, 70001L}) {
            std::vector<Buffer> data = inputs(DType::fp32, n, n * block);
            const std::int64_t bytes = block * size_of(DType::fp32);
            std::vector<Collective> members;
            for (int m = 0; m < n; ++m) {
                std::byte* const at = data[static_cast<std::size_t>(m)].data();
                members.emplace_back(CollectiveArguments{.kind = CommKind::reduce_scatter,
                                                         .elements = n * block,
                                                         .in = at,
                                                         .out = at + m * bytes,
                                                         .members = n,
                                                         .me = m,
                                                         .consumes = true});
            }
            ASSERT_EQ(total(run(members)), n * (n - 1) * bytes);
            const Buffer sums = combined(DType::fp32, n, n * block, ReduceOp::sum);
            for (int m = 0; m < n; ++m) {
                const Buffer& mine = data[static_cast<std::size_t>(m)];
                for (int b = 0; b < n; ++b) {
                    const Buffer wanted = b == m ? part(sums, b, bytes) : Buffer(static_cast<std::size_t>(bytes));
                    ASSERT_EQ(part(mine, b, bytes), wanted) << n << " members, block " << b << " of member " << m;
                }
            }
        }
    }
}

TEST(Reductions, MeansAreSumsDividedOnce) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16, DType::fp16}) {
            for (const std::int64_t elements : {0L, 1L, 17L, 1000L, 40001L}) {
                Buffer wanted = combined(dtype, n, elements, ReduceOp::sum);
                make_mean(dtype, wanted.data(), elements, n);
                for (const Buffer& result : all_reduced(ReduceOp::mean, dtype, n, elements))
                    ASSERT_EQ(result, wanted) << n << " members, " << name_of(dtype);
            }
        }
    }
    float thirds[] = {3.0F, -1.0F, 0.0F};
    make_mean(DType::fp32, reinterpret_cast<std::byte*>(thirds), 3, 3);
    EXPECT_EQ(thirds[0], 1.0F);
    EXPECT_EQ(thirds[1], -1.0F / 3.0F);
    EXPECT_EQ(thirds[2], 0.0F);
    std::uint16_t half = to_bf16(3.0F);
    make_mean(DType::bf16, reinterpret_cast<std::byte*>(&half), 1, 2);
    EXPECT_EQ(from_bf16(half), 1.5F);
}

TEST(Reductions, OfEveryTypeAndAlgorithm) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const DType dtype : kReducible) {
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
                for (const std::int64_t elements : {0L, 1L, 17L, 1000L, 40001L}) {
                    const Buffer wanted = combined(dtype, n, elements, op);
                    for (const Buffer& result : all_reduced(op, dtype, n, elements))
                        ASSERT_EQ(result, wanted) << n << " members, " << name_of(dtype);
                }
            }
        }
    }
}

// Sums of values that do not add exactly are bitwise equal in any order of messages, and for all-reduce on all members.
TEST(Reductions, BitwiseEqualInAnyOrderOfMessages) {
    for (const CommKind kind : {CommKind::all_reduce, CommKind::reduce}) {
        for (const DType dtype : {DType::fp32, DType::fp64, DType::bf16, DType::fp16}) {
            for (int n = 2; n <= kMostMembers; ++n) {
                for (const std::int64_t elements : {5L, 1500L, 100001L}) {
                    std::vector<Buffer> in;
                    for (int m = 0; m < n; ++m) {
                        const RandomStream random(42, "member " + std::to_string(m));
                        in.emplace_back(static_cast<std::size_t>(elements * size_of(dtype)));
                        for (std::int64_t i = 0; i < elements; ++i) {
                            std::byte* const at = in.back().data() + i * size_of(dtype);
                            const double x = random.uniform(static_cast<std::uint64_t>(i)) - 0.5;
                            if (dtype == DType::fp64) store(at, x);
                            if (dtype == DType::fp32) store(at, static_cast<float>(x));
                            if (dtype == DType::bf16) store(at, to_bf16(static_cast<float>(x)));
                            if (dtype == DType::fp16) store(at, to_fp16(static_cast<float>(x)));
                        }
                    }
                    Buffer first;
                    for (const std::uint64_t seed : {1U, 2U, 3U}) {
                        std::vector<Buffer> out(in.size(), untouched(dtype, elements));
                        std::vector<Collective> members;
                        for (int m = 0; m < n; ++m) {
                            const auto at = static_cast<std::size_t>(m);
                            members.emplace_back(CollectiveArguments{.kind = kind,
                                                                     .dtype = dtype,
                                                                     .elements = elements,
                                                                     .in = in[at].data(),
                                                                     .out = out[at].data(),
                                                                     .members = n,
                                                                     .me = m});
                        }
                        run(members, seed);
                        if (first.empty()) first = out[0];
                        ASSERT_EQ(out[0], first);
                        for (const Buffer& result : out) {
                            const bool same = result == first || kind != CommKind::all_reduce;
                            ASSERT_TRUE(same);
                        }
                    }
                }
            }
        }
    }
}

TEST(Reductions, SixteenBitSumsRoundEveryTimeAndKeepNan) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
        const auto from = dtype == DType::bf16 ? from_bf16 : from_fp16;
        const auto to = dtype == DType::bf16 ? to_bf16 : to_fp16;
        const float nan = std::numeric_limits<float>::quiet_NaN();
        const float even = dtype == DType::bf16 ? 256.0F : 2048.0F;  // beyond it only even integers exist
        // even + 1 is a tie and rounds to `even`, each time; even + 3 rounds up to even + 4.
        const std::uint16_t in[3][4] = {{to(even), to(even), to(nan), to(1.0F)},
                                        {to(1.0F), to(3.0F), to(1.0F), to(nan)},
                                        {to(1.0F), to(0.0F), to(1.0F), to(1.0F)}};
        std::uint16_t out[4] = {};
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
            std::vector<Collective> members;
            for (int m = 0; m < 3; ++m) {
                members.emplace_back(CollectiveArguments{.kind = CommKind::reduce,
                                                         .reduce = op,
                                                         .dtype = dtype,
                                                         .elements = 4,
                                                         .in = in[m],
                                                         .out = m == 0 ? out : nullptr,
                                                         .members = 3,
                                                         .me = m});
            }
            run(members);
            EXPECT_EQ(from(out[0]), even);
            EXPECT_EQ(from(out[1]), op == ReduceOp::sum ? even + 4 : even);
            EXPECT_TRUE(std::isnan(from(out[2])));
            EXPECT_TRUE(std::isnan(from(out[3])));
        }
    }
}

}  // namespace
