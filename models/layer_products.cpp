// Matrix products of a layer: casts of their operands, the tensor-parallel communication around them, and the order of
// their two backward products.
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "models/layer_builder.h"
#include "models/operator_table.h"

namespace orrery::models {

Operand LayerBuilder::cast_for_products(const std::string& name, SlotIndex x, bool fp8, bool save, bool with_column) {
    if (!fp8) return {x, x};
    const SlotDecl from = slot(x);
    const std::int64_t width = from.shape.back();
    const std::int64_t count = from.elements() / width;
    const DType type = operand_type(context_.fp8);
    const auto add_copy = [&](const std::string& suffix, std::vector<std::int64_t> shape, bool keep,
                              std::int64_t most) {
        return keep ? saved(name + suffix, std::move(shape), type, most)
                    : transient(name + suffix, std::move(shape), type, most);
    };
    // Copies include their scales.
    Operand copies;
    copies.row = add_copy(".fp8", {count, operand_bytes(context_.fp8, width)}, save && !with_column, from.most_rows);
    if (with_column) {
        const std::int64_t most = operand_bytes(context_.fp8, from.most_rows);
        copies.column = add_copy(".fp8.transposed", {operand_bytes(context_.fp8, count), width}, save, most);
    }
    Operands in{x};
    if (context_.fp8 == Fp8Scaling::tensorwise) {  // the scale must be known before anything is written
        in[1] = transient(name + ".maximum", {1}, DType::fp32);
        op({.kind = OpKind::cast, .elements = from.elements(), .in = {x}, .out = {in[1]}});
    }
    op({.kind = OpKind::cast, .elements = from.elements(), .in = in, .out = {copies.row, copies.column}});
    return copies;
}

Product LayerBuilder::product(const std::string& name, SlotIndex weight, SlotIndex bias, std::int64_t n, std::int64_t k,
                              BlockPart part, bool fp8, std::int64_t groups) {
    Product result{
        .name = name, .weight = weight, .bias = bias, .n = n, .k = k, .groups = groups, .fp8 = fp8, .part = part};
    if (!fp8) return result;
    const SlotDecl from = slot(weight);
    const std::int64_t batches = std::max<std::int64_t>(groups, 1);
    const auto copy = [&](const char* suffix, std::int64_t rows, std::int64_t cols) {
        return add({.name = name + suffix,
                    .role = SlotRole::weight_copy,
                    .dtype = operand_type(context_.fp8),
                    .shape = {batches, rows, cols},
                    .expert = from.expert,
                    .parameter_slot = weight});
    };
    result.weight_copy.row = copy(".weight.fp8", n, operand_bytes(context_.fp8, k));
    result.weight_copy.column = copy(".weight.fp8.transposed", operand_bytes(context_.fp8, n), k);
    std::vector<Step>* const steps = std::exchange(steps_, &layer_.prepare);
    const BlockPart before = std::exchange(part_, part);
    Operands in{weight};
    if (context_.fp8 == Fp8Scaling::tensorwise) {
        in[1] = transient(name + ".weight.maximum", {1}, DType::fp32);
        op({.kind = OpKind::cast, .elements = from.elements(), .in = {weight}, .out = {in[1]}});
    }
    op({.kind = OpKind::cast,
        .elements = from.elements(),
        .in = in,
        .out = {result.weight_copy.row, result.weight_copy.column}});
    steps_ = steps;
    part_ = before;
    return result;
}

void LayerBuilder::emit_product(const Product& product, OpKind kind, std::int64_t rows, Operands in, Operands out,
                                std::int64_t pieces) {
    Operator one{
        .kind = kind,
        .weight_gradient = kind == OpKind::linear_backward_weight || kind == OpKind::expert_linear_backward_weight,
        .part = product.part,
        .math = product.fp8 ? operand_type(context_.fp8) : context_.compute_dtype,
        .rows = rows,
        .pieces = pieces,
        .n = product.n,
        .k = product.k,
        .groups = product.groups,
        .sources = product.experts.sources,
        .in = in,
        .out = out};
    (kind == OpKind::linear_forward ? one.to_column : one.from_column) = product.first_column;
    if (product.groups > 0) one.in[2] = product.experts.counts;
    if (product.groups <= 1 || kernels().grouped_experts) {
        op(one);
        return;
    }
    one.groups = 1;
    for (std::int64_t expert = 0; expert < product.groups; ++expert) {
        one.rows = rows * (expert + 1) / product.groups - rows * expert / product.groups;
        op(one);
    }
}

void LayerBuilder::emit_piece(const Product& product, OpKind kind, Operands in, Operands out) {
    emit_product(product, kind, token_rows(), in, out, tp());
}

void LayerBuilder::product_forward(const Product& product, SlotIndex x, SlotIndex y) {
    ORRERY_CHECK(x != kNoSlot && product.weight != kNoSlot && y != kNoSlot,
                 product.name + ": a product without operands");
    emit_product(product, product.groups > 0 ? OpKind::expert_linear_forward : OpKind::linear_forward,
                 slot(y).shape.front(), {x, product.fp8 ? product.weight_copy.row : product.weight, product.bias}, {y});
}

void LayerBuilder::product_backward_input(const Product& product, SlotIndex dy, SlotIndex dx) {
    emit_product(product, product.groups > 0 ? OpKind::expert_linear_backward_input : OpKind::linear_backward_input,
                 slot(dx).shape.front(), {dy, product.fp8 ? product.weight_copy.column : product.weight}, {dx});
}

void LayerBuilder::product_backward_weight(const Product& product, SlotIndex dy, SlotIndex x, std::int64_t rows,
                                           std::int64_t pieces, bool first) {
    const SlotIndex gradient = gradient_of(product.weight);
    const SlotIndex bias_gradient = product.bias == kNoSlot ? kNoSlot : gradient_of(product.bias);
    const OpKind kind = product.groups > 0 ? OpKind::expert_linear_backward_weight : OpKind::linear_backward_weight;
    if (kernels().fused_weight_gradient) {
        emit_product(product, kind, rows, {dy, x}, {gradient, bias_gradient}, pieces);
        if (!first) {  // pieces run as one product, which reads and writes its weight gradient once
            auto& op = std::get<Operator>(steps_->back());
            const double moved = slot_bytes(layer_.slots, gradient) + slot_bytes(layer_.slots, bias_gradient);
            op.bytes_read -= moved;
            op.bytes_written -= moved;
        }
        // Of the blocks' stand-ins one of each shape is permanent; the head's lives only during its product.
        if (layer_.kind == LayerKind::head && context_.implementation.memory.keeps_weight_gradient_stand_ins) {
            const SlotIndex stand_in = transient(slot(gradient).name + ".stand_in", slot(gradient).shape);
            std::get<Operator>(steps_->back()).scratch = stand_in;
        }
        return;
    }
    const SlotIndex fresh = transient(slot(gradient).name + ".fresh", slot(gradient).shape);
    emit_product(product, kind, rows, {dy, x}, {fresh, bias_gradient}, pieces);
    op({.kind = OpKind::accumulate,
        .weight_gradient = true,
        .part = product.part,
        .elements = slot(fresh).elements(),
        .in = {fresh},
        .out = {gradient}});
}

std::vector<SlotIndex> LayerBuilder::ring_gather(const std::string& name, SlotIndex own) {
    const SlotDecl share = slot(own);
    std::vector<SlotIndex> pieces{own};
    for (std::int64_t i = 1; i < tp(); ++i) {
        const SlotIndex next = transient(name + ".piece." + std::to_string(i), share.shape, share.dtype);
        boundary(Boundary::Kind::exchange, Boundary::Axis::tp, pieces.back(), next, share.elements());
        pieces.push_back(next);
    }
    return pieces;
}

ColumnInput LayerBuilder::column_input(SlotIndex normed, const std::string& name, std::int64_t width, bool fp8,
                                       BlockPart part, bool may_pipeline) {
    ColumnInput input{.name = name, .width = width, .fp8 = fp8};
    if (!sharded()) {
        const Operand whole = cast_for_products(name + ".out", normed, fp8, true);
        input.kept = whole.column;
        input.whole = whole.row;
        part_ = part;
        return input;
    }
    input.kept = cast_for_products(name + ".out", normed, fp8, true, false).row;
    part_ = part;
    if (pipelined() && may_pipeline) {
        input.pieces = ring_gather(name + ".out", input.kept);
    } else {
        input.whole = enter_region(input.kept, name + ".out.full");
        if (context_.implementation.tensor_parallel.keeps_gathered_inputs) {
            layer_.slots[input.whole].role = SlotRole::saved;
            input.stays = true;
        }
    }
    return input;
}

void LayerBuilder::column_forward(const ColumnInput& input, const Product& product, SlotIndex y) {
    if (input.pieces.empty()) {
        product_forward(product, input.whole, y);
        return;
    }
    for (const SlotIndex piece : input.pieces) {
        emit_piece(product, OpKind::linear_forward,
                   {piece, product.fp8 ? product.weight_copy.row : product.weight, product.bias}, {y});
    }
}

void LayerBuilder::column_backward(const ColumnInput& input, const std::vector<ColumnGradient>& gradients,
                                   const std::function<void(SlotIndex)>& then, SlotIndex result,
                                   SlotIndex last_columns) {
    SlotIndex x = input.stays ? input.whole : enter_region(input.kept, input.name + ".out.regathered");
    const bool apart = context_.implementation.tensor_parallel.reduces_inputs_apart && !sharded() &&
                       gradients.size() > 1 && last_columns == kNoSlot;
    SlotIndex gradient = kNoSlot;
    Operand dy;
    std::vector<SlotIndex> dy_columns;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const Product& product = *gradients[i].product;
        part_ = product.part;
        if (i == 0 || gradients[i].dy != gradients[i - 1].dy) {
            dy = cast_for_products(product.name + ".gradient", gradients[i].dy, input.fp8, false);
        }
        dy_columns.push_back(dy.column);
        const bool in_result = i == 0 && result != kNoSlot && !sharded();
        const SlotIndex dx = in_result ? result
                                       : transient(input.name + ".out.gradient" + (i == 0 ? "" : "." + product.name),
                                                   {rows(), input.width});
        product_backward_input(product, dy.row, dx);
        if (apart) leave_region(dx, dx);
        if (i == 0) {
            gradient = dx;
        } else {
            accumulate(dx, gradient);
        }
    }
    if (last_columns != kNoSlot) {
        const std::int64_t n = slot(last_columns).shape.back();
        columns(OpKind::copy_columns, last_columns, 0, gradient, input.width - n, n);
    }
    const SlotIndex target = sharded() && result != kNoSlot
                                 ? result
                                 : leave_shard(input.name + ".out.gradient.shard", gradient, input.width);
    const SlotIndex reduced = apart ? gradient : leave_region(gradient, target);
    const auto weight_gradients = [&] {
        if (input.fp8 &&
            sharded()) {  // the row-wise form was gathered, but the weight gradient reads the column-wise one
            const SlotIndex columns =
                transient(input.name + ".out.regathered.transposed", slot(x).shape, slot(x).dtype);
            op({.kind = OpKind::cast,
                .weight_gradient = true,
                .elements = slot(x).elements(),
                .in = {x},
                .out = {columns}});
            x = columns;
        }
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            part_ = gradients[i].product->part;
            product_backward_weight(*gradients[i].product, dy_columns[i], x, rows());
        }
    };
    if (tp() == 1 || context_.implementation.tensor_parallel.overlaps_input_gradient) {
        weight_gradients();
        then(reduced);
    } else {
        then(reduced);
        weight_gradients();
    }
}

