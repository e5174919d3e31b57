#include "exec/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/error.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;

/// Typed access to operands. Every operand asked for must be there, save those asked for with optional_*.
class Operands {
  public:
    Operands(const Operator& op, const OperatorPointers& at) : op_(op), at_(at) {}
    [[nodiscard]] const float* in(std::size_t i) const { return static_cast<const float*>(present(at_.in.at(i))); }
    [[nodiscard]] const std::int32_t* tokens(std::size_t i) const {
        return static_cast<const std::int32_t*>(present(at_.in.at(i)));
    }
    [[nodiscard]] const float* optional_in(std::size_t i) const { return static_cast<const float*>(at_.in.at(i)); }
    [[nodiscard]] float* out(std::size_t i) const { return static_cast<float*>(present(at_.out.at(i))); }
    [[nodiscard]] float* optional_out(std::size_t i) const { return static_cast<float*>(at_.out.at(i)); }
    [[nodiscard]] double* loss(std::size_t i) const { return static_cast<double*>(present(at_.out.at(i))); }
    [[nodiscard]] const void* any_in(std::size_t i) const { return at_.in.at(i); }
    [[nodiscard]] void* any_out(std::size_t i) const { return present(at_.out.at(i)); }
    void must_be_fp32() const {
        ORRERY_CHECK(at_.in_dtype[0] == DType::fp32 && at_.out_dtype[0] == DType::fp32,
                     std::string(name_of(op_.kind)) + " of other types than fp32 is only simulated");
    }
    /// An operand that is read and then overwritten.
    [[nodiscard]] float* consumed(std::size_t i) const { return static_cast<float*>(present(at_.in.at(i))); }
    [[nodiscard]] float* scratch(std::int64_t elements) const {
        ORRERY_CHECK(at_.scratch_bytes >= elements * static_cast<std::int64_t>(sizeof(float)),
                     std::string(name_of(op_.kind)) + ": scratch of " + std::to_string(at_.scratch_bytes) +
                         " bytes is too small");
        return static_cast<float*>(present(at_.scratch));
    }
    void must_be_absent(const void* pointer) const {
        ORRERY_CHECK(pointer == nullptr, std::string(name_of(op_.kind)) + ": a variant that is only simulated");
    }
    /// For in-place kinds: the input and the output are one slot.
    void must_be_same(std::size_t in, std::size_t out) const {
        ORRERY_CHECK(at_.in.at(in) == at_.out.at(out), std::string(name_of(op_.kind)) + " works in place");
    }

  private:
    void* present(void* pointer) const {
        ORRERY_CHECK(pointer != nullptr, std::string(name_of(op_.kind)) + ": an operand is missing");
        return pointer;
    }
    const Operator& op_;
    const OperatorPointers& at_;
};

kernels::LinearShape linear_shape(const Operator& op) {
    return {op.rows, op.n, op.k};
}
kernels::NormShape norm_shape(const Operator& op) {
    return {op.rows, op.k};
}
kernels::HeadShape head_shape(const Operator& op) {
    return {op.rows, op.heads, op.kv_heads, op.head_dim};
}

kernels::AttentionShape attention_shape(const Operator& op, const models::ModelSpec& model) {
    ORRERY_CHECK(op.rows == op.sequence * op.micro_batch && op.queries == op.sequence && op.value_dim == 0,
                 "attention needs whole sequences, and values as wide as keys");
    ORRERY_CHECK(model.causal, "attention that is not causal is simulated only");
    return {op.sequence, op.micro_batch, op.heads, op.kv_heads, op.head_dim, model.sliding_window};
}

kernels::EmbeddingShape embedding_shape(const Operator& op, const OperatorContext& context) {
    return {op.rows, op.k, context.tp_index * op.n, op.n};
}

/// Positions whose tokens a context-parallel rank holds: the chunks r and 2c-1-r of 2c.
std::vector<kernels::PositionRun> runs_of(std::int64_t sequence, std::int64_t ranks, std::int64_t rank) {
    if (ranks == 1) return {{0, sequence}};
    const std::int64_t chunk = sequence / (2 * ranks);
    return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}

