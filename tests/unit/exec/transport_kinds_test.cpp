// The messages of broadcast, reduce, scatter, gather, exchange and all-to-all.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <limits>
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

struct Case {
    int n = 1;
    int root = 0;
    DType dtype = DType::fp32;
    std::int64_t elements = 0;
    bool in_place = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << c.n << " members, root " << c.root << ", " << c.elements << " " << name_of(c.dtype)
               << (c.in_place ? ", in place" : "");
}

/// Every group size. Small groups with every root, large ones with the first, a middle and the last member as root.
void for_each_case(const std::vector<std::int64_t>& sizes, const std::function<void(const Case&)>& check) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (int root = 0; root < n; ++root) {
            if (n > 5 && root != 0 && root != n / 2 && root != n - 1) continue;
            for (const DType dtype : kReducible) {
                for (const std::int64_t elements : sizes) {
                    if (elements > 20000 && dtype != DType::fp32 && dtype != DType::bf16) continue;
                    for (const bool in_place : {false, true}) check({n, root, dtype, elements, in_place});
                }
            }
        }
    }
}

// 1000 fp32 use the tree; 50000 and 200001 use the chain with several columns, of which the last is short.
const std::vector<std::int64_t> kSizes = {0, 1, 7, 1000, 50000, 200001};

TEST(Broadcast, EveryMemberGetsTheRootsBytes) {
    for_each_case(kSizes, [](const Case& c) {
        const Buffer wanted = input(c.dtype, c.root, c.elements);
        Buffer source = wanted;
        std::vector<Buffer> out(static_cast<std::size_t>(c.n), untouched(c.dtype, c.elements));
        if (c.in_place) out[static_cast<std::size_t>(c.root)] = source;
        std::vector<Collective> members;
        for (int m = 0; m < c.n; ++m) {
            std::byte* const to = out[static_cast<std::size_t>(m)].data();
            const std::byte* const from = m != c.root ? nullptr : c.in_place ? to : source.data();
            members.emplace_back(CollectiveArguments{.kind = CommKind::broadcast,
                                                     .dtype = c.dtype,
                                                     .elements = c.elements,
                                                     .in = from,
                                                     .out = to,
                                                     .members = c.n,
                                                     .me = m,
                                                     .root = c.root});
        }
        const std::vector<std::int64_t> sent = run(members);
        for (const Buffer& result : out) ASSERT_EQ(result, wanted) << c;
        const std::int64_t bytes = c.elements * size_of(c.dtype);
        ASSERT_EQ(total(sent), (c.n - 1) * bytes) << c;
        for (int m = 0; m < c.n; ++m) {
            const bool last = (m + 1) % c.n == c.root;
            if (bytes > exec::kSmallTreeBytes) {
                ASSERT_EQ(sent[static_cast<std::size_t>(m)], last ? 0 : bytes) << c;
            }
        }
        int depth = 0;
        while (1 << depth < c.n) ++depth;
        if (bytes <= exec::kSmallTreeBytes) {
            ASSERT_EQ(sent[static_cast<std::size_t>(c.root)], depth * bytes) << c;
        }
    });
}

TEST(Reduce, TheRootGetsTheCombinationAndOtherOutputsDoNotChange) {
    for_each_case(kSizes, [](const Case& c) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
            const std::vector<Buffer> original = inputs(c.dtype, c.n, c.elements);
            std::vector<Buffer> in = original;
            Buffer out = untouched(c.dtype, c.elements);
            std::vector<Collective> members;
            for (int m = 0; m < c.n; ++m) {
                std::byte* const from = in[static_cast<std::size_t>(m)].data();
                std::byte* const to = m != c.root ? nullptr : c.in_place ? from : out.data();
                members.emplace_back(CollectiveArguments{.kind = CommKind::reduce,
                                                         .reduce = op,
                                                         .dtype = c.dtype,
                                                         .elements = c.elements,
                                                         .in = from,
                                                         .out = to,
                                                         .members = c.n,
                                                         .me = m,
                                                         .root = c.root});
            }
            const std::vector<std::int64_t> sent = run(members);
            const Buffer wanted = combined(c.dtype, c.n, c.elements, op);
            for (int m = 0; m < c.n; ++m) {
                const auto at = static_cast<std::size_t>(m);
                const bool replaced = c.in_place && m == c.root;
                ASSERT_EQ(in[at], replaced ? wanted : original[at]) << c;
                ASSERT_EQ(sent[at], m == c.root ? 0 : c.elements * size_of(c.dtype)) << c;
            }
            if (!c.in_place) {
                ASSERT_EQ(out, wanted) << c;
            }
        }
    });
}

