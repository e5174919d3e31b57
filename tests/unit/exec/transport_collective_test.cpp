// The message plans of all-reduce, all-gather and reduce-scatter; the other kinds are in transport_kinds_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "exec/transport/collective.h"
#include "tests/unit/exec/collective_walk.h"

namespace {

using namespace orrery;
using exec::Collective;
using exec::CollectiveArguments;
using exec::run;
using program::CommKind;
using program::ReduceOp;

float value(int rank, std::int64_t i) {
    return static_cast<float>((i * 5 + rank * 11) % 37 - 18);
}

std::vector<std::vector<float>> float_inputs(int n, std::int64_t elements) {
    std::vector<std::vector<float>> result(static_cast<std::size_t>(n),
                                           std::vector<float>(static_cast<std::size_t>(elements)));
    for (int r = 0; r < n; ++r) {
        for (std::int64_t i = 0; i < elements; ++i)
            result[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)] = value(r, i);
    }
    return result;
}

std::vector<float> combined_floats(const std::vector<std::vector<float>>& parts, ReduceOp op) {
    std::vector<float> result = parts[0];
    for (std::size_t r = 1; r < parts.size(); ++r) {
        for (std::size_t i = 0; i < result.size(); ++i) {
            result[i] = op == ReduceOp::sum ? result[i] + parts[r][i] : std::max(result[i], parts[r][i]);
        }
    }
    return result;
}

const int kMembers[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 17};

TEST(Collective, AllReduceIsExactAndMovesTheBytesOfTheClosedForm) {
    for (const int n : kMembers) {
        for (const std::int64_t elements : {0L, 1L, 3L, 16L * 17, 1000L, 2048L, 2049L, 70001L, 34000L * n, 300000L}) {
            if (elements >= 100000 && n > 5 && n != 8) continue;  // large sizes: only some member counts
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
                for (const bool in_place : {false, true}) {
                    std::vector<std::vector<float>> in = float_inputs(n, elements);
                    const std::vector<std::vector<float>> original = in;
                    const std::vector<float> wanted = combined_floats(in, op);
                    std::vector<std::vector<float>> out(in.size(), std::vector<float>(wanted.size(), -777.0F));
                    std::vector<Collective> members;
                    for (int r = 0; r < n; ++r) {
                        const auto at = static_cast<std::size_t>(r);
                        members.emplace_back(CollectiveArguments{.kind = CommKind::all_reduce,
                                                                 .reduce = op,
                                                                 .elements = elements,
                                                                 .in = in[at].data(),
                                                                 .out = in_place ? in[at].data() : out[at].data(),
                                                                 .members = n,
                                                                 .me = r});
                    }
                    const std::vector<std::int64_t> sent = run(members);
                    std::int64_t total = 0;
                    for (std::size_t r = 0; r < sent.size(); ++r) {
                        ASSERT_EQ(in_place ? in[r] : out[r], wanted) << n << " members, " << elements << " elements";
                        if (!in_place) {
                            ASSERT_EQ(in[r], original[r]);
                        }
                        if (elements % n == 0) {
                            ASSERT_EQ(sent[r], 2 * (n - 1) * elements * 4 / n) << n << " " << elements;
                        }
                        total += sent[r];
                    }
                    ASSERT_EQ(total, 2 * (n - 1) * elements * 4) << n << " members, " << elements << " elements";
                }
            }
        }
    }
}

TEST(Collective, UnevenRingSendsAllButTheTwoBlocksItKeeps) {
    const int n = 5;
    const std::int64_t elements = 10003;  // blocks of 2001, 2001, 2001, 2000, 2000
    std::vector<std::vector<float>> data = float_inputs(n, elements);
    std::vector<Collective> members;
    for (int r = 0; r < n; ++r) {
        float* at = data[static_cast<std::size_t>(r)].data();
        members.emplace_back(CollectiveArguments{
            .kind = CommKind::all_reduce, .elements = elements, .in = at, .out = at, .members = n, .me = r});
    }
    const std::vector<std::int64_t> sent = run(members);
    const std::int64_t all = 2 * elements;
    const std::vector<std::int64_t> wanted = {(all - 2001 - 2001) * 4, (all - 2001 - 2000) * 4, (all - 2000 - 2000) * 4,
                                              (all - 2000 - 2001) * 4, (all - 2001 - 2001) * 4};
    EXPECT_EQ(sent, wanted);
}