/// Positions of the operator's rows: all of this rank's, or its tensor-parallel share of them.
std::vector<kernels::PositionRun> positions_of(const Operator& op, const OperatorContext& context) {
    const std::int64_t rows = op.rows / op.micro_batch;
    std::int64_t skipped = op.sequence_sharded ? context.tp_index * rows : 0;
    std::int64_t left = rows;
    std::vector<kernels::PositionRun> result;
    for (const kernels::PositionRun& run : runs_of(op.sequence, context.cp, context.cp_index)) {
        const std::int64_t first = std::min(skipped, run.count);
        const std::int64_t count = std::min(run.count - first, left);
        skipped -= first;
        left -= count;
        if (count > 0) result.push_back({run.first + first, count});
    }
    ORRERY_CHECK(left == 0, std::string(name_of(op.kind)) + ": more rows than this rank has positions");
    return result;
}

template <typename Kernel>
void for_each_run(const Operator& op, const OperatorContext& context, const Kernel& kernel) {
    std::int64_t row = 0;
    for (const kernels::PositionRun& run : positions_of(op, context)) {
        const std::int64_t rows = run.count * op.micro_batch;
        kernel(kernels::PositionShape{rows, op.k, op.micro_batch, run.first}, row * op.k);
        row += rows;
    }
}

void run_position_forward(const Operator& op, const Operands& o, const OperatorContext& context) {
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        kernels::position_forward(shape, o.in(0) + offset, o.in(1), o.out(0) + offset);
    });
}
void run_position_backward(const Operator& op, const Operands& o, const OperatorContext& context) {
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        kernels::position_backward(shape, o.in(0) + offset, o.out(0));
    });
}

/// Queries of this rank over keys that are not, or not only, its own.
kernels::AttentionPart attention_part(const Operator& op, const OperatorContext& context,
                                      std::vector<kernels::PositionRun>& queries,
                                      std::vector<kernels::PositionRun>& keys) {
    const std::int64_t sequence = op.queries * context.cp;
    queries = runs_of(sequence, context.cp, context.cp_index);
    if (op.keys == models::KeyPart::gathered) {
        for (std::int64_t rank = 0; rank < context.cp; ++rank) {
            for (const kernels::PositionRun& run : runs_of(sequence, context.cp, rank)) keys.push_back(run);
        }
    } else {
        keys = runs_of(sequence, context.cp, (context.cp_index - op.ring_step + context.cp) % context.cp);
    }
    ORRERY_CHECK(op.value_dim == 0, "attention over parts of a sequence needs values as wide as keys");
    return {.queries = queries,
            .keys = keys,
            .micro_batch = op.micro_batch,
            .heads = op.heads,
            .kv_heads = op.kv_heads,
            .head_dim = op.head_dim,
            .causal = context.model->causal,
            .sliding_window = context.model->sliding_window};
}

/// Where keys and values lie: beside the queries, or in a slot of their own.
struct KeysAndValues {
    kernels::ConstRows k, v;
};
KeysAndValues keys_and_values(const Operator& op, const OperatorPointers& at, std::size_t qkv, std::size_t kv) {
    const std::int64_t width = op.kv_heads * op.head_dim;
    const bool apart = at.in.at(kv) != nullptr;
    const auto* data = static_cast<const float*>(at.in.at(apart ? kv : qkv)) + (apart ? 0 : op.heads * op.head_dim);
    const std::int64_t row = at.in_width.at(apart ? kv : qkv);
    return {{data, row}, {data + width, row}};
}

void run_attention_part(const Operator& op, const Operands& o, const OperatorPointers& at,
                        const OperatorContext& context) {
    std::vector<kernels::PositionRun> queries, keys;
    const kernels::AttentionPart part = attention_part(op, context, queries, keys);
    float* scratch = o.scratch(kernels::attention_part_scratch_elements(kernels::AttentionPart::positions(queries),
                                                                        kernels::AttentionPart::positions(keys)));
    if (op.kind == OpKind::attention_forward) {
        const KeysAndValues kv = keys_and_values(op, at, 0, 1);
        kernels::attention_forward(part, {o.in(0), at.in_width[0]}, kv.k, kv.v, o.out(0), o.out(1), scratch);
        return;
    }
    const KeysAndValues kv = keys_and_values(op, at, 1, 4);
    const std::int64_t width = at.out_width[1];
    kernels::attention_backward(part, o.in(0), {o.in(1), at.in_width[1]}, kv.k, kv.v, o.in(2), o.in(3),
                                {o.out(0), at.out_width[0]}, {o.out(1), width},
                                {o.out(1) + op.kv_heads * op.head_dim, width}, scratch);
}