const std::vector<std::int64_t> kBlocks = {0, 1, 7, 1000, 30001};

TEST(Scatter, EveryMemberGetsItsBlock) {
    for_each_case(kBlocks, [](const Case& c) {
        const std::int64_t block = c.elements * size_of(c.dtype);
        const Buffer original = input(c.dtype, c.root, c.n * c.elements);
        Buffer source = original;
        std::vector<Buffer> out(static_cast<std::size_t>(c.n), untouched(c.dtype, c.elements));
        std::vector<Collective> members;
        for (int m = 0; m < c.n; ++m) {
            const bool is_root = m == c.root;
            std::byte* const to =
                is_root && c.in_place ? source.data() + m * block : out[static_cast<std::size_t>(m)].data();
            members.emplace_back(CollectiveArguments{.kind = CommKind::scatter,
                                                     .dtype = c.dtype,
                                                     .elements = c.n * c.elements,
                                                     .in = is_root ? source.data() : nullptr,
                                                     .out = to,
                                                     .members = c.n,
                                                     .me = m,
                                                     .root = c.root});
        }
        const std::vector<std::int64_t> sent = run(members);
        ASSERT_EQ(source, original) << c;
        for (int m = 0; m < c.n; ++m) {
            const auto at = static_cast<std::size_t>(m);
            if (m != c.root || !c.in_place) {
                ASSERT_EQ(out[at], part(original, m, block)) << c;
            }
            ASSERT_EQ(sent[at], m == c.root ? (c.n - 1) * block : 0) << c;
        }
    });
}

TEST(Gather, TheRootGetsEveryBlock) {
    for_each_case(kBlocks, [](const Case& c) {
        const std::int64_t block = c.elements * size_of(c.dtype);
        const std::vector<Buffer> original = inputs(c.dtype, c.n, c.elements);
        std::vector<Buffer> in = original;
        Buffer out = untouched(c.dtype, c.n * c.elements);
        if (c.in_place) {
            const Buffer& own = in[static_cast<std::size_t>(c.root)];
            std::copy(own.begin(), own.end(), out.begin() + c.root * block);
        }
        std::vector<Collective> members;
        for (int m = 0; m < c.n; ++m) {
            const bool is_root = m == c.root;
            const std::byte* const from =
                is_root && c.in_place ? out.data() + m * block : in[static_cast<std::size_t>(m)].data();
            members.emplace_back(CollectiveArguments{.kind = CommKind::gather,
                                                     .dtype = c.dtype,
                                                     .elements = c.n * c.elements,
                                                     .in = from,
                                                     .out = is_root ? out.data() : nullptr,
                                                     .members = c.n,
                                                     .me = m,
                                                     .root = c.root});
        }
        const std::vector<std::int64_t> sent = run(members);
        ASSERT_EQ(in, original) << c;
        for (int m = 0; m < c.n; ++m) {
            const auto at = static_cast<std::size_t>(m);
            ASSERT_EQ(part(out, m, block), original[at]) << c;
            ASSERT_EQ(sent[at], m == c.root ? 0 : block) << c;
        }
    });
}

TEST(Exchange, FromTheLeftNeighbourToTheRight) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const DType dtype : kStored) {
            for (const std::int64_t elements : kSizes) {
                const std::vector<Buffer> original = inputs(dtype, n, elements);
                std::vector<Buffer> in = original;
                std::vector<Buffer> out(in.size(), untouched(dtype, elements));
                std::vector<Collective> members;
                for (int m = 0; m < n; ++m) {
                    const auto at = static_cast<std::size_t>(m);
                    members.emplace_back(CollectiveArguments{.kind = CommKind::exchange,
                                                             .dtype = dtype,
                                                             .elements = elements,
                                                             .in = in[at].data(),
                                                             .out = out[at].data(),
                                                             .members = n,
                                                             .me = m});
                }
                const std::vector<std::int64_t> sent = run(members);
                ASSERT_EQ(in, original) << n;
                for (int m = 0; m < n; ++m) {
                    ASSERT_EQ(out[static_cast<std::size_t>(m)], original[static_cast<std::size_t>((m + n - 1) % n)]);
                    ASSERT_EQ(sent[static_cast<std::size_t>(m)], n == 1 ? 0 : elements * size_of(dtype));
                }
            }
        }
    }
}