TEST(Collective, AllGatherPlacesEveryBlock) {
    for (const int n : kMembers) {
        for (const std::int64_t block : {0L, 1L, 999L, 70001L}) {
            for (const bool in_place : {false, true}) {
                const std::vector<std::vector<float>> own = float_inputs(n, block);
                std::vector<float> wanted;
                for (const std::vector<float>& part : own) wanted.insert(wanted.end(), part.begin(), part.end());
                std::vector<std::vector<float>> out(own.size(), std::vector<float>(wanted.size(), -777.0F));
                std::vector<Collective> members;
                for (int r = 0; r < n; ++r) {
                    const auto at = static_cast<std::size_t>(r);
                    float* place = out[at].data() + r * block;
                    if (in_place) std::copy(own[at].begin(), own[at].end(), place);
                    members.emplace_back(CollectiveArguments{.kind = CommKind::all_gather,
                                                             .elements = block * n,
                                                             .in = in_place ? place : own[at].data(),
                                                             .out = out[at].data(),
                                                             .members = n,
                                                             .me = r});
                }
                for (const std::int64_t sent : run(members)) ASSERT_EQ(sent, (n - 1) * block * 4);
                for (const std::vector<float>& result : out)
                    ASSERT_EQ(result, wanted) << n << " members, block " << block;
            }
        }
    }
}

TEST(Collective, ReduceScatterDoesNotChangeTheRestOfItsInput) {
    for (const int n : kMembers) {
        for (const std::int64_t block : {0L, 1L, 999L, 70001L}) {
            for (const bool in_place : {false, true}) {
                std::vector<std::vector<float>> in = float_inputs(n, block * n);
                const std::vector<std::vector<float>> original = in;
                const std::vector<float> sums = combined_floats(in, ReduceOp::sum);
                std::vector<std::vector<float>> out(in.size(),
                                                    std::vector<float>(static_cast<std::size_t>(block), -777.0F));
                std::vector<Collective> members;
                for (int r = 0; r < n; ++r) {
                    const auto at = static_cast<std::size_t>(r);
                    members.emplace_back(
                        CollectiveArguments{.kind = CommKind::reduce_scatter,
                                            .elements = block * n,
                                            .in = in[at].data(),
                                            .out = in_place ? in[at].data() + r * block : out[at].data(),
                                            .members = n,
                                            .me = r});
                }
                for (const std::int64_t sent : run(members)) ASSERT_EQ(sent, (n - 1) * block * 4);
                for (int r = 0; r < n; ++r) {
                    const auto at = static_cast<std::size_t>(r);
                    const auto wanted_begin = sums.begin() + r * block;
                    const std::vector<float> wanted(wanted_begin, wanted_begin + block);
                    std::vector<float> expected_in = original[at];
                    if (in_place) std::copy(wanted.begin(), wanted.end(), expected_in.begin() + r * block);
                    ASSERT_EQ(in[at], expected_in) << n << " members, block " << block;
                    if (!in_place) {
                        ASSERT_EQ(out[at], wanted) << n << " members, block " << block;
                    }
                }
            }
        }
    }
}

TEST(Collective, LargeBlocksAreSplitIntoColumnsOfBoundedPieces) {
    std::vector<float> data(8U << 20);
    const Collective collective({.kind = CommKind::all_reduce,
                                 .elements = static_cast<std::int64_t>(data.size()),
                                 .in = data.data(),
                                 .out = data.data(),
                                 .members = 2});
    EXPECT_EQ(collective.columns(), (16 << 20) / exec::kLargestPieceBytes);
    EXPECT_EQ(collective.staging_bytes(), exec::kLargestPieceBytes);
}

TEST(Collective, MaximumOfBothZerosIsTheSameOnBothMembers) {
    float zeros[2] = {0.0F, -0.0F};
    float out[2] = {1.0F, 1.0F};
    std::vector<Collective> members;
    for (int r = 0; r < 2; ++r) {
        members.emplace_back(CollectiveArguments{.kind = CommKind::all_reduce,
                                                 .reduce = ReduceOp::max,
                                                 .elements = 1,
                                                 .in = &zeros[r],
                                                 .out = &out[r],
                                                 .members = 2,
                                                 .me = r});
    }
    run(members);
    EXPECT_EQ(std::memcmp(&out[0], &out[1], sizeof(float)), 0);
    EXPECT_EQ(out[0], 0.0F);
}

TEST(Collective, InvalidArgumentsAreABug) {
    float buffer[8] = {};
    const CollectiveArguments good{
        .kind = CommKind::reduce_scatter, .elements = 8, .in = buffer, .out = buffer, .members = 2, .me = 0};
    EXPECT_NO_THROW(Collective{good});
    CollectiveArguments bad = good;
    bad.elements = 7;  // unequal blocks
    EXPECT_THROW(Collective{bad}, BugError);
    bad = good;
    bad.elements = -2;
    EXPECT_THROW(Collective{bad}, BugError);
    bad = good;
    bad.dtype = DType::uint8;
    EXPECT_THROW(Collective{bad}, BugError);
    bad = good;
    bad.me = 2;
    EXPECT_THROW(Collective{bad}, BugError);
    bad = good;
    bad.out = nullptr;
    EXPECT_THROW(Collective{bad}, BugError);
    bad = good;
    bad.kind = CommKind::send;
    bad.peer = 0;  // itself
    EXPECT_THROW(Collective{bad}, BugError);
}

}  // namespace