void run_attention_merge(const Operator& op, const Operands& o) {
    o.must_be_same(2, 0);
    o.must_be_same(3, 1);
    kernels::attention_merge(op.rows, op.heads, op.n / op.heads, o.in(0), o.in(1), o.out(0), o.out(1));
}

void run_columns(const Operator& op, const Operands& o, const OperatorPointers& at) {
    const kernels::ConstRows from{o.in(0) + op.from_column, at.in_width[0]};
    const kernels::Rows to{o.out(0) + op.to_column, at.out_width[0]};
    if (op.kind == OpKind::copy_columns) return kernels::copy_columns(op.rows, op.n, from, to);
    kernels::add_columns(op.rows, op.n, from, to);
}

/// Around the all-to-all of Ulysses; the operator's heads are those of one rank.
void run_relay(const Operator& op, const Operands& o, const OperatorPointers& at, const OperatorContext& context) {
    if (op.kind == OpKind::join_sequence || op.kind == OpKind::cut_sequence) {
        const kernels::SequenceBlocks shape{op.rows / context.cp, context.cp, at.out_width[0]};
        if (op.kind == OpKind::join_sequence) return kernels::blocks_to_sequence(shape, o.in(0), o.out(0));
        return kernels::sequence_to_blocks(shape, o.in(0), o.out(0));
    }
    const std::int64_t all = context.cp;
    std::vector<std::int64_t> sections{op.heads * op.value_dim * all};
    if (op.kv_heads > 0) {
        sections = {op.heads * op.head_dim * all, op.kv_heads * op.head_dim * all, op.kv_heads * op.value_dim * all};
    }
    const kernels::HeadBlocks shape{op.rows, all, sections};
    if (op.kind == OpKind::cut_heads) return kernels::heads_to_blocks(shape, o.in(0), o.out(0));
    kernels::blocks_to_heads(shape, o.in(0), o.out(0));
}

kernels::VocabShard vocab_shard(const Operator& op, const OperatorContext& context) {
    const std::int64_t start = context.tp_index * op.n;
    return {op.rows, op.n, std::clamp<std::int64_t>(context.model->vocab - start, 0, op.n), start};
}

void run_attention_forward(const Operator& op, const Operands& o, const models::ModelSpec& model) {
    o.must_be_absent(o.optional_out(2));
    float* scratch = o.scratch(kernels::attention_scratch_elements(op.sequence, op.head_dim));
    kernels::attention_forward(attention_shape(op, model), o.in(0), o.out(0), o.out(1), scratch);
}

void run_attention_backward(const Operator& op, const Operands& o, const models::ModelSpec& model) {
    o.must_be_absent(o.optional_in(4));
    float* scratch = o.scratch(kernels::attention_scratch_elements(op.sequence, op.head_dim));
    kernels::attention_backward(attention_shape(op, model), o.in(0), o.in(1), o.in(2), o.in(3), o.out(0), scratch);
}

void run_layer_norm_backward(const Operator& op, const Operands& o) {
    kernels::layer_norm_backward(norm_shape(op), o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                                 o.out(1), o.out(2));
}

void run_rms_norm_backward(const Operator& op, const Operands& o) {
    kernels::rms_norm_backward(norm_shape(op), o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                               o.out(1));
}

void run_head_norm_backward(const Operator& op, const Operands& o) {
    kernels::head_norm_backward(head_shape(op), o.in(0), o.in(1), o.in(2), o.in(3), o.in(4), o.out(0), o.out(1),
                                o.out(2));
}

void run_residual_add(const Operator& op, const Operands& o) {
    o.must_be_absent(o.optional_in(3));
    o.must_be_absent(o.optional_out(1));
    kernels::residual_add(op.rows, op.k, o.in(0), o.in(1), o.optional_in(2), o.out(0));
}

void run_cross_entropy_backward(const Operator& op, const Operands& o, const OperatorContext& context) {
    o.must_be_same(0, 0);
    kernels::cross_entropy_backward(vocab_shard(op, context), static_cast<float>(context.loss_scale), o.in(1),
                                    o.tokens(2), o.out(0));
}

/// What gradients are multiplied by so that their norm is at most the clip norm, as PyTorch's clip_grad_norm_ has it.
double clip_factor(const double* norm, double clip_norm) {
    constexpr double kSmall = 1e-6;
    return std::min(1.0, clip_norm / (std::sqrt(norm[0]) + kSmall));
}

