// Private to models/: assembles a Layer operator by operator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer.h"

namespace orrery::models {

struct NormWeights {
    SlotIndex weight = kNoSlot;
    SlotIndex bias = kNoSlot;  // layer norm only
    std::int64_t width = 0;
};

/// A norm with the slots that its backward pass reads.
struct Norm {
    std::string name;
    NormWeights weights;
    SlotIndex x = kNoSlot, y = kNoSlot, stats = kNoSlot;
    SlotIndex copy = kNoSlot, normalized = kNoSlot;  // unfused: x in fp32, and the result before the weight
    std::int64_t rows = 0;
};

/// The two forms of a matrix that products read: row-wise, and column-wise (transposed) in the weight-gradient or
/// input-gradient product. They are two copies only in fp8.
struct Operand {
    SlotIndex row = kNoSlot;
    SlotIndex column = kNoSlot;
};

/// Rows of experts, with their number in counts[sources, groups].
struct ExpertRows {
    SlotIndex counts = kNoSlot;  // kNoSlot: the number is fixed
    std::int64_t sources = 0, groups = 0;
};

/// A matrix product with its parameters, n x k on this rank.
struct Product {
    std::string name;
    SlotIndex weight = kNoSlot, bias = kNoSlot;
    std::int64_t n = 0, k = 0;
    std::int64_t groups = 0;  // experts: number of products, each over its own rows
    ExpertRows experts;
    bool fp8 = false;
    Operand weight_copy;  // fp8 only
    BlockPart part = BlockPart::none;
    std::int64_t first_column = 0;  // of its result in an output that several products share
};

/// The input of column-parallel products: all tokens. With sequence parallelism only this rank's share is saved.
struct ColumnInput {
    std::string name;          // of the norm it comes from
    SlotIndex kept = kNoSlot;  // saved: the values, or their fp8 copy
    SlotIndex whole = kNoSlot;
    std::vector<SlotIndex> pieces;  // pipelined gather: the shares in the order of arrival, instead of `whole`
    std::int64_t width = 0;
    bool fp8 = false;
    bool stays = false;  // `whole` is saved for the backward pass
};

/// Gradient of the output of row-parallel products, gathered with sequence parallelism.
struct BranchGradient {
    std::string name;
    SlotIndex shard = kNoSlot;  // this rank's tokens
    Operand whole;
    std::vector<SlotIndex> pieces, piece_columns;  // pipelined gather, instead of `whole`
    bool fp8 = false;
};

/// Heads of one rank's attention and their dimensions.
struct AttentionShape {
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
    [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
    [[nodiscard]] std::int64_t kv_width() const { return kv_heads * (head_dim + value_dim); }
    [[nodiscard]] std::int64_t out_width() const { return heads * value_dim; }
};

class LayerBuilder {
  public:
    LayerBuilder(const ModelSpec& model, LayerKind kind, const LayerContext& context);

    [[nodiscard]] const ModelSpec& model() const { return model_; }
    [[nodiscard]] const LayerContext& context() const { return context_; }
    [[nodiscard]] const KernelChoices& kernels() const { return context_.implementation.kernels; }
    [[nodiscard]] std::int64_t tp() const { return context_.tp_degree; }
    /// Token-wise regions are sharded over the sequence.
    [[nodiscard]] bool sharded() const { return context_.sequence_parallel && context_.tp_degree > 1; }
    [[nodiscard]] bool pipelined() const {
        return sharded() && context_.implementation.tensor_parallel.pipelined_gather;
    }
    [[nodiscard]] bool fp8() const { return context_.fp8 != Fp8Scaling::none; }
    [[nodiscard]] std::int64_t positions() const { return context_.sequence / context_.cp_degree; }
    [[nodiscard]] std::int64_t rows() const;        // in tensor regions: s/c * b
    [[nodiscard]] std::int64_t token_rows() const;  // in token-wise regions: s/(t c) * b under sequence parallelism
    [[nodiscard]] std::int64_t local_vocab() const { return context_.padded_vocab / context_.tp_degree; }

    /// Select the pass that the next steps are appended to.
    void prepare() { steps_ = &layer_.prepare; }
    void forward() { steps_ = &layer_.forward; }
    void backward() { steps_ = &layer_.backward; }
    /// Selects the part of a block that they belong to.
    void part(BlockPart part) { part_ = part; }

