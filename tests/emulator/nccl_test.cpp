// What the emulated NCCL computes and moves, among three processes.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/emulator/processes.h"
#include "tests/emulator/streams.h"

namespace emulated {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 20'000;  // of a block: several chunks, the last of which is not full

/// One of the ranks, whose memory is filled with what tells its elements from those of other ranks and blocks.
struct Rank {
    int rank = 0;
    ncclComm_t comm = nullptr;
    Stream stream;

    static float value(int rank, std::size_t block, std::size_t i) {
        return static_cast<float>(100'000 * rank + 25'000 * static_cast<int>(block) + static_cast<int>(i % 20'000));
    }
    void fill(const Floats& memory, std::size_t blocks) const {
        std::vector<float> values;
        for (std::size_t block = 0; block < blocks; ++block) {
            for (std::size_t i = 0; i < kCount; ++i) values.push_back(value(rank, block, i));
        }
        EXPECT_CUDA(
            cudaMemcpyAsync(memory.data(), values.data(), values.size() * sizeof(float), cudaMemcpyDefault, stream));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
    }
    /// Block `at` of the memory holds block `block` of this rank.
    void expect(const std::vector<float>& values, std::size_t at, int of_rank, std::size_t block) const {
        for (const std::size_t i : {std::size_t{0}, std::size_t{7}, kCount / 2, kCount - 1}) {
            EXPECT_EQ(values[at * kCount + i], value(of_rank, block, i)) << "rank " << rank << ", block " << at;
        }
    }
};

/// Runs the body on each rank and returns the exit codes.
std::vector<int> on_three_ranks(const std::function<void(const Rank&)>& body) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return on_ranks(kRanks, [&](int rank) {
        setenv("EMULATED_CUDA_SEED", std::to_string(rank).c_str(), 1);
        setenv("EMULATED_CUDA_PATIENCE_S", "5", 1);
        Rank one{.rank = rank, .comm = nullptr, .stream = {}};
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        EXPECT_EQ(ncclCommInitRankConfig(&one.comm, kRanks, id, rank, &config), ncclSuccess);
        body(one);
    });
}
const std::vector<int> kAllEnd(kRanks, 0);

// The names end in DeathTest so that these tests come before others, which use the device of the process.

TEST(NcclDeathTest, KindsWithARoot) {
    EXPECT_EQ(on_three_ranks([](const Rank& r) {
                  const Floats in(kRanks * kCount), out(kRanks * kCount);
                  r.fill(in, kRanks);
                  for (int root = 0; root < kRanks; ++root) {
                      const bool is_root = r.rank == root;
                      EXPECT_EQ(ncclBroadcast(in.data(), out.data(), kCount, ncclFloat32, root, r.comm, r.stream),
                                ncclSuccess);
                      r.expect(out.read(r.stream), 0, root, 0);
                      EXPECT_EQ(ncclScatter(is_root ? in.data() : nullptr, out.data(), kCount, ncclFloat32, root,
                                            r.comm, r.stream),
                                ncclSuccess);
                      r.expect(out.read(r.stream), 0, root, static_cast<std::size_t>(r.rank));
                      EXPECT_EQ(ncclGather(in.data(), is_root ? out.data() : nullptr, kCount, ncclFloat32, root, r.comm,
                                           r.stream),
                                ncclSuccess);
                      const std::vector<float> gathered = out.read(r.stream);
                      for (int from = 0; is_root && from < kRanks; ++from) {
                          r.expect(gathered, static_cast<std::size_t>(from), from, 0);
                      }
                      EXPECT_EQ(ncclReduce(in.data(), is_root ? out.data() : nullptr, kCount, ncclFloat32, ncclMax,
                                           root, r.comm, r.stream),
                                ncclSuccess);
                      if (is_root) r.expect(out.read(r.stream), 0, kRanks - 1, 0);
                  }
                  EXPECT_EQ(ncclBroadcast(in.data(), out.data(), 1, ncclFloat32, kRanks, r.comm, r.stream),
                            ncclInvalidArgument);
              }),
              kAllEnd);
}

TEST(NcclDeathTest, AllToAll) {
    EXPECT_EQ(on_three_ranks([](const Rank& r) {
                  const Floats in(kRanks * kCount), out(kRanks * kCount);
                  r.fill(in, kRanks);
                  EXPECT_EQ(ncclAlltoAll(in.data(), out.data(), kCount, ncclFloat32, r.comm, r.stream), ncclSuccess);
                  const std::vector<float> values = out.read(r.stream);
                  for (int from = 0; from < kRanks; ++from) {
                      r.expect(values, static_cast<std::size_t>(from), from, static_cast<std::size_t>(r.rank));
                  }
              }),
              kAllEnd);
}

/// Each rank sends to the next one and receives from the one before, several messages at a time.
void shift(const Rank& r, bool in_a_group) {
    const Floats in(2 * kCount), out(2 * kCount);
    r.fill(in, 2);
    const int next = (r.rank + 1) % kRanks, before = (r.rank + kRanks - 1) % kRanks;
    if (in_a_group) {
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    }
    for (std::size_t block = 0; block < 2; ++block) {
        EXPECT_EQ(ncclSend(in.data() + block * kCount, kCount, ncclFloat32, next, r.comm, r.stream), ncclSuccess);
        EXPECT_EQ(ncclRecv(out.data() + block * kCount, kCount, ncclFloat32, before, r.comm, r.stream), ncclSuccess);
    }
    if (in_a_group) {
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    }
    const std::vector<float> values = out.read(r.stream);
    for (std::size_t block = 0; block < 2; ++block) r.expect(values, block, before, block);
}

TEST(NcclDeathTest, MessagesOfAGroupGoOnAtTheSameTime) {
    EXPECT_EQ(on_three_ranks([](const Rank& r) { shift(r, true); }), kAllEnd);
}

/// Without a group each send waits for a receive that its own rank has queued behind it.
TEST(NcclDeathTest, MessagesWithoutAGroupWaitForEachOther) {
    EXPECT_EQ(on_three_ranks([](const Rank& r) { shift(r, false); }), std::vector<int>(kRanks, -SIGABRT));
}

TEST(NcclDeathTest, MessagesOfDifferentSizesAreFound) {
    const std::vector<int> codes = on_three_ranks([](const Rank& r) {
        const Floats memory(kCount);
        r.fill(memory, 1);
        const std::size_t count = r.rank == 0 ? kCount : kCount - 1;
        if (r.rank == 0) {
            EXPECT_EQ(ncclSend(memory.data(), count, ncclFloat32, 1, r.comm, r.stream), ncclSuccess);
        } else if (r.rank == 1) {
            EXPECT_EQ(ncclRecv(memory.data(), count, ncclFloat32, 0, r.comm, r.stream), ncclSuccess);
        }
        EXPECT_CUDA(cudaStreamSynchronize(r.stream));
    });
    EXPECT_EQ(codes[1], -SIGABRT);
}

}  // namespace
}  // namespace emulated
