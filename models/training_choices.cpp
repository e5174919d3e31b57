#include "models/training_choices.h"

#include <algorithm>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::models {

std::string_view name_of(ContextParallel kind) {
    switch (kind) {
        case ContextParallel::ring:
            return "ring";
        case ContextParallel::all_gather:
            return "all_gather";
        case ContextParallel::ulysses:
            return "ulysses";
    }
    throw_bug(__FILE__, __LINE__, "ContextParallel", "unknown kind of context parallelism");
}

std::string_view name_of(Fp8Scaling scaling) {
    static constexpr auto kNames =
        name_table<Fp8Scaling::mxfp4>({"none", "delayed", "tensorwise", "mx", "nvfp4", "mxfp4"});
    return kNames[scaling];
}

DType operand_type(Fp8Scaling scaling) {
    ORRERY_CHECK(scaling != Fp8Scaling::none, "the products are neither fp8 nor fp4");
    return scaling == Fp8Scaling::nvfp4 || scaling == Fp8Scaling::mxfp4 ? DType::fp4 : DType::fp8;
}

std::int64_t operand_bytes(Fp8Scaling scaling, std::int64_t elements) {
    // Sources: OCP Microscaling Formats 1.0; for NVFP4, NVIDIA's TransformerEngine.
    constexpr std::int64_t kMxBlock = 32, kNvfp4Block = 16;
    const auto scales = [&](std::int64_t block) { return (elements + block - 1) / block; };
    switch (scaling) {
        case Fp8Scaling::none:
        case Fp8Scaling::delayed:
        case Fp8Scaling::tensorwise:
            return elements;
        case Fp8Scaling::mx:
            return elements + scales(kMxBlock);
        case Fp8Scaling::nvfp4:
            return (elements + 1) / 2 + scales(kNvfp4Block);
        case Fp8Scaling::mxfp4:
            return (elements + 1) / 2 + scales(kMxBlock);
    }
    throw_bug(__FILE__, __LINE__, "Fp8Scaling", "unknown fp8 scaling");
}

std::string_view name_of(BlockPart part) {
    static constexpr auto kNames = name_table<BlockPart::residual>(
        {"none", "norm", "attention_projection", "attention_core", "attention_output", "mlp_in", "activation",
         "mlp_out", "router", "experts", "shared_expert", "residual"});
    return kNames[part];
}

double ExpertLoad::imbalance_over(std::int64_t ranks) const {
    const auto experts = static_cast<std::int64_t>(shares.size());
    if (experts == 0 || ranks < 1 || experts % ranks != 0) return 1;
    double all = 0, most = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        double here = 0;
        for (std::int64_t i = 0; i < experts / ranks; ++i) {
            here += shares[static_cast<std::size_t>(rank * (experts / ranks) + i)];
        }
        most = std::max(most, here);
        all += here;
    }
    return all > 0 ? most * static_cast<double>(ranks) / all : 1;
}

}  // namespace orrery::models
