// For every plan of the parity tests: the ranks together write every tensor to a checkpoint exactly once.
#include "exec/slices.h"

#include <gtest/gtest.h>

#include <map>

#include "exec/arena.h"
#include "exec/checkpoint/state.h"
#include "exec/shards.h"
#include "tests/parity/plans.h"

namespace orrery::exec {
namespace {

using parity::Case;

/// Counts how often each element of each tensor is covered.
class Coverage {
  public:
    explicit Coverage(const std::map<std::string, TensorShape>& shapes) : shapes_(shapes) {
        for (const auto& [name, shape] : shapes) {
            counts_[name].resize(static_cast<std::size_t>(shape.rows * shape.cols));
        }
    }
    void add(const std::string& tensor, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
        const TensorShape& shape = shapes_.at(tensor);
        ASSERT_TRUE(row >= 0 && col >= 0 && rows > 0 && cols > 0) << tensor;
        ASSERT_LE(row + rows, shape.rows) << tensor;
        ASSERT_LE(col + cols, shape.cols) << tensor;
        std::vector<int>& counts = counts_.at(tensor);
        for (std::int64_t r = row; r < row + rows; ++r) {
            for (std::int64_t c = col; c < col + cols; ++c) ++counts[static_cast<std::size_t>(r * shape.cols + c)];
        }
    }
    void expect_once() const {
        for (const auto& [name, counts] : counts_) EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << name;
    }

  private:
    const std::map<std::string, TensorShape>& shapes_;
    std::map<std::string, std::vector<int>> counts_;
};

void expect_whole_and_once(const program::Plan& plan) {
    SCOPED_TRACE(plan.name);
    const program::Program program = program::lower(plan);
    const auto tensors = whole_tensors(program);
    Coverage coverage(tensors);
    for (std::int64_t rank = 0; rank < program.world_size(); ++rank) {
        const Shards shards(program, rank);
        for (const TensorSlice& slice : slices_of(program, rank, shards.pieces())) {
            EXPECT_EQ(slice.shape, tensors.at(slice.tensor));
            if (!shards.is_first_copy(*slice.parameter)) continue;
            coverage.add(slice.tensor, slice.row, slice.col, slice.rows, slice.cols);
        }
    }
    coverage.expect_once();
}

TEST(CheckpointSlices, CoverEveryTensorExactlyOnce) {
    std::map<std::string, std::map<std::string, TensorShape>> by_model;
    for (const Case& one : parity::all_cases()) {
        const program::Plan plan = parity::make_plan(one);
        expect_whole_and_once(plan);
        const auto tensors = whole_tensors(program::lower(plan));
        EXPECT_EQ(by_model.emplace(one.model, tensors).first->second, tensors) << plan.name;
    }
}

/// A backend that only provides memory.
class MemoryOnly : public Backend {
  public:
    ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& /*needs*/) override {
        memory_.resize(static_cast<std::size_t>(device_bytes + host_bytes));
        return {memory_.data(), memory_.data() + device_bytes};
    }
    void write(void*, std::int64_t, const std::function<void(std::byte*)>&) override { refuse(); }
    void read(const void*, std::int64_t, const std::function<void(const std::byte*)>&) override { refuse(); }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override { refuse(); }
    AxisGroups connect(const Partners&) override { refuse(); }
    std::int64_t run(const LocalWork&, const OperatorContext&) override { refuse(); }
    [[nodiscard]] bool is_synchronous() const override { return true; }
    std::int64_t post(program::Stream, const Operation&) override { refuse(); }
    void clear(void*, std::int64_t) override { refuse(); }
    void fetch(const double*, double*) override { refuse(); }
    void stamp(std::int64_t*) override { refuse(); }
    void wait(program::Stream, std::int64_t) override { refuse(); }
    void wait_all() override { refuse(); }
    [[nodiscard]] std::int64_t bytes_sent(program::Stream) const override { refuse(); }
    [[nodiscard]] std::map<std::string, std::string> describe() const override { refuse(); }

  private:
    [[noreturn]] static void refuse() { throw std::logic_error("MemoryOnly only reserves memory"); }
    std::vector<std::byte> memory_;
};

/// Expects that blocks of one kind have distinct addresses. With `everything` they must cover every element once.
void expect_apart(const std::vector<StateBlock>& blocks, const std::map<std::string, TensorShape>& tensors,
                  const std::set<StateKind>& kinds, bool everything) {
    for (const StateKind kind : kinds) {
        SCOPED_TRACE(name_of(kind));
        Coverage coverage(tensors);
        std::set<const std::byte*> rows;
        std::size_t row_count = 0;
        for (const StateBlock& block : blocks) {
            if (block.kind != kind) continue;
            EXPECT_EQ(block.dtype, kind == StateKind::parameter ? DType::bf16 : DType::fp32);
            coverage.add(block.tensor, block.row, block.col, block.rows, block.cols);
            row_count += static_cast<std::size_t>(block.rows);
            for (std::int64_t row = 0; row < block.rows; ++row) rows.insert(block.first + row * block.stride_bytes);
        }
        EXPECT_EQ(rows.size(), row_count);
        if (everything) coverage.expect_once();
    }
}

TEST(CheckpointState, Bf16TrainingStoresParametersMastersAndMoments) {
    program::Plan plan =
        parity::make_plan({"tiny-gpt", {.name = "dp2_zero1", .dp = 2, .data_parallel = program::DataParallel::zero1}});
    plan.training.precision = program::precision_named("bf16", plan.implementation);
    ASSERT_TRUE(plan.training.precision.master_weights);
    const program::Program program = program::lower(plan);
    const auto tensors = whole_tensors(program);
    std::vector<StateBlock> all;
    std::int64_t owned_bytes = 0;
    std::vector<std::unique_ptr<Shards>> shards;
    std::vector<std::unique_ptr<MemoryOnly>> backends;
    std::vector<std::unique_ptr<Arena>> arenas;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        shards.push_back(std::make_unique<Shards>(program, rank));
        backends.push_back(std::make_unique<MemoryOnly>());
        arenas.push_back(std::make_unique<Arena>(program, program.classes[0], *shards.back(), *backends.back()));
        const TrainingState state(program, rank, *shards.back(), *arenas.back());
        expect_apart(state.needed(), tensors, {StateKind::parameter}, true);
        for (const StateBlock& block : state.owned()) {
            owned_bytes += block.rows * block.row_bytes();
            all.push_back(block);
        }
    }
    expect_apart(all, tensors, {StateKind::parameter, StateKind::adam_m, StateKind::adam_v, StateKind::master}, true);
    std::int64_t elements = 0;
    for (const auto& [name, shape] : tensors) elements += shape.rows * shape.cols;
    EXPECT_EQ(owned_bytes, elements * (2 + 4 + 4 + 4));
}

}  // namespace
}  // namespace orrery::exec