using Update = void(std::int64_t, const kernels::AdamW&, float*, float*, float*, float*);

void run_adamw(const Operands& o, const OperatorContext& context) {
    o.must_be_absent(o.optional_out(4));
    const auto* norm = static_cast<const double*>(o.any_in(1));
    const double factor = norm == nullptr ? 1.0 : clip_factor(norm, context.clip_norm);
    Update* const update =
        context.decoupled_decay ? static_cast<Update*>(kernels::adamw) : static_cast<Update*>(kernels::adam);
    for (const UpdateRange& range : context.updates) {
        kernels::AdamW options = context.optimizer;
        if (!range.decays) options.weight_decay = 0.0;
        float* gradient = o.consumed(0) + range.gradient;
        if (factor < 1.0) kernels::scale(range.elements, static_cast<float>(factor), gradient);
        update(range.elements, options, o.out(0) + range.parameter, o.out(1) + range.state, o.out(2) + range.state,
               gradient);
    }
}

void run_sgd_momentum(const Operands& o, const OperatorContext& context) {
    o.must_be_absent(o.optional_out(4));
    const auto* norm = static_cast<const double*>(o.any_in(1));
    const double factor = norm == nullptr ? 1.0 : clip_factor(norm, context.clip_norm);
    for (const UpdateRange& range : context.updates) {
        float* gradient = o.consumed(0) + range.gradient;
        if (factor < 1.0) kernels::scale(range.elements, static_cast<float>(factor), gradient);
        kernels::SgdMomentum options = context.sgd;
        if (!range.decays) options.weight_decay = 0.0;
        kernels::sgd_momentum(range.elements, options, o.out(0) + range.parameter, o.out(1) + range.state, gradient);
    }
}

void run_gradient_norm(const Operands& o, const OperatorContext& context) {
    double squares = 0;
    for (const UpdateRange& range : context.updates) {
        if (range.counted) squares += kernels::sum_of_squares(range.elements, o.in(0) + range.gradient);
    }
    auto* norm = static_cast<double*>(o.any_out(0));
    norm[0] = squares;
    norm[1] = std::isfinite(squares) ? 0.0 : 1.0;
}

void run_gradient_scale(const Operands& o, const OperatorContext& context) {
    o.must_be_same(1, 0);
    const double factor = clip_factor(static_cast<const double*>(o.any_in(0)), context.clip_norm);
    if (factor >= 1.0) return;
    for (const UpdateRange& range : context.updates) {
        kernels::scale(range.elements, static_cast<float>(factor), o.out(0) + range.gradient);
    }
}

void run_cast(const Operator& op, const Operands& o) {
    o.must_be_fp32();
    if (o.in(0) != o.out(0)) kernels::copy(op.elements, o.in(0), o.out(0));
}

void run_accumulate(const Operator& op, const Operands& o) {
    o.must_be_fp32();
    kernels::add(op.elements, o.in(0), o.out(0));
}

void run_copy(const Operator& op, const Operands& o) {
    std::memcpy(o.any_out(0), o.any_in(0), static_cast<std::size_t>(op.bytes_read));
}

/// Gradients that an operator sets are cleared before it adds to them.
void clear_overwritten(const Operator& op, const OperatorPointers& at, const OperatorContext& context) {
    // Which outputs are gradients follows from what each kind accumulates into.
    const auto clear = [&](std::size_t i, std::int64_t elements) {
        if (at.out.at(i) != nullptr) kernels::fill(elements, 0.0F, static_cast<float*>(at.out.at(i)));
    };
    switch (op.kind) {
        case OpKind::embedding_backward:
            return clear(0, op.n * op.k);
        case OpKind::position_backward:
            return clear(0, context.model->max_positions * op.k);
        case OpKind::layer_norm_backward:
            clear(1, op.k);
            return clear(2, op.k);
        case OpKind::rms_norm_backward:
            return clear(1, op.k);
        case OpKind::linear_backward_weight:
            clear(0, op.n * op.k);
            return clear(1, op.n);
        case OpKind::head_norm_backward:
            clear(1, op.head_dim);
            return clear(2, op.head_dim);
        case OpKind::bias_backward:
            return clear(0, op.n);
        default:
            throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " has no gradient to set");
    }
}

}  // namespace

CpuBackend::CpuBackend() {
    kernels::set_blas_threads(1);
}

