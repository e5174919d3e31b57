// All-gather and reduce-scatter with unequal blocks.
#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "exec/transport/collective.h"
#include "tests/unit/exec/collective_data.h"
#include "tests/unit/exec/collective_walk.h"

namespace {

using namespace orrery;
using namespace orrery::exec;
using program::CommKind;

constexpr std::int64_t kCounts = 2;  // counts per member
constexpr std::int64_t kRow = 3;     // elements per count

/// Random blocks of n members with kCounts counts each; some are zero, and sometimes one member has all rows.
struct Blocks {
    std::vector<std::int64_t> counts;
    std::int64_t most = 0;  // largest number of rows in a block

    Blocks(int n, std::uint64_t seed, std::int64_t largest) : most(kCounts * largest) {
        const RandomStream random(seed, "blocks");
        const auto members = static_cast<std::uint64_t>(n);
        const std::uint64_t only = random.below(0, 2 * members);  // the member with all rows, if it exists
        for (std::uint64_t i = 0; i < members * static_cast<std::uint64_t>(kCounts); ++i) {
            const bool empty = random.below(2 * i + 1, 4) == 0 || (only < members && i / kCounts != only);
            counts.push_back(empty ? 0 : static_cast<std::int64_t>(random.below(2 * i + 2, 1 + largest)));
        }
    }
    [[nodiscard]] std::int64_t elements_before(int member) const {
        return std::accumulate(counts.begin(), counts.begin() + member * kCounts, std::int64_t{0}) * kRow;
    }
    [[nodiscard]] std::int64_t elements_of(int member) const {
        return elements_before(member + 1) - elements_before(member);
    }
    [[nodiscard]] BlockCounts arguments(const std::vector<std::int64_t>& read_at, std::int64_t send_limit,
                                        std::int64_t receive_limit) const {
        return {.send = read_at.data(),
                .receive = read_at.data(),
                .send_limit = send_limit,
                .receive_limit = receive_limit,
                .counts_per_member = kCounts,
                .elements_per_count = kRow,
                .advice = "make room"};
    }
};

/// Small blocks, and blocks of several pieces.
constexpr std::int64_t kLargest[] = {40, 20'000};

TEST(AllGatherWithCounts, EveryMemberGetsAllBlocksInTheirOrder) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const std::uint64_t seed : {1U, 2U}) {
            for (const std::int64_t largest : kLargest) {
                const Blocks blocks(n, seed, largest);
                const std::int64_t all = blocks.elements_before(n), room = blocks.most * kRow;
                std::vector<std::int64_t> read_at(blocks.counts.size(), -1);
                std::vector<Buffer> in, out(static_cast<std::size_t>(n), untouched(DType::fp32, n * room));
                std::vector<Collective> members;
                Buffer wanted;
                for (int m = 0; m < n; ++m) {
                    in.push_back(input(DType::fp32, m, room));
                    const auto end = in.back().begin() + blocks.elements_of(m) * size_of(DType::fp32);
                    wanted.insert(wanted.end(), in.back().begin(), end);
                }
                for (int m = 0; m < n; ++m) {
                    const auto i = static_cast<std::size_t>(m);
                    members.emplace_back(CollectiveArguments{.kind = CommKind::all_gather,
                                                             .in = in[i].data(),
                                                             .out = out[i].data(),
                                                             .members = n,
                                                             .me = m,
                                                             .counts = blocks.arguments(read_at, room, n * room)});
                }
                read_at = blocks.counts;  // set only now, because counts are read when the operation starts
                const std::vector<std::int64_t> sent = run(members, seed);
                const Buffer rest = untouched(DType::fp32, n * room - all);
                for (const Buffer& got : out) {
                    const auto end = got.begin() + static_cast<std::ptrdiff_t>(wanted.size());
                    ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin())) << n << ", seed " << seed;
                    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), end)) << n << ", seed " << seed;
                }
                EXPECT_EQ(total(sent), (n - 1) * all * size_of(DType::fp32));
            }
        }
    }
}

