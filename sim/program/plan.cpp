#include "sim/program/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"
#include "sim/program/plan_names.h"

namespace orrery::program {

std::string name_of(VocabularyParallel kind) {
    static constexpr auto kNames =
        name_table<VocabularyParallel::interlaced>({"none", "vocab-1", "vocab-2", "interlaced"});
    return std::string(kNames[kind]);
}

std::string name_of(DataParallel kind) {
    return std::string(row_of(kind).name);
}

DataParallel data_parallel_named(const std::string& name) {
    return named<DataParallel>(name, "data_parallel");
}

std::string name_of(MeshAxis axis) {
    static constexpr auto kNames = name_table<MeshAxis::pp>({"tp", "cp", "ep", "dp", "pp"});
    return std::string(kNames[axis]);
}

std::string mesh_order_text(const Parallelism& parallelism) {
    std::string text;
    for (const MeshAxis axis : parallelism.order) text += (text.empty() ? "" : ",") + name_of(axis);
    return text;
}

std::array<MeshAxis, kMeshAxes> mesh_order_named(const std::string& text) {
    Parallelism parallelism;
    parallelism.order = enum_values<MeshAxis, kMeshAxes>();
    do {
        if (mesh_order_text(parallelism) == text) return parallelism.order;
    } while (std::next_permutation(parallelism.order.begin(), parallelism.order.end()));
    throw InputError("order \"" + text + "\": not an order of the mesh's axes; allowed: " + kMeshOrderRule);
}

std::string name_of(OptimizerKind kind) {
    static constexpr auto kNames = name_table<OptimizerKind::sgd_momentum>({"adamw", "adam", "sgd_momentum"});
    return std::string(kNames[kind]);
}

std::string name_of(Recompute kind) {
    static constexpr auto kNames = name_table<Recompute::full>({"none", "selective", "full"});
    return std::string(kNames[kind]);
}

Recompute recompute_named(const std::string& name) {
    return named<Recompute>(name, "recompute");
}

std::vector<std::string> recomputable_parts() {
    std::vector<std::string> parts = names_of<models::BlockPart>();
    std::erase(parts, models::name_of(models::BlockPart::none));
    std::erase(parts, models::name_of(models::BlockPart::residual));
    return parts;
}

std::int64_t Parallelism::virtual_stages() const {
    return row_of(schedule).virtual_stages(pp, chunks);
}

namespace {

/// bf16 training with narrower GEMMs.
constexpr std::array<std::pair<std::string_view, Fp8Scaling>, 4> kNarrowPrecisions{{
    {"fp8", Fp8Scaling::delayed},
    {"mxfp8", Fp8Scaling::mx},
    {"nvfp4", Fp8Scaling::nvfp4},
    {"mxfp4", Fp8Scaling::mxfp4},
}};

}  // namespace

const std::vector<std::string>& precision_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> all{"fp32", "tf32", "bf16", "fp16"};
        for (const auto& [name, scaling] : kNarrowPrecisions) all.emplace_back(name);
        return all;
    }();
    return names;
}

const std::vector<std::string>& moment_types() {
    static const std::vector<std::string> names{"fp32", "bf16"};
    return names;
}

Precision precision_named(const std::string& name, const models::Implementation& implementation) {
    if (name == "fp32") return {};
    if (name == "tf32") return {.compute = DType::tf32};
    Fp8Scaling narrow = Fp8Scaling::none;
    for (const auto& [narrow_name, scaling] : kNarrowPrecisions) {
        if (name == narrow_name) narrow = scaling;
    }
    if (name == "bf16" || name == "fp16" || narrow != Fp8Scaling::none) {
        const DType type = name == "fp16" ? DType::fp16 : DType::bf16;
        const bool widens = type == DType::bf16 || implementation.fp16_gradients_in_fp32;
        return {.parameter = type,
                .activation = type,
                .gradient = widens && implementation.gradients_in_fp32 ? DType::fp32 : type,
                .reduction = widens && implementation.reduces_in_fp32 ? DType::fp32 : type,
                .compute = type,
                .fp8 = narrow,
                .master_weights = implementation.master_weights,
                .loss_scaling = name == "fp16"};
    }
    throw InputError("precision \"" + name +
                     "\": no precision has this name; allowed: " + quoted_list(precision_names()));
}

std::string name_of(const Precision& precision) {
    using orrery::name_of;
    if (precision.moments != DType::fp32) {
        Precision with_fp32 = precision;
        with_fp32.moments = DType::fp32;
        return fmt::format("{} with {} moments", name_of(with_fp32), name_of(precision.moments));
    }
    for (const std::string& name : precision_names()) {
        if (precision == precision_named(name)) return name;
    }
    std::string text = fmt::format("{} parameters, {} activations, {} gradients", name_of(precision.parameter),
                                   name_of(precision.activation), name_of(precision.gradient));
    if (precision.reduction != precision.gradient) text += fmt::format(" reduced in {}", name_of(precision.reduction));
    if (precision.compute != precision.activation) text += fmt::format(", {} products", name_of(precision.compute));
    if (precision.fp8 != Fp8Scaling::none) {
        text += fmt::format(", {} products ({} scaling)", name_of(models::operand_type(precision.fp8)),
                            models::name_of(precision.fp8));
    }
    if (precision.fp8_parameters) text += ", parameters gathered in fp8";
    if (precision.master_weights) text += ", fp32 master weights";
    if (precision.loss_scaling) text += ", loss scaling";
    return text;
}

std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages) {
    if (stages < 1 || stages > layers) {
        throw InputError(
            fmt::format("pipeline stages: got {}; allowed: 1 to {}, the number of layers", stages, layers));
    }
    std::vector<std::int64_t> result(static_cast<std::size_t>(stages), layers / stages);
    for (std::int64_t i = 0; i < layers % stages; ++i) ++result[static_cast<std::size_t>(i)];
    return result;
}

}  // namespace orrery::program