const CpuBackend::RotaryTable& CpuBackend::rotary_table(const models::ModelSpec& model, std::int64_t sequence,
                                                        std::int64_t head_dim) {
    if (rotary_.sequence == sequence && rotary_.head_dim == head_dim) return rotary_;
    kernels::RotaryFrequencies frequencies;
    const auto& scaling = model.rope_scaling;
    if (scaling.type == "llama3") {
        frequencies.scaling = kernels::RotaryFrequencies::Scaling::llama3;
    } else if (scaling.type == "linear") {
        frequencies.scaling = kernels::RotaryFrequencies::Scaling::linear;
    } else if (scaling.type != "none") {
        throw_bug(__FILE__, __LINE__, "RopeScaling", "frequencies of type " + scaling.type + " are simulated only");
    }
    frequencies.theta = model.rope_theta;
    frequencies.factor = scaling.factor;
    frequencies.low_frequency_factor = scaling.low_frequency_factor;
    frequencies.high_frequency_factor = scaling.high_frequency_factor;
    frequencies.original_max_positions = scaling.original_max_positions;
    const auto elements = static_cast<std::size_t>(sequence * (head_dim / 2));
    rotary_ = {sequence, head_dim, std::vector<float>(elements), std::vector<float>(elements)};
    kernels::rotary_table(frequencies, sequence, head_dim, rotary_.cosines.data(), rotary_.sines.data());
    return rotary_;
}

void CpuBackend::rotate(const Operator& op, const OperatorContext& context, float* qkv) {
    const RotaryTable& table = rotary_table(*context.model, op.sequence, op.head_dim);
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    kernels::rotate(head_shape(op),
                    {.positions = positions,
                     .micro_batch = op.micro_batch,
                     .width = op.head_dim,
                     .cosines = table.cosines.data(),
                     .sines = table.sines.data()},
                    op.kind == OpKind::rope_backward, qkv);
}

void CpuBackend::load(const Operator& op, const OperatorPointers& at, const OperatorContext& context) {
    ORRERY_CHECK(context.data != nullptr && context.data->sequence() == op.sequence, "no data for this operator");
    ORRERY_CHECK(static_cast<std::int64_t>(context.samples.size()) == op.micro_batch, "one sample index per sample");
    ORRERY_CHECK(at.out[0] != nullptr, "tokens have nowhere to go");
    auto* out = static_cast<std::int32_t*>(at.out[0]);
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    const std::int64_t shift = op.kind == OpKind::load_targets ? 1 : 0;
    sample_tokens_.resize(static_cast<std::size_t>(op.sequence + 1));
    for (std::int64_t sample = 0; sample < op.micro_batch; ++sample) {
        context.data->tokens_for(context.samples[static_cast<std::size_t>(sample)], sample_tokens_);
        std::int64_t row = sample;
        for (const kernels::PositionRun& run : positions) {
            for (std::int64_t i = 0; i < run.count; ++i, row += op.micro_batch) {
                out[row] = sample_tokens_[static_cast<std::size_t>(run.first + i + shift)];
            }
        }
    }
}