    SlotIndex hidden_in();
    SlotIndex hidden_out();
    SlotIndex hidden_gradient();
    SlotIndex loss();
    SlotIndex saved(const std::string& name, std::vector<std::int64_t> shape, DType dtype, std::int64_t most_rows = 0);
    SlotIndex saved(const std::string& name, std::vector<std::int64_t> shape);  // activation dtype
    SlotIndex transient(const std::string& name, std::vector<std::int64_t> shape);
    SlotIndex transient(const std::string& name, std::vector<std::int64_t> shape, DType dtype,
                        std::int64_t most_rows = 0);
    /// Input of a product: saved, or transient if the product saves an fp8 copy instead.
    SlotIndex product_input(const std::string& name, std::vector<std::int64_t> shape, bool fp8,
                            std::int64_t most_rows = 0);
    SlotIndex attention_scratch(std::int64_t queries, std::int64_t keys);
    SlotIndex dropout_mask(const std::string& name);
    [[nodiscard]] const SlotDecl& slot(SlotIndex index) const;

    SlotIndex vocabulary_weight(const std::string& name, bool tied);
    SlotIndex vocabulary_bias(const std::string& name);
    SlotIndex table_weight(const std::string& name, std::int64_t entries);  // of positions or token types
    NormWeights norm_weights(const std::string& name, std::int64_t width);
    SlotIndex head_norm_weight(const std::string& name);
    /// A weight or bias with sharded output features. For weights, local_cols of the parts is set to the input width.
    SlotIndex column_weight(const std::string& name, std::vector<ParameterPart> parts,
                            GradientSum sum = GradientSum::none);
    SlotIndex column_bias(const std::string& name, std::vector<ParameterPart> parts,
                          GradientSum sum = GradientSum::none);
    /// A weight with sharded input features.
    SlotIndex row_weight(const std::string& name, std::int64_t out_width, std::int64_t in_width);
    SlotIndex row_bias(const std::string& name);
    /// The same on every tensor-parallel rank; `by_tokens`: with sequence parallelism each rank sees only its tokens.
    SlotIndex replicated_weight(const std::string& name, std::int64_t n, std::int64_t k, bool by_tokens);
    SlotIndex replicated_bias(const std::string& name, std::int64_t n, bool by_tokens);
    /// Weights of this rank's experts, each sharded over the expert-tensor-parallel ranks.
    SlotIndex expert_weight(const std::string& name, std::vector<ParameterPart> parts, std::int64_t experts,
                            std::int64_t n, std::int64_t k, ShardDim shard);
    SlotIndex gradient_of(SlotIndex parameter);

    /// Appends an operator; fills in micro-batch, part, compute type, FLOPs and bytes. Attention: `pairs` is the number
    /// of attended (query, key) pairs of one head of one sequence.
    Operator& op(Operator op, double pairs = 0);
    /// Takes the last step out of the pass if it is such an operator, whose work another one then does. It has neither
    /// FLOPs nor bytes.
    std::optional<Operator> take_last(const std::function<bool(const Operator&)>& is_wanted);
    Boundary& boundary(Boundary::Kind kind, Boundary::Axis axis, SlotIndex in, SlotIndex out, std::int64_t elements);
    /// Attended (query, key) pairs in self-attention over `keys` positions, with the model's mask, window and
    /// documents.
    [[nodiscard]] double attended_pairs(std::int64_t keys) const;
    /// Side of the square without window and documents in which a query attends to equally many keys.
    [[nodiscard]] std::int64_t attended_length(std::int64_t keys) const;

    // Transitions between token-wise and tensor-sharded regions. Without tensor parallelism they do nothing and return
    // their input.
    SlotIndex enter_region(SlotIndex in, const std::string& gathered_name);
    [[nodiscard]] SlotIndex leave_target(const std::string& partial_name, SlotIndex result);
    [[nodiscard]] SlotIndex leave_shard(const std::string& shard_name, SlotIndex partial, std::int64_t width);
    SlotIndex leave_region(SlotIndex partial, SlotIndex result);
    void reduce_region(Boundary::Kind kind, SlotIndex in_out);

    Norm norm_forward(SlotIndex x, NormWeights weights, const std::string& name, std::int64_t rows, bool fp8_output,
                      SlotIndex result = kNoSlot);
    /// result = residual + the gradient of the norm's input.
    void norm_backward(SlotIndex gradient, const Norm& norm, SlotIndex residual, SlotIndex result);