SlotIndex LayerBuilder::row_forward(const Product& product, SlotIndex x, const std::string& name, SlotIndex add) {
    part_ = product.part;
    const std::int64_t width = product.n;
    if (!pipelined() || add != kNoSlot) {
        const SlotIndex partial = transient(name, {rows(), width});
        product_forward(product, x, partial);
        if (add != kNoSlot) accumulate(add, partial);
        return leave_region(partial, leave_shard(name + ".shard", partial, width));
    }
    // A ring reduce-scatter interleaved with the product: the partial sums of each share are added to those received
    // from the previous rank; this rank's own share comes last.
    SlotIndex received = kNoSlot, piece = kNoSlot;
    for (std::int64_t i = 0; i < tp(); ++i) {
        piece = transient(name + ".piece." + std::to_string(i), {token_rows(), width});
        emit_piece(product, OpKind::linear_forward,
                   {x, product.fp8 ? product.weight_copy.row : product.weight, product.bias}, {piece});
        if (received != kNoSlot) accumulate(received, piece);
        if (i + 1 == tp()) break;
        received = transient(name + ".received." + std::to_string(i), {token_rows(), width});
        boundary(Boundary::Kind::exchange, Boundary::Axis::tp, piece, received, slot(piece).elements());
    }
    return piece;
}