TEST(AllToAll, BlockJOfMemberIBecomesBlockIOfMemberJ) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const DType dtype : kStored) {
            for (const std::int64_t elements : kBlocks) {
                const std::int64_t block = elements * size_of(dtype);
                const std::vector<Buffer> original = inputs(dtype, n, n * elements);
                std::vector<Buffer> in = original;
                std::vector<Buffer> out(in.size(), untouched(dtype, n * elements));
                std::vector<Collective> members;
                for (int m = 0; m < n; ++m) {
                    const auto at = static_cast<std::size_t>(m);
                    members.emplace_back(CollectiveArguments{.kind = CommKind::all_to_all,
                                                             .dtype = dtype,
                                                             .elements = n * elements,
                                                             .in = in[at].data(),
                                                             .out = out[at].data(),
                                                             .members = n,
                                                             .me = m});
                }
                for (const std::int64_t sent : run(members)) ASSERT_EQ(sent, (n - 1) * block);
                ASSERT_EQ(in, original);
                for (int i = 0; i < n; ++i) {
                    for (int j = 0; j < n; ++j) {
                        ASSERT_EQ(part(out[static_cast<std::size_t>(j)], i, block),
                                  part(original[static_cast<std::size_t>(i)], j, block))
                            << n << " members, from " << i << " to " << j;
                    }
                }
            }
        }
    }
}

TEST(AllToAll, OfOneMemberMayBeInPlace) {
    Buffer data = input(DType::fp32, 0, 100);
    const Buffer original = data;
    const std::int64_t count = 100;
    for (const bool with_counts : {false, true}) {
        const BlockCounts counts{&count, &count, 100, 100};
        std::vector<Collective> members{
            Collective(CollectiveArguments{.kind = CommKind::all_to_all,
                                           .elements = 100,
                                           .in = data.data(),
                                           .out = data.data(),
                                           .counts = with_counts ? counts : BlockCounts{}})};
        EXPECT_EQ(run(members), std::vector<std::int64_t>{0});
        EXPECT_EQ(data, original);
    }
}

// Random counts of all members: counts[i][j] elements from i to j.
using Counts = std::vector<std::vector<std::int64_t>>;

Counts drawn_counts(int n, std::uint64_t seed) {
    const RandomStream random(seed, "counts");
    Counts counts(static_cast<std::size_t>(n), std::vector<std::int64_t>(static_cast<std::size_t>(n), 0));
    std::uint64_t draw = 0;
    const std::uint64_t silent = random.below(draw++, static_cast<std::uint64_t>(2 * n));   // may send nothing
    const std::uint64_t avoided = random.below(draw++, static_cast<std::uint64_t>(2 * n));  // may receive nothing
    for (std::size_t i = 0; i < counts.size(); ++i) {
        for (std::size_t j = 0; j < counts.size(); ++j) {
            const bool empty = i == silent || j == avoided || random.below(draw++, 4) == 0;
            counts[i][j] = empty ? 0 : static_cast<std::int64_t>(random.below(draw++, 3000));
        }
    }
    return counts;
}

