#include "models/operator.h"

#include "core/error.h"

namespace orrery::models {

std::string_view name_of(OpKind kind) {
    switch (kind) {
        case OpKind::load_tokens:
            return "load_tokens";
        case OpKind::load_targets:
            return "load_targets";
        case OpKind::embedding_forward:
            return "embedding_forward";
        case OpKind::embedding_backward:
            return "embedding_backward";
        case OpKind::position_forward:
            return "position_forward";
        case OpKind::position_backward:
            return "position_backward";
        case OpKind::layer_norm_forward:
            return "layer_norm_forward";
        case OpKind::layer_norm_backward:
            return "layer_norm_backward";
        case OpKind::rms_norm_forward:
            return "rms_norm_forward";
        case OpKind::rms_norm_backward:
            return "rms_norm_backward";
        case OpKind::linear_forward:
            return "linear_forward";
        case OpKind::linear_backward_input:
            return "linear_backward_input";
        case OpKind::linear_backward_weight:
            return "linear_backward_weight";
        case OpKind::head_norm_forward:
            return "head_norm_forward";
        case OpKind::head_norm_backward:
            return "head_norm_backward";
        case OpKind::rope_forward:
            return "rope_forward";
        case OpKind::rope_backward:
            return "rope_backward";
        case OpKind::attention_forward:
            return "attention_forward";
        case OpKind::attention_backward:
            return "attention_backward";
        case OpKind::gelu_forward:
            return "gelu_forward";
        case OpKind::gelu_backward:
            return "gelu_backward";
        case OpKind::swiglu_forward:
            return "swiglu_forward";
        case OpKind::swiglu_backward:
            return "swiglu_backward";
        case OpKind::residual_add:
            return "residual_add";
        case OpKind::residual_add_backward:
            return "residual_add_backward";
        case OpKind::bias_backward:
            return "bias_backward";
        case OpKind::cross_entropy_max:
            return "cross_entropy_max";
        case OpKind::cross_entropy_sum:
            return "cross_entropy_sum";
        case OpKind::cross_entropy_loss:
            return "cross_entropy_loss";
        case OpKind::cross_entropy_backward:
            return "cross_entropy_backward";
        case OpKind::adamw:
            return "adamw";
    }
    throw_bug(__FILE__, __LINE__, "OpKind", "unknown operator kind");
}

}  // namespace orrery::models
