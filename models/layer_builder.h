// Private to models/: assembles a Layer step by step, so that layer.cpp reads like the mathematics.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "models/layer.h"

namespace orrery::models {

struct NormWeights {
    SlotIndex weight = kNoSlot;
    SlotIndex bias = kNoSlot;  // layer norm only
};

class LayerBuilder {
  public:
    LayerBuilder(const ModelSpec& model, LayerKind kind, const LayerContext& context);

    [[nodiscard]] const ModelSpec& model() const { return model_; }
    [[nodiscard]] const LayerContext& context() const { return context_; }
    /// Token-wise regions are cut over the sequence.
    [[nodiscard]] bool sharded() const { return context_.sequence_parallel && context_.tp_degree > 1; }
    [[nodiscard]] std::int64_t rows() const;        // in tensor regions: s * b
    [[nodiscard]] std::int64_t token_rows() const;  // in token-wise regions: s/t * b under sequence parallelism
    [[nodiscard]] std::int64_t local_vocab() const { return context_.padded_vocab / context_.tp_degree; }

    /// Which pass the next steps belong to.
    void forward() { steps_ = &layer_.forward; }
    void backward() { steps_ = &layer_.backward; }

    SlotIndex hidden_in();
    SlotIndex hidden_out();
    SlotIndex hidden_gradient();
    SlotIndex loss();
    SlotIndex saved(const std::string& name, std::vector<std::int64_t> shape, DType dtype);
    SlotIndex transient(const std::string& name, std::vector<std::int64_t> shape);  // activation dtype
    SlotIndex transient(const std::string& name, std::vector<std::int64_t> shape, DType dtype);
    SlotIndex attention_scratch();
    SlotIndex dropout_mask(const std::string& name);

    SlotIndex vocabulary_weight(const std::string& name, bool tied);
    SlotIndex position_weight();
    NormWeights norm_weights(const std::string& name);
    SlotIndex head_norm_weight(const std::string& name);
    /// Output features sharded: local_cols of the parts is filled in with the input width for weights.
    SlotIndex column_weight(const std::string& name, std::vector<ParameterPart> parts);
    SlotIndex column_bias(const std::string& name, std::vector<ParameterPart> parts);
    /// Input features sharded.
    SlotIndex row_weight(const std::string& name, std::int64_t out_width, std::int64_t in_width);
    SlotIndex row_bias(const std::string& name);
    SlotIndex gradient_of(SlotIndex parameter);

    /// Appends an operator; fills in micro-batch, FLOPs and bytes.
    void op(Operator op);
    /// Fills the attention dimensions of an operator.
    [[nodiscard]] Operator attention_shape(Operator op) const;

    // Region crossings; without tensor parallelism they do nothing and return their input.
    SlotIndex enter_region(SlotIndex in, const std::string& gathered_name);
    [[nodiscard]] SlotIndex leave_target(const std::string& partial_name, SlotIndex result);
    [[nodiscard]] SlotIndex leave_shard(const std::string& shard_name, SlotIndex partial);
    SlotIndex leave_region(SlotIndex partial, SlotIndex result);
    void reduce_region(Boundary::Kind kind, SlotIndex in_out);

    std::tuple<SlotIndex, SlotIndex> norm_forward(SlotIndex x, NormWeights weights, const std::string& name);
    void norm_backward(SlotIndex gradient, SlotIndex x, NormWeights weights, SlotIndex stats, SlotIndex residual,
                       SlotIndex result);
    void linear_forward(const std::string& name, SlotIndex x, SlotIndex weight, SlotIndex bias, SlotIndex y,
                        std::int64_t n, std::int64_t k);
    void linear_backward_input(SlotIndex dy, SlotIndex weight, SlotIndex dx, std::int64_t n, std::int64_t k);
    void linear_backward_weight(SlotIndex dy, SlotIndex x, SlotIndex weight, SlotIndex bias, std::int64_t n,
                                std::int64_t k);
    /// Backward of a column-parallel product whose input was `normed`: re-gather, input gradient, its reduction beside
    /// the weight gradient. The reduced input gradient is column_result().
    void column_backward(const std::string& input_name, SlotIndex dy, SlotIndex normed, SlotIndex weight,
                         SlotIndex bias, std::int64_t n);
    [[nodiscard]] SlotIndex column_result() const { return column_result_; }
    /// y = a + b + bias; returns the dropout mask or kNoSlot.
    SlotIndex residual_forward(SlotIndex a, SlotIndex b, SlotIndex bias, SlotIndex y, const std::string& name);

    [[nodiscard]] Layer finish();

  private:
    SlotIndex add(SlotDecl slot);
    void boundary(Boundary::Kind kind, SlotIndex in, SlotIndex out, std::int64_t elements);
    void count_bytes(Operator& op) const;
    [[nodiscard]] double flops_of(const Operator& op) const;
    [[nodiscard]] double slot_bytes(SlotIndex slot) const;

    const ModelSpec& model_;
    const LayerContext& context_;
    Layer layer_;
    std::vector<Step>* steps_ = nullptr;
    SlotIndex hidden_in_ = kNoSlot, hidden_out_ = kNoSlot, hidden_gradient_ = kNoSlot, loss_ = kNoSlot;
    SlotIndex column_result_ = kNoSlot;
};

}  // namespace orrery::models
