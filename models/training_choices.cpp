#include "models/training_choices.h"

#include <algorithm>

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
    switch (scaling) {
        case Fp8Scaling::none:
            return "none";
        case Fp8Scaling::delayed:
            return "delayed";
        case Fp8Scaling::tensorwise:
            return "tensorwise";
        case Fp8Scaling::mx:
            return "mx";
        case Fp8Scaling::nvfp4:
            return "nvfp4";
        case Fp8Scaling::mxfp4:
            return "mxfp4";
    }
    throw_bug(__FILE__, __LINE__, "Fp8Scaling", "unknown fp8 scaling");
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
    switch (part) {
        case BlockPart::none:
            return "none";
        case BlockPart::norm:
            return "norm";
        case BlockPart::attention_projection:
            return "attention_projection";
        case BlockPart::attention_core:
            return "attention_core";
        case BlockPart::attention_output:
            return "attention_output";
        case BlockPart::mlp_in:
            return "mlp_in";
        case BlockPart::activation:
            return "activation";
        case BlockPart::mlp_out:
            return "mlp_out";
        case BlockPart::router:
            return "router";
        case BlockPart::experts:
            return "experts";
        case BlockPart::shared_expert:
            return "shared_expert";
        case BlockPart::residual:
            return "residual";
    }
    throw_bug(__FILE__, __LINE__, "BlockPart", "unknown part of a block");
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