BranchGradient LayerBuilder::branch_gradient(SlotIndex hidden_gradient, SlotIndex mask,
                                             const std::vector<SlotIndex>& biases, const std::string& name, bool fp8,
                                             bool gathers) {
    part_ = BlockPart::residual;
    BranchGradient branch{.shard = hidden_gradient};
    if (mask != kNoSlot) {
        branch.shard = transient(name + ".masked", {token_rows(), model_.hidden});
        const bool fused = kernels().fused_residual;
        op({.kind = fused ? OpKind::residual_add_backward : OpKind::dropout_backward,
            .rows = token_rows(),
            .k = model_.hidden,
            .elements = fused ? 0 : slot(branch.shard).elements(),
            .in = {hidden_gradient, mask},
            .out = {branch.shard}});
    }
    for (const SlotIndex bias : biases) {
        if (bias == kNoSlot) continue;
        op({.kind = OpKind::bias_backward,
            .weight_gradient = true,
            .sequence_sharded = sharded(),
            .rows = token_rows(),
            .n = model_.hidden,
            .in = {branch.shard},
            .out = {gradient_of(bias)}});
    }
    if (!gathers) return branch;
    branch.name = name;
    branch.fp8 = fp8;
    if (!sharded()) {
        branch.whole = cast_for_products(name, branch.shard, fp8, false);
        return branch;
    }
    const SlotIndex share = cast_for_products(name, branch.shard, fp8, false, false).row;
    if (pipelined()) {
        branch.pieces = ring_gather(name, share);
        return branch;
    }
    branch.whole.row = enter_region(share, name + ".full");
    branch.whole.column = fp8 ? kNoSlot : branch.whole.row;
    return branch;
}