TEST(ReduceScatterWithCounts, EveryMemberGetsTheSumOfItsBlock) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const std::uint64_t seed : {1U, 2U}) {
            for (const DType dtype : {DType::fp32, DType::bf16}) {
                for (const std::int64_t largest : kLargest) {
                    const Blocks blocks(n, seed, largest);
                    const std::int64_t all = blocks.elements_before(n), room = blocks.most * kRow;
                    std::vector<std::int64_t> read_at(blocks.counts.size(), -1);
                    const std::vector<Buffer> in = inputs(dtype, n, all);
                    std::vector<Buffer> out(static_cast<std::size_t>(n), untouched(dtype, room));
                    std::vector<Collective> members;
                    for (int m = 0; m < n; ++m) {
                        const auto i = static_cast<std::size_t>(m);
                        members.emplace_back(CollectiveArguments{.kind = CommKind::reduce_scatter,
                                                                 .dtype = dtype,
                                                                 .in = in[i].data(),
                                                                 .out = out[i].data(),
                                                                 .members = n,
                                                                 .me = m,
                                                                 .counts = blocks.arguments(read_at, n * room, room)});
                    }
                    read_at = blocks.counts;
                    const std::vector<std::int64_t> sent = run(members, seed);
                    const Buffer sum = combined(dtype, n, all, program::ReduceOp::sum);
                    for (int m = 0; m < n; ++m) {
                        const Buffer& got = out[static_cast<std::size_t>(m)];
                        const std::int64_t bytes = blocks.elements_of(m) * size_of(dtype);
                        const auto mine = sum.begin() + blocks.elements_before(m) * size_of(dtype);
                        const Buffer rest = untouched(dtype, room - blocks.elements_of(m));
                        ASSERT_TRUE(std::equal(mine, mine + bytes, got.begin())) << n << " members, member " << m;
                        ASSERT_TRUE(std::equal(rest.begin(), rest.end(), got.begin() + bytes)) << n;
                    }
                    EXPECT_EQ(total(sent), (n - 1) * all * size_of(dtype));
                }
            }
        }
    }
}

TEST(BlocksWithCounts, InvalidCountsAreRefusedAtTheStart) {
    std::vector<float> in(32), out(32);
    const auto begins = [&](CommKind kind, const std::vector<std::int64_t>& counts, std::int64_t send_limit,
                            std::int64_t receive_limit) {
        Collective collective({.kind = kind,
                               .in = in.data(),
                               .out = out.data(),
                               .members = 2,
                               .me = 0,
                               .counts = {.send = counts.data(),
                                          .receive = counts.data(),
                                          .send_limit = send_limit,
                                          .receive_limit = receive_limit,
                                          .advice = "make room"}});
        collective.begin();
    };
    EXPECT_NO_THROW(begins(CommKind::all_gather, {3, 5}, 5, 8));
    EXPECT_THROW(begins(CommKind::all_gather, {3, -5}, 5, 8), BugError);
    EXPECT_THROW(begins(CommKind::all_gather, {3, 5}, 4, 8), JobError);  // a single block is too large
    EXPECT_NO_THROW(begins(CommKind::reduce_scatter, {3, 5}, 8, 5));
    EXPECT_THROW(begins(CommKind::reduce_scatter, {3, 5}, 8, 4), BugError);
    EXPECT_THROW(begins(CommKind::reduce_scatter, {3, 6}, 8, 6), BugError);
    try {
        begins(CommKind::all_gather, {4, 5}, 8, 8);
        ADD_FAILURE() << "the operation began";
    } catch (const JobError& error) {
        EXPECT_STREQ(error.what(), "an all-gather receives more than the 8 elements that its buffer holds; make room");
    }
    const std::vector<std::int64_t> counts{1, 1};
    const BlockCounts both{.send = counts.data(), .receive = counts.data(), .send_limit = 2, .receive_limit = 2};
    EXPECT_THROW(Collective({.kind = CommKind::reduce_scatter,
                             .in = in.data(),
                             .out = out.data(),
                             .members = 2,
                             .accumulates = true,
                             .counts = both}),
                 BugError);
    EXPECT_THROW(
        Collective({.kind = CommKind::all_reduce, .in = in.data(), .out = out.data(), .members = 2, .counts = both}),
        BugError);
}

}  // namespace
