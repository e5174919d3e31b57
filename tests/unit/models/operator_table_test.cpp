#include "models/operator_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/models/layer_samples.h"

namespace orrery::models {
namespace {

TEST(OperatorTable, NamesAreUniqueAndFound) {
    std::set<std::string_view> names;
    for (int i = 0; i < kOpKindCount; ++i) {
        const auto kind = static_cast<OpKind>(i);
        EXPECT_TRUE(names.insert(name_of(kind)).second) << name_of(kind);
        EXPECT_EQ(op_kind_named(name_of(kind)), kind);
    }
    EXPECT_EQ(op_kind_named("convolution"), std::nullopt);
}

TEST(OperatorTable, WorkClassesHaveNames) {
    EXPECT_EQ(name_of(WorkClass::product), "product");
    EXPECT_EQ(name_of(WorkClass::copy), "copy");
    EXPECT_EQ(name_of(WorkClass::tp_wait), "tp_wait");
    EXPECT_EQ(name_of(WorkClass::hidden), "hidden");
}

TEST(OperatorTable, MatrixProductsHaveAProductWorkClass) {
    for (int i = 0; i < kOpKindCount; ++i) {
        const OperatorRow& row = row_of(static_cast<OpKind>(i));
        const bool multiplies = row.work == WorkClass::product || row.work == WorkClass::expert_product ||
                                row.work == WorkClass::attention_product;
        EXPECT_EQ(row.products != nullptr, multiplies) << row.name;
        if (!row.timed_as) continue;
        EXPECT_TRUE(multiplies) << row.name;
        EXPECT_NE(row_of(*row.timed_as).products, nullptr) << row.name;
    }
}

/// The operators of all families, on one of two ranks.
template <typename Visit>
void for_each_operator(const Visit& visit) {
    const Implementation implementation = load_implementation("orrery");
    for (const ModelSpec& model : samples::families()) {
        for (const LayerKind kind :
             {LayerKind::embedding, LayerKind::block, LayerKind::expert_block, LayerKind::head}) {
            if (kind == LayerKind::expert_block && !model.has_experts()) continue;
            for (const std::int64_t tp : {1, 2}) {
                samples::Cut cut{.tp = model.kv_heads % tp == 0 ? tp : 1};
                cut.sequence_parallel = cut.tp > 1 && model.has_experts();
                const Layer layer = build_layer(model, kind, samples::context(model, implementation, 64, 2, cut));
                for (const auto* steps : {&layer.forward, &layer.backward}) {
                    for (const Step& step : *steps) {
                        if (const auto* op = std::get_if<Operator>(&step)) visit(model, layer, *op);
                    }
                }
            }
        }
    }
}

// Each kind accumulates exactly the gradients in its row, completely.
TEST(OperatorTable, GradientsOfLayersEqualTheRow) {
    std::set<OpKind> seen;
    for_each_operator([&](const ModelSpec& model, const Layer& layer, const Operator& op) {
        for (std::size_t out = 0; out < Operands::size(); ++out) {
            std::int64_t expected = 0;
            for (const GradientOutput& gradient : row_of(op.kind).gradients) {
                if (gradient.elements != nullptr && gradient.out == out) expected = gradient.elements(op);
            }
            if (op.out[out] == kNoSlot) continue;
            const SlotDecl& slot = layer.slots.at(op.out[out]);
            const std::int64_t elements = slot.role == SlotRole::gradient ? slot.elements() : 0;
            EXPECT_EQ(expected, elements) << model.name << " " << name_of(op.kind) << " " << slot.name;
            if (elements > 0) seen.insert(op.kind);
        }
    });
    for (int i = 0; i < kOpKindCount; ++i) {
        const auto kind = static_cast<OpKind>(i);
        EXPECT_EQ(row_of(kind).gradients[0].elements != nullptr, seen.contains(kind)) << name_of(kind);
    }
}

TEST(OperatorTable, ProductsAccountForAllFlopsOfTheirOperator) {
    for_each_operator([](const ModelSpec& model, const Layer&, const Operator& op) {
        const ProductShapes shapes = product_shapes(op);
        if (shapes.empty() || op.is_expert_matmul()) return;  // groups are rounded up to the size of the fullest
        double flops = 0;
        for (const ProductShape& shape : shapes) {
            flops += 2.0 * static_cast<double>(shape.m * shape.n * shape.k * shape.count);
        }
        EXPECT_EQ(flops, op.flops) << model.name << " " << name_of(op.kind);
    });
}

}  // namespace
}  // namespace orrery::models