    // Products.
    Product product(const std::string& name, SlotIndex weight, SlotIndex bias, std::int64_t n, std::int64_t k,
                    BlockPart part, bool fp8, std::int64_t groups = 0);
    /// The fp8 copies of `x` for a forward and a weight-gradient product; without `fp8`, `x` twice.
    Operand cast_for_products(const std::string& name, SlotIndex x, bool fp8, bool save, bool with_column = true);
    void product_forward(const Product& product, SlotIndex x, SlotIndex y);
    void product_backward_input(const Product& product, SlotIndex dy, SlotIndex dx);
    /// `rows` of dy and x: one of `pieces` pieces of a product. Only the `first` piece counts the gradient's traffic.
    void product_backward_weight(const Product& product, SlotIndex dy, SlotIndex x, std::int64_t rows,
                                 std::int64_t pieces = 1, bool first = true);
    void accumulate(SlotIndex x, SlotIndex y);  // y += x, over the elements of x
    /// copy_columns or add_columns: `n` columns of each token's row.
    void columns(OpKind kind, SlotIndex from, std::int64_t from_column, SlotIndex to, std::int64_t to_column,
                 std::int64_t n);
    /// Copies `elements` of one slot into another one.
    void copy(SlotIndex from, SlotIndex to, std::int64_t elements);

    /// Gathers (and casts) the input of column-parallel products; the steps after it belong to `part`.
    ColumnInput column_input(SlotIndex normed, const std::string& name, std::int64_t width, bool fp8, BlockPart part,
                             bool may_pipeline = true);
    void column_forward(const ColumnInput& input, const Product& product, SlotIndex y);
    struct ColumnGradient {
        const Product* product = nullptr;
        SlotIndex dy = kNoSlot;
    };
    /// Backward of the products that read `input`: re-gather, input gradients, and their reduction, which overlaps with
    /// the weight gradients. `then` receives the reduced input gradient; without overlap it is called before the weight
    /// gradients. `result`: slot for that gradient. `last_columns`: slot with its last columns, which do not come from
    /// these products.
    void column_backward(const ColumnInput& input, const std::vector<ColumnGradient>& gradients,
                         const std::function<void(SlotIndex)>& then, SlotIndex result = kNoSlot,
                         SlotIndex last_columns = kNoSlot);
    /// A row-parallel product; returns its sum over ranks. `add`: partial sums of another product, reduced together.
    SlotIndex row_forward(const Product& product, SlotIndex x, const std::string& name, SlotIndex add = kNoSlot);
    BranchGradient branch_gradient(SlotIndex hidden_gradient, SlotIndex mask, const std::vector<SlotIndex>& biases,
                                   const std::string& name, bool fp8, bool gathers = true);
    /// `x`: the product's input, for the weight gradient.
    void row_backward(const Product& product, BranchGradient& branch, SlotIndex x, SlotIndex dx);

    /// y = a + b + biases; returns the dropout mask or kNoSlot.
    SlotIndex residual_forward(SlotIndex a, SlotIndex b, const std::vector<SlotIndex>& biases, SlotIndex y,
                               const std::string& name);

    [[nodiscard]] Layer finish();

  private:
    SlotIndex add(SlotDecl slot);
    /// Takes the residual sum `y` out of the pass, if it is the last step and a norm can compute it.
    std::optional<Operator> take_residual_sum(SlotIndex y);
    void eager_norm_forward(Norm& norm);
    void eager_norm_backward(SlotIndex gradient, const Norm& norm, SlotIndex residual, SlotIndex result);
    std::vector<SlotIndex> ring_gather(const std::string& name, SlotIndex own);
    void emit_product(const Product& product, OpKind kind, std::int64_t rows, Operands in, Operands out,
                      std::int64_t pieces = 1);
    /// A piece of a product over all tokens: as many rows as this rank's share.
    void emit_piece(const Product& product, OpKind kind, Operands in, Operands out);

    const ModelSpec& model_;
    const LayerContext& context_;
    Layer layer_;
    std::vector<Step>* steps_ = nullptr;
    BlockPart part_ = BlockPart::none;
    SlotIndex hidden_in_ = kNoSlot, hidden_out_ = kNoSlot, hidden_gradient_ = kNoSlot, loss_ = kNoSlot;
};

}  // namespace orrery::models
