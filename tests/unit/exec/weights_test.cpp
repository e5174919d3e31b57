#include "exec/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/random.h"

namespace orrery::exec {
namespace {

using models::InitKind;
using models::ShardDim;
using models::SlotDecl;
using models::SlotRole;

std::vector<float> filled(const SlotDecl& slot, std::int64_t tp_index) {
    std::vector<float> values(static_cast<std::size_t>(slot.elements()), 99.0F);
    fill_parameter(slot, "layers.2.", {.tp = tp_index}, 42, values);
    return values;
}

float expected_element(const std::string& name, std::uint64_t index, double init_std) {
    const double uniform = RandomStream(42, name).uniform(index);
    return static_cast<float>((2.0 * uniform - 1.0) * std::sqrt(3.0) * init_std);
}

/// A fused weight of two parts with 6 and 4 global rows, on two ranks.
SlotDecl fused_slot() {
    return {.name = "qkv.weight",
            .role = SlotRole::parameter,
            .shape = {5, 3},
            .parts = {{"q.weight", 6, 3, 3, 3}, {"k.weight", 4, 3, 2, 3}},
            .shard = ShardDim::rows,
            .init_std = 0.5};
}

TEST(Weights, RowShardsTileTheGlobalTensors) {
    const SlotDecl slot = fused_slot();
    std::map<std::string, std::vector<int>> seen{{"q.weight", std::vector<int>(18)},
                                                 {"k.weight", std::vector<int>(12)}};
    for (std::int64_t rank : {0, 1}) {
        const auto values = filled(slot, rank);
        std::int64_t expected_offset = 0;
        for_each_local_row(slot, {.tp = rank}, [&](const ShardRow& row) {
            EXPECT_EQ(row.local_offset, expected_offset);
            expected_offset += row.local_cols;
            ASSERT_EQ(row.valid_cols, 3);
            for (std::int64_t i = 0; i < 3; ++i) {
                const auto global = static_cast<std::uint64_t>(row.global_offset + i);
                ++seen[row.part->name].at(global);
                EXPECT_EQ(values[static_cast<std::size_t>(row.local_offset + i)],
                          expected_element("layers.2." + row.part->name, global, 0.5));
            }
        });
    }
    for (const auto& [name, counts] : seen) EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << name;
}

// With four ranks and two key/value heads, neighbouring ranks hold the same head.
TEST(Weights, NeighboursHoldTheSameKeyValueHead) {
    SlotDecl slot{.name = "kv.weight",
                  .role = SlotRole::parameter,
                  .shape = {2, 3},
                  .parts = {{"k.weight", 2, 3, 1, 3}, {"v.weight", 2, 3, 1, 3}},
                  .shard = ShardDim::rows,
                  .gradient_sum = models::GradientSum::kv_group};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        std::vector<std::int64_t> rows;
        for_each_local_row(slot, {.tp = rank, .kv_copies = 2},
                           [&](const ShardRow& row) { rows.push_back(row.global_row); });
        EXPECT_EQ(rows, std::vector<std::int64_t>(2, rank / 2));
    }
}

TEST(Weights, ColumnShardsTakeTheirColumns) {
    const SlotDecl slot{.name = "o.weight",
                        .role = SlotRole::parameter,
                        .shape = {2, 3},
                        .parts = {{"o.weight", 2, 6, 2, 3}},
                        .shard = ShardDim::cols,
                        .init_std = 0.1};
    const auto values = filled(slot, 1);
    for (std::size_t row = 0; row < 2; ++row) {
        for (std::size_t col = 0; col < 3; ++col) {
            EXPECT_EQ(values[row * 3 + col], expected_element("layers.2.o.weight", row * 6 + 3 + col, 0.1));
        }
    }
}

TEST(Weights, PaddingStaysZero) {
    for (const InitKind init : {InitKind::scaled, InitKind::ones}) {
        const SlotDecl slot{.name = "embedding.weight",
                            .role = SlotRole::parameter,
                            .shape = {4, 2},
                            .parts = {{"embedding.weight", 5, 2, 4, 2}},
                            .shard = ShardDim::rows,
                            .init = init};
        const auto values = filled(slot, 1);  // global rows 4..7, of which only 4 exists
        EXPECT_NE(values[0], 0.0F);
        EXPECT_NE(values[1], 0.0F);
        EXPECT_EQ(std::vector<float>(values.begin() + 2, values.end()), std::vector<float>(6, 0.0F));
    }
}

TEST(Weights, ConstantsAndScale) {
    SlotDecl slot{.name = "w", .role = SlotRole::parameter, .shape = {20000}, .parts = {{"w", 20000, 1, 20000, 1}}};
    slot.init = InitKind::ones;
    EXPECT_EQ(filled(slot, 3), std::vector<float>(20000, 1.0F));  // replicated: the same on every rank
    slot.init = InitKind::zeros;
    EXPECT_EQ(filled(slot, 0), std::vector<float>(20000, 0.0F));
    slot.init = InitKind::scaled;
    slot.init_std = 0.02;
    double sum = 0.0;
    double squares = 0.0;
    for (float value : filled(slot, 0)) {
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_LE(std::abs(value), 0.02F * 1.7321F);
    }
    EXPECT_NEAR(sum / 20000, 0.0, 0.0006);
    EXPECT_NEAR(std::sqrt(squares / 20000), 0.02, 0.0003);
}

TEST(Weights, LayerPrefix) {
    EXPECT_EQ(layer_prefix("layers.3.qkv.weight", fused_slot()), "layers.3.");
    EXPECT_EQ(layer_prefix("qkv.weight", fused_slot()), "");
}

}  // namespace
}  // namespace orrery::exec
