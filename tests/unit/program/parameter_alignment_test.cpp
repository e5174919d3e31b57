// Where parameters lie in memory: kernels move 16 bytes at a time, and the fastest products want it so.
#include <gtest/gtest.h>

#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

/// Parameters and gradients that do not begin at a multiple of 16 bytes.
std::vector<std::string> misaligned(const Program& program) {
    constexpr std::int64_t kBytes = 16;
    std::vector<std::string> names;
    for (const SegmentList& segments : program.classes.front().segment_lists) {
        for (const Segment& segment : segments) {
            for (const Slot& slot : program.bodies[segment.body].slots) {
                const bool is_gradient = slot.space == Space::gradient;
                if (slot.space != Space::parameter && !is_gradient) continue;
                const Bases& bases = is_gradient ? segment.gradient_base : segment.parameter_base;
                const std::int64_t element = bases[slot.range] + slot.offset;
                if (element * size_of(slot.decl.dtype) % kBytes != 0) names.push_back(slot.decl.name);
            }
        }
    }
    return names;
}

TEST(ParameterAlignment, Is16BytesInModelsWhoseWidthsAreMultiplesOfEight) {
    for (const char* model : {"gpt2", "gpt2-xl", "llama3-8b", "llama2-7b", "mixtral-8x7b"}) {
        for (const std::int64_t tp : {1, 4}) {
            for (const DataParallel kind : {DataParallel::ddp, DataParallel::zero3}) {
                const samples::Sample sample{.model = model,
                                             .dp = 2,
                                             .tp = std::string(model) == "gpt2-xl" ? 1 : tp,  // 25 heads
                                             .sequence_parallel = tp > 1 && std::string(model) != "gpt2-xl",
                                             .bf16 = true,
                                             .data_parallel = kind};
                EXPECT_EQ(misaligned(samples::make_program(sample)), std::vector<std::string>{})
                    << model << " tp " << tp << " " << name_of(kind);
            }
        }
    }
    const samples::Sample odd{.bf16 = true, .adjust = [](models::ModelSpec& model) { model.ffn_hidden = 45; }};
    EXPECT_FALSE(misaligned(samples::make_program(odd)).empty());
}

}  // namespace
}  // namespace orrery::program