void LayerBuilder::row_backward(const Product& product, BranchGradient& branch, SlotIndex x, SlotIndex dx) {
    part_ = product.part;
    const SlotIndex weight = product.fp8 ? product.weight_copy.column : product.weight;
    const auto columns_of = [&](SlotIndex rows_form) {
        const SlotIndex columns =
            transient(slot(rows_form).name + ".transposed", slot(rows_form).shape, slot(rows_form).dtype);
        op({.kind = OpKind::cast,
            .weight_gradient = true,
            .elements = slot(rows_form).elements(),
            .in = {rows_form},
            .out = {columns}});
        return columns;
    };
    if (branch.pieces.empty()) {
        product_backward_input(product, branch.whole.row, dx);
        if (branch.whole.column == kNoSlot) branch.whole.column = columns_of(branch.whole.row);
        product_backward_weight(product, branch.whole.column, x, rows());
        return;
    }
    for (const SlotIndex piece : branch.pieces) {
        emit_piece(product, OpKind::linear_backward_input, {piece, weight}, {dx});
    }
    if (branch.piece_columns.empty()) {
        for (const SlotIndex piece : branch.pieces) {
            branch.piece_columns.push_back(branch.fp8 ? columns_of(piece) : piece);
        }
    }
    for (std::size_t i = 0; i < branch.piece_columns.size(); ++i) {
        product_backward_weight(product, branch.piece_columns[i], x, token_rows(), tp(), i == 0);
    }
}

void LayerBuilder::accumulate(SlotIndex x, SlotIndex y) {
    op({.kind = OpKind::accumulate, .elements = slot(x).elements(), .in = {x}, .out = {y}});
}

void LayerBuilder::columns(OpKind kind, SlotIndex from, std::int64_t from_column, SlotIndex to, std::int64_t to_column,
                           std::int64_t n) {
    op({.kind = kind,
        .rows = rows(),
        .n = n,
        .from_column = from_column,
        .to_column = to_column,
        .in = {from},
        .out = {to}});
}

void LayerBuilder::copy(SlotIndex from, SlotIndex to, std::int64_t elements) {
    Operator& one = op({.kind = OpKind::cast, .elements = elements, .in = {from}, .out = {to}});
    one.flops = 0;
    one.bytes_read = static_cast<double>(elements) * static_cast<double>(size_of(slot(from).dtype));
    one.bytes_written = static_cast<double>(elements) * static_cast<double>(size_of(slot(to).dtype));
}

}  // namespace orrery::models