TEST(AllToAllWithCounts, EveryBlockArrivesInTheOrderOfTheMembers) {
    for (int n = 1; n <= kMostMembers; ++n) {
        for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
            for (const DType dtype : kStored) {
                const auto size = static_cast<std::size_t>(n);
                const Counts drawn = drawn_counts(n, seed);
                Counts send(size, std::vector<std::int64_t>(size, -1));
                Counts receive = send;
                std::vector<Buffer> in(size), out(size), wanted(size);
                std::vector<Collective> members;
                for (std::size_t m = 0; m < size; ++m) {
                    in[m] = input(dtype, static_cast<int>(m), total(drawn[m]));
                    std::int64_t received = 0;
                    for (std::size_t i = 0; i < size; ++i) received += drawn[i][m];
                    out[m] = untouched(dtype, received);
                    members.emplace_back(
                        CollectiveArguments{.kind = CommKind::all_to_all,
                                            .dtype = dtype,
                                            .in = in[m].data(),
                                            .out = out[m].data(),
                                            .members = n,
                                            .me = static_cast<int>(m),
                                            .counts = {send[m].data(), receive[m].data(), total(drawn[m]), received}});
                }
                for (std::size_t i = 0; i < size; ++i) {
                    auto from = in[i].begin();
                    for (std::size_t j = 0; j < size; ++j) {
                        const auto to = from + drawn[i][j] * size_of(dtype);
                        wanted[j].insert(wanted[j].end(), from, to);
                        from = to;
                    }
                }
                // Set only now, because counts are read when the operation starts.
                for (std::size_t i = 0; i < size; ++i) {
                    send[i] = drawn[i];
                    for (std::size_t j = 0; j < size; ++j) receive[j][i] = drawn[i][j];
                }
                const std::vector<std::int64_t> sent = run(members, seed);
                for (std::size_t m = 0; m < size; ++m) {
                    ASSERT_EQ(out[m], wanted[m]) << n << " members, member " << m << ", seed " << seed;
                    ASSERT_EQ(sent[m], (total(drawn[m]) - drawn[m][m]) * size_of(dtype));
                }
            }
        }
    }
}

TEST(AllToAllWithCounts, ZeroCountsNeedNoBuffers) {
    const std::vector<std::int64_t> none(3, 0);
    std::vector<Collective> members;
    for (int m = 0; m < 3; ++m) {
        members.emplace_back(CollectiveArguments{
            .kind = CommKind::all_to_all, .members = 3, .me = m, .counts = {none.data(), none.data(), 0, 0}});
    }
    EXPECT_EQ(run(members), none);
}

TEST(AllToAllWithCounts, InvalidCountsAreRefusedAtTheStart) {
    float in[8] = {};
    float out[8] = {};
    const auto begins = [&](std::vector<std::int64_t> send, std::vector<std::int64_t> receive, float* to) {
        Collective collective({.kind = CommKind::all_to_all,
                               .in = in,
                               .out = to,
                               .members = 2,
                               .me = 0,
                               .counts = {send.data(), receive.data(), 8, 8}});
        collective.begin();
    };
    EXPECT_NO_THROW(begins({3, 5}, {3, 1}, out));
    EXPECT_THROW(begins({-1, 5}, {-1, 1}, out), BugError);
    EXPECT_THROW(begins({3, -5}, {3, 1}, out), BugError);
    EXPECT_THROW(begins({3, 6}, {3, 1}, out), BugError);
    EXPECT_THROW(begins({3, 5}, {3, 6}, out), JobError);  // other members may send too much, so it is no bug here
    EXPECT_THROW(begins({3, 5}, {3, std::numeric_limits<std::int64_t>::max()}, out), JobError);
    EXPECT_THROW(begins({3, std::numeric_limits<std::int64_t>::max()}, {3, 1}, out), BugError);
    EXPECT_THROW(begins({3, 5}, {4, 1}, out), BugError);  // the counts of its own block differ
    EXPECT_THROW(begins({3, 5}, {3, 1}, in), BugError);
    EXPECT_NO_THROW(begins({1, 1}, {1, 1}, in + 2));  // disjoint with these counts
}

