#include "sim/program/plan.h"

#include <set>

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

std::optional<std::array<MeshAxis, kMeshAxes>> mesh_order_of(const std::vector<std::string>& axes) {
    std::array<MeshAxis, kMeshAxes> order{};
    if (axes.size() != order.size() || std::set<std::string>(axes.begin(), axes.end()).size() != axes.size()) return {};
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const std::optional<MeshAxis> axis = value_named<MeshAxis>(axes[i]);
        if (!axis) return {};
        order[i] = *axis;
    }
    return order;
}

std::array<MeshAxis, kMeshAxes> mesh_order_named(const std::string& text) {
    std::vector<std::string> axes(1);
    for (const char letter : text) {
        if (letter == ',') {
            axes.emplace_back();
        } else {
            axes.back() += letter;
        }
    }
    if (const auto order = mesh_order_of(axes)) return *order;
    throw InputError("order \"" + text + "\": not an order of the mesh's axes; allowed: " + kMeshOrderRule);
}

std::string name_of(OptimizerKind kind) {
    switch (kind) {
        case OptimizerKind::adamw:
            return "adamw";
        case OptimizerKind::adam:
            return "adam";
        case OptimizerKind::sgd_momentum:
            return "sgd_momentum";
    }
    return "?";
}

std::string name_of(Recompute kind) {
    switch (kind) {
        case Recompute::none:
            return "none";
        case Recompute::selective:
            return "selective";
        case Recompute::full:
            return "full";
    }
    return "?";
}

Recompute recompute_named(const std::string& name) {
    return named<Recompute>(name, "recompute");
}

std::int64_t Parallelism::virtual_stages() const {
    return row_of(schedule).virtual_stages(pp, chunks);
}

const std::vector<std::string>& precision_names() {
    static const std::vector<std::string> names{"fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4", "mxfp4"};
    return names;
}

namespace {

std::optional<Fp8Scaling> narrow_products_named(const std::string& name) {
    if (name == "fp8") return Fp8Scaling::delayed;
    if (name == "mxfp8") return Fp8Scaling::mx;
    if (name == "nvfp4") return Fp8Scaling::nvfp4;
    if (name == "mxfp4") return Fp8Scaling::mxfp4;
    return {};
}

}  // namespace

Precision precision_named(const std::string& name, const models::Implementation& implementation) {
    if (name == "fp32") return {};
    if (name == "tf32") return {.compute = DType::tf32};
    const std::optional<Fp8Scaling> narrow = narrow_products_named(name);
    if (name == "bf16" || name == "fp16" || narrow) {
        const DType type = name == "fp16" ? DType::fp16 : DType::bf16;
        const bool widens = type == DType::bf16 || implementation.fp16_gradients_in_fp32;
        return {.parameter = type,
                .activation = type,
                .gradient = widens && implementation.gradients_in_fp32 ? DType::fp32 : type,
                .reduction = widens && implementation.reduces_in_fp32 ? DType::fp32 : type,
                .compute = type,
                .fp8 = narrow.value_or(Fp8Scaling::none),
                .master_weights = implementation.master_weights,
                .loss_scaling = name == "fp16"};
    }
    throw InputError("precision \"" + name +
                     "\": no precision has this name; allowed: " + quoted_list(precision_names()));
}

std::string name_of(const Precision& precision) {
    for (const std::string& name : precision_names()) {
        if (precision == precision_named(name)) return name;
    }
    std::string text = std::string(orrery::name_of(precision.parameter)) + " parameters, ";
    text += std::string(orrery::name_of(precision.activation)) + " activations, ";
    text += std::string(orrery::name_of(precision.gradient)) + " gradients";
    if (precision.reduction != precision.gradient) {
        text += " reduced in " + std::string(orrery::name_of(precision.reduction));
    }
    if (precision.compute != precision.activation) {
        text += ", " + std::string(orrery::name_of(precision.compute)) + " products";
    }
    if (precision.fp8 != Fp8Scaling::none) {
        text += ", " + std::string(orrery::name_of(models::operand_type(precision.fp8))) + " products (" +
                std::string(models::name_of(precision.fp8)) + " scaling)";
    }
    if (precision.fp8_parameters) text += ", parameters gathered in fp8";
    if (precision.master_weights) text += ", fp32 master weights";
    if (precision.loss_scaling) text += ", loss scaling";
    return text;
}

std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages) {
    if (stages < 1 || stages > layers) {
        throw InputError("pipeline stages: got " + std::to_string(stages) + "; allowed: 1 to " +
                         std::to_string(layers) + ", the number of layers");
    }
    std::vector<std::int64_t> result(static_cast<std::size_t>(stages), layers / stages);
    for (std::int64_t i = 0; i < layers % stages; ++i) ++result[static_cast<std::size_t>(i)];
    return result;
}

}  // namespace orrery::program