void CpuBackend::run(const Operator& op, const OperatorPointers& at, const OperatorContext& context) {
    namespace k = kernels;
    ORRERY_CHECK(context.model != nullptr, "an operator context without a model");
    const models::ModelSpec& model = *context.model;
    const double epsilon = model.norm_epsilon;
    const Operands o(op, at);
    if (op.overwrites_gradients) clear_overwritten(op, at, context);
    switch (op.kind) {
        case OpKind::load_tokens:
        case OpKind::load_targets:
            return load(op, at, context);
        case OpKind::embedding_forward:
            return k::embedding_forward(embedding_shape(op, context), o.tokens(0), o.in(1), o.out(0));
        case OpKind::embedding_backward:
            return k::embedding_backward(embedding_shape(op, context), o.in(0), o.tokens(1), o.out(0));
        case OpKind::position_forward:
            return run_position_forward(op, o, context);
        case OpKind::position_backward:
            return run_position_backward(op, o, context);
        case OpKind::layer_norm_forward:
            return k::layer_norm_forward(norm_shape(op), epsilon, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::layer_norm_backward:
            return run_layer_norm_backward(op, o);
        case OpKind::rms_norm_forward:
            return k::rms_norm_forward(norm_shape(op), epsilon, o.in(0), o.in(1), o.out(0), o.out(1));
        case OpKind::rms_norm_backward:
            return run_rms_norm_backward(op, o);
        case OpKind::linear_forward:
            return k::linear_forward(linear_shape(op), o.in(0), o.in(1), o.optional_in(2), o.out(0));
        case OpKind::linear_backward_input:
            return k::linear_backward_input(linear_shape(op), o.in(0), o.in(1), o.out(0));
        case OpKind::linear_backward_weight:
            return k::linear_backward_weight(linear_shape(op), o.in(0), o.in(1), o.out(0), o.optional_out(1));
        case OpKind::head_norm_forward:
            return k::head_norm_forward(head_shape(op), epsilon, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::head_norm_backward:
            return run_head_norm_backward(op, o);
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            o.must_be_same(0, 0);
            return rotate(op, context, o.out(0));
        case OpKind::attention_forward:
            if (op.keys != models::KeyPart::own) return run_attention_part(op, o, at, context);
            return run_attention_forward(op, o, model);
        case OpKind::attention_backward:
            if (op.keys != models::KeyPart::own) return run_attention_part(op, o, at, context);
            return run_attention_backward(op, o, model);
        case OpKind::attention_merge:
            return run_attention_merge(op, o);
        case OpKind::copy_columns:
        case OpKind::add_columns:
            return run_columns(op, o, at);
        case OpKind::cut_heads:
        case OpKind::join_heads:
        case OpKind::join_sequence:
        case OpKind::cut_sequence:
            return run_relay(op, o, at, context);
        case OpKind::gelu_forward:
            return k::gelu_forward(op.rows * op.n, o.in(0), o.out(0));
        case OpKind::gelu_backward:
            return k::gelu_backward(op.rows * op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::swiglu_forward:
            return k::swiglu_forward(op.rows, op.n, o.in(0), o.out(0));
        case OpKind::swiglu_backward:
            return k::swiglu_backward(op.rows, op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::residual_add:
            return run_residual_add(op, o);
        case OpKind::residual_add_backward:  // exists with dropout only
            return o.must_be_absent(o.in(0));
        case OpKind::bias_backward:
            return k::bias_backward(op.rows, op.n, o.in(0), o.out(0));
        case OpKind::cross_entropy_max:
            return k::cross_entropy_max(vocab_shard(op, context), o.in(0), o.out(0));
        case OpKind::cross_entropy_sum:
            return k::cross_entropy_sum(vocab_shard(op, context), o.in(0), o.in(1), o.tokens(2), o.out(0));
        case OpKind::cross_entropy_loss:
            return k::cross_entropy_loss(op.rows, o.in(0), o.in(1), o.out(0), o.loss(1));
        case OpKind::cross_entropy_backward:
            return run_cross_entropy_backward(op, o, context);
        case OpKind::adamw:
            return run_adamw(o, context);
        case OpKind::sgd_momentum:
            return run_sgd_momentum(o, context);
        case OpKind::gradient_norm:
            return run_gradient_norm(o, context);
        case OpKind::gradient_scale:
            return run_gradient_scale(o, context);
        case OpKind::clear:
            return k::fill(op.elements, 0.0F, o.out(0));
        case OpKind::cast:
            return run_cast(op, o);
        case OpKind::accumulate:
            return run_accumulate(op, o);
        case OpKind::copy_to_host:
        case OpKind::copy_from_host:
            return run_copy(op, o);
        case OpKind::host_wait:  // the interpreter has waited for what the instruction comes after
            return;
        case OpKind::scores_forward:
        case OpKind::scores_backward:
        case OpKind::softmax_forward:
        case OpKind::softmax_backward:
        case OpKind::dropout_forward:
        case OpKind::dropout_backward:
        case OpKind::context_forward:
        case OpKind::context_backward:
        case OpKind::relu_forward:
        case OpKind::relu_backward:
        case OpKind::silu_forward:
        case OpKind::silu_backward:
        case OpKind::bias_add:
        case OpKind::multiply:
        case OpKind::multiply_backward:
        case OpKind::router_forward:
        case OpKind::router_backward:
        case OpKind::permute_forward:
        case OpKind::permute_backward:
        case OpKind::combine_forward:
        case OpKind::combine_backward:
        case OpKind::expert_linear_forward:
        case OpKind::expert_linear_backward_input:
        case OpKind::expert_linear_backward_weight:
            break;
    }
    throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " is simulated only");
}

}  // namespace orrery::exec