// Two experts on each of two members, rows of three elements.
TEST(AllToAllWithCounts, SeveralCountsOfRowsMakeUpABlock) {
    const std::vector<std::int64_t> sent[] = {{1, 0, 2, 1}, {0, 2, 1, 0}}, received[] = {{1, 0, 0, 2}, {2, 1, 1, 0}};
    std::vector<float> in[2], out[2];
    std::vector<Collective> members;
    for (int m = 0; m < 2; ++m) {
        const std::int64_t room = m == 0 ? 12 : 15;
        for (int i = 0; i < (m == 0 ? 12 : 9); ++i) in[m].push_back(static_cast<float>(100 * m + i));
        out[m].assign(static_cast<std::size_t>(room), -1.0F);
        members.emplace_back(CollectiveArguments{.kind = CommKind::all_to_all,
                                                 .in = in[m].data(),
                                                 .out = out[m].data(),
                                                 .members = 2,
                                                 .me = m,
                                                 .counts = {.send = sent[m].data(),
                                                            .receive = received[m].data(),
                                                            .send_limit = 12,
                                                            .receive_limit = room,
                                                            .counts_per_member = 2,
                                                            .elements_per_count = 3}});
    }
    EXPECT_EQ(run(members), (std::vector<std::int64_t>{36, 24}));
    EXPECT_EQ(out[0], (std::vector<float>{0, 1, 2, 100, 101, 102, 103, 104, 105, -1, -1, -1}));
    EXPECT_EQ(out[1], (std::vector<float>{3, 4, 5, 6, 7, 8, 9, 10, 11, 106, 107, 108, -1, -1, -1}));
}

TEST(AllToAllWithCounts, OverflowErrorEndsWithTheAdvice) {
    const std::vector<std::int64_t> one{1, 1}, many{1, 9};
    std::vector<float> in(4), out(4);
    Collective collective({.kind = CommKind::all_to_all,
                           .in = in.data(),
                           .out = out.data(),
                           .members = 2,
                           .me = 0,
                           .counts = {.send = one.data(),
                                      .receive = many.data(),
                                      .send_limit = 4,
                                      .receive_limit = 4,
                                      .elements_per_count = 2,
                                      .advice = "make room"}});
    try {
        collective.begin();
        ADD_FAILURE() << "the operation began";
    } catch (const JobError& error) {
        EXPECT_STREQ(error.what(), "an all-to-all receives more than the 4 elements that its buffer holds; make room");
    }
}

