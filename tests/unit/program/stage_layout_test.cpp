#include "sim/program/stage_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "sim/program/plan.h"

namespace orrery::program {
namespace {

using Layout = std::vector<std::int64_t>;

ScheduleShape chunked_shape(Schedule schedule, std::int64_t ranks, std::int64_t chunks) {
    return {.schedule = schedule, .ranks = ranks, .chunks = chunks};
}

/// The largest load of a rank.
std::int64_t largest_load(const Layout& layout, const ScheduleShape& shape, EndWeights ends) {
    Layout load(static_cast<std::size_t>(shape.ranks), 0);
    for (std::size_t stage = 0; stage < layout.size(); ++stage) {
        std::int64_t here = layout[stage];
        if (stage == 0) here += ends.embedding;
        if (stage + 1 == layout.size()) here += ends.head;
        for (std::int32_t copy = 0; copy < row_of(shape.schedule).model_copies(); ++copy) {
            load[static_cast<std::size_t>(stage_holder(shape, static_cast<std::int64_t>(stage), copy).rank)] += here;
        }
    }
    return *std::max_element(load.begin(), load.end());
}

TEST(BalancedStages, CountTheEndsAsBlocks) {
    // Llama 3 405B as its makers trained it: 126 blocks on 128 stages, the first and the last without any.
    Layout published(128, 1);
    published.front() = published.back() = 0;
    EXPECT_EQ(balanced_stages(126, chunked_shape(Schedule::interleaved, 16, 8), {1, 1}), published);
    // A head worth two blocks, and the remainder on the last stages.
    EXPECT_EQ(balanced_stages(32, chunked_shape(Schedule::one_f_one_b, 4, 1), {0, 2}), (Layout{8, 8, 9, 7}));
    EXPECT_EQ(balanced_stages(30, chunked_shape(Schedule::one_f_one_b, 4, 1), {1, 1}), (Layout{7, 8, 8, 7}));
    // In a V the first rank has both ends.
    EXPECT_EQ(balanced_stages(14, chunked_shape(Schedule::zb_v, 2, 2), {1, 1}), (Layout{3, 4, 4, 3}));
    EXPECT_EQ(balanced_stages(7, chunked_shape(Schedule::one_f_one_b, 1, 1), {1, 1}), (Layout{7}));
}

TEST(BalancedStages, LeaveNoInnerStageWithoutABlock) {
    EXPECT_EQ(balanced_stages(2, chunked_shape(Schedule::one_f_one_b, 4, 1), {1, 1}), (Layout{0, 1, 1, 0}));
    EXPECT_EQ(balanced_stages(3, chunked_shape(Schedule::one_f_one_b, 4, 1), {0, 1}), (Layout{1, 1, 1, 0}));
    EXPECT_TRUE(balanced_stages(1, chunked_shape(Schedule::one_f_one_b, 4, 1), {1, 1}).empty());
}

TEST(BalancedStages, HaveTheSmallestLargestLoad) {
    // Compared with every layout of small pipelines.
    const auto least_of = [](std::int64_t layers, const ScheduleShape& shape, EndWeights ends) {
        const std::int64_t stages = virtual_stages(shape);
        std::int64_t least = 1 << 20;
        Layout layout(static_cast<std::size_t>(stages), 0);
        const auto fill = [&](const auto& self, std::size_t stage, std::int64_t left) -> void {
            const bool is_end = stage == 0 || stage + 1 == layout.size();
            if (stage + 1 == layout.size()) {
                layout[stage] = left;
                least = std::min(least, largest_load(layout, shape, ends));
                return;
            }
            for (std::int64_t here = is_end ? 0 : 1; here <= left; ++here) {
                layout[stage] = here;
                self(self, stage + 1, left - here);
            }
        };
        fill(fill, 0, layers);
        return least;
    };
    const std::vector<ScheduleShape> shapes{
        chunked_shape(Schedule::one_f_one_b, 2, 1), chunked_shape(Schedule::one_f_one_b, 4, 1),
        chunked_shape(Schedule::interleaved, 2, 2), chunked_shape(Schedule::zb_v, 2, 2),
        chunked_shape(Schedule::dualpipe, 4, 2)};
    for (const ScheduleShape& shape : shapes) {
        for (std::int64_t layers = virtual_stages(shape) - 2; layers <= 9; ++layers) {
            for (const EndWeights ends : {EndWeights{0, 0}, EndWeights{0, 1}, EndWeights{1, 2}, EndWeights{0, 5}}) {
                const Layout layout = balanced_stages(layers, shape, ends);
                ASSERT_EQ(std::accumulate(layout.begin(), layout.end(), std::int64_t{0}), layers);
                EXPECT_EQ(largest_load(layout, shape, ends), least_of(layers, shape, ends))
                    << name_of(shape.schedule) << " " << layers << " " << ends.embedding << " " << ends.head;
            }
        }
    }
}

TEST(StageLayout, IsWrittenAsMegatronWritesIt) {
    EXPECT_EQ(stage_layout_text({4}), "Et*4L");
    EXPECT_EQ(stage_layout_text({1, 2}), "Et|t*2L");
    EXPECT_EQ(stage_layout_text({0, 1, 1, 0}), "E|(t|)*2L");
    EXPECT_EQ(stage_layout_text({3, 2, 2, 2, 4, 0}), "Et*3|(t*2|)*3t*4|L");
    EXPECT_EQ(stage_layout_named("Et*3|(tt|)*29,t|L", "f", "k").size(), 32U);
    EXPECT_EQ(stage_layout_named("E|(t|)*2L", "f", "k"), (Layout{0, 1, 1, 0}));
    RandomStream random(7, "layouts");
    for (std::uint64_t draw = 0; draw < 200; ++draw) {
        Layout layout(2 + random.below(4 * draw, 9));
        for (std::size_t i = 0; i < layout.size(); ++i) {
            layout[i] = static_cast<std::int64_t>(random.below(1000 + 64 * draw + i, 3));
        }
        EXPECT_EQ(stage_layout_named(stage_layout_text(layout), "f", "k"), layout);
    }
}

TEST(StageLayout, RefusesWhatItCannotRead) {
    const auto problem = [](const std::string& text) -> std::string {
        try {
            (void)stage_layout_named(text, "command line", "--stage-layout");
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(problem("Etm|L"),
              "command line: --stage-layout: got Etm|L; allowed: E, t, L, |, parentheses and *n, but not 'm'");
    for (const char* text :
         {"", "t|L", "Et|t", "EtE|L", "Et|LL", "E(t|L", "Et)|L", "Et*|L", "Et*0|L", "Et*99999999999999|L"}) {
        EXPECT_NE(problem(text), "") << text;
    }
    EXPECT_EQ(problem(std::string(200'000, '(')),
              "command line: --stage-layout: got 200000 characters; allowed: at most 10000");
}

}  // namespace
}  // namespace orrery::program