// Addresses without memory: only the steps are examined.
class Addresses {
  public:
    explicit Addresses(std::int64_t bytes)
        : bytes_(static_cast<std::size_t>(bytes)),
          begin_(mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
    ~Addresses() { munmap(begin_, bytes_); }
    Addresses(const Addresses&) = delete;
    Addresses& operator=(const Addresses&) = delete;
    [[nodiscard]] bool valid() const { return begin_ != MAP_FAILED; }
    [[nodiscard]] std::byte* begin() const { return static_cast<std::byte*>(begin_); }

  private:
    std::size_t bytes_;
    void* begin_;
};

TEST(LargeMessages, AreSplitBecauseMpiCountsInAnInt) {
    constexpr std::int64_t kBlock = 2 * exec::kLargestMessageBytes + 5;
    const Addresses in(2 * kBlock);
    const Addresses out(2 * kBlock);
    ASSERT_TRUE(in.valid() && out.valid());
    const CollectiveArguments arguments{.kind = CommKind::all_to_all,
                                        .dtype = DType::uint8,
                                        .elements = 2 * kBlock,
                                        .in = in.begin(),
                                        .out = out.begin(),
                                        .members = 2,
                                        .me = 0};
    const Collective direct(arguments);
    ASSERT_EQ(direct.columns(), 2);
    ASSERT_EQ(direct.steps(), 3);
    const std::int64_t lengths[] = {exec::kLargestMessageBytes, exec::kLargestMessageBytes, 5};
    std::int64_t done = 0;
    for (int s = 0; s < 3; ++s) {
        const exec::Step step = direct.step(0, s, nullptr);
        EXPECT_EQ(step.send, in.begin() + kBlock + done);
        EXPECT_EQ(step.receive, out.begin() + kBlock + done);
        EXPECT_EQ(step.send_bytes, lengths[s]);
        EXPECT_EQ(step.receive_bytes, lengths[s]);
        done += lengths[s];
        EXPECT_EQ(direct.step(1, s, nullptr).send_bytes, 0);  // the member's own block
    }
    CollectiveArguments shift = arguments;
    shift.kind = CommKind::exchange;
    shift.elements = kBlock;
    EXPECT_EQ(Collective(shift).columns(), 3);
    EXPECT_EQ(Collective(shift).step(2, 0, nullptr).send_bytes, 5);
    const std::int64_t counts[] = {0, kBlock};
    CollectiveArguments counted = arguments;
    counted.counts = {counts, counts, kBlock, kBlock};
    Collective uneven(counted);
    uneven.begin();
    EXPECT_EQ(uneven.steps(), 3);
    EXPECT_EQ(uneven.step(0, 2, nullptr).send, in.begin() + 2 * exec::kLargestMessageBytes);
}

TEST(Chains, AreSplitIntoBoundedPieces) {
    std::vector<float> data(8U << 20);
    CollectiveArguments arguments{.kind = CommKind::reduce,
                                  .elements = static_cast<std::int64_t>(data.size()),
                                  .in = data.data(),
                                  .out = data.data(),
                                  .members = 4};
    EXPECT_EQ(Collective(arguments).columns(), (32 << 20) / exec::kLargestPieceBytes);
    EXPECT_EQ(Collective(arguments).staging_bytes(), exec::kLargestPieceBytes);
    arguments.kind = CommKind::broadcast;
    EXPECT_EQ(Collective(arguments).staging_bytes(), 0);
}

TEST(Kinds, InvalidArgumentsAreABug) {
    float in[8] = {};
    float out[8] = {};
    const auto refuses = [&](CollectiveArguments arguments) {
        arguments.members = 2;
        EXPECT_THROW(Collective{arguments}, BugError) << program::name_of(arguments.kind);
    };
    for (const CommKind kind : {CommKind::scatter, CommKind::gather, CommKind::all_to_all}) {
        refuses({.kind = kind, .elements = 7, .in = in, .out = out});  // unequal blocks
    }
    for (const CommKind kind : {CommKind::broadcast, CommKind::reduce, CommKind::scatter, CommKind::gather,
                                CommKind::exchange, CommKind::all_to_all}) {
        refuses({.kind = kind, .elements = -2, .in = in, .out = out});
        refuses({.kind = kind, .elements = 8, .out = out});
        refuses({.kind = kind, .elements = 8, .in = in});
        refuses({.kind = kind, .elements = 8, .in = in, .out = out, .root = 2});
        refuses({.kind = kind, .elements = 8, .in = in, .out = out, .root = -1});
        refuses({.kind = kind, .elements = 8, .in = in, .out = out, .accumulates = true});
    }
    refuses({.kind = CommKind::reduce, .dtype = DType::uint8, .elements = 8, .in = in, .out = out});
    refuses({.kind = CommKind::exchange, .elements = 8, .in = in, .out = in});
    refuses({.kind = CommKind::all_to_all, .elements = 4, .in = in, .out = in + 3});
    const auto accumulate = [&](ReduceOp op, float* to) {
        refuses(
            {.kind = CommKind::reduce_scatter, .reduce = op, .elements = 8, .in = in, .out = to, .accumulates = true});
    };
    accumulate(ReduceOp::max, out);
    accumulate(ReduceOp::sum, in);
    refuses({.kind = CommKind::reduce_scatter, .reduce = ReduceOp::mean, .elements = 8, .in = in, .out = out});
    refuses({.kind = CommKind::all_reduce,
             .reduce = ReduceOp::mean,
             .dtype = DType::int32,
             .elements = 8,
             .in = in,
             .out = in});
    refuses({.kind = CommKind::reduce_scatter, .elements = 8, .in = in, .out = out, .consumes = true});
    refuses({.kind = CommKind::all_gather, .elements = 8, .in = in, .out = in, .consumes = true});
    const std::int64_t counts[] = {1, 1};
    refuses({.kind = CommKind::all_to_all, .in = in, .out = out, .counts = {counts, nullptr, 8, 8}});
    refuses({.kind = CommKind::all_to_all, .in = in, .out = out, .counts = {nullptr, counts, 8, 8}});
    refuses({.kind = CommKind::all_to_all, .in = in, .out = out, .counts = {counts, counts, -1, 8}});
    refuses({.kind = CommKind::all_to_all, .out = out, .counts = {counts, counts, 8, 8}});
    refuses({.kind = CommKind::all_to_all, .in = in, .counts = {counts, counts, 8, 8}});
    refuses({.kind = CommKind::exchange, .elements = 2, .in = in, .out = out, .counts = {counts, counts, 8, 8}});
}

}  // namespace
