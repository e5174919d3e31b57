#include "exec/operator_rows.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/random.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

std::vector<kernels::PositionRun> positions_of_rank(std::int64_t sequence, std::int64_t ranks, std::int64_t rank) {
    if (ranks == 1) return {{0, sequence}};
    const std::int64_t chunk = sequence / (2 * ranks);
    return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}

std::vector<kernels::PositionRun> positions_of(const Operator& op, const OperatorContext& context) {
    const std::int64_t rows = op.rows / op.micro_batch;
    std::int64_t skipped = op.sequence_sharded ? context.tp_index * rows : 0;
    std::int64_t left = rows;
    std::vector<kernels::PositionRun> result;
    for (const kernels::PositionRun& run : positions_of_rank(op.sequence, context.cp, context.cp_index)) {
        const std::int64_t first = std::min(skipped, run.count);
        const std::int64_t count = std::min(run.count - first, left);
        skipped -= first;
        left -= count;
        if (count > 0) result.push_back({run.first + first, count});
    }
    ORRERY_CHECK(left == 0, std::string(name_of(op.kind)) + ": more rows than this rank has positions");
    return result;
}

kernels::Dropout dropout_of(const Operator& op, const OperatorContext& context, std::string_view mask) {
    if (context.dropout == 0) return {};
    ORRERY_CHECK(static_cast<std::int64_t>(context.samples.size()) == op.micro_batch, "one sample index per sample");
    // The embedding is layer -1, so the layer's index is shifted by one.
    const RandomStream layers(context.seed, mask);
    return {.probability = context.dropout,
            .key = layers.bits(static_cast<std::uint64_t>(context.layer + 1)),
            .samples = context.samples};
}

void load_rows(const Operator& op, const OperatorContext& context, std::int32_t* out) {
    ORRERY_CHECK(context.data != nullptr && context.data->sequence() == op.sequence, "no data for this operator");
    ORRERY_CHECK(static_cast<std::int64_t>(context.samples.size()) == op.micro_batch, "one sample index per sample");
    const std::int64_t sources = std::max<std::int64_t>(1, op.sources);
    Operator one = op;
    one.rows = op.rows / sources;
    const std::vector<kernels::PositionRun> positions = positions_of(one, context);
    const std::int64_t shift = op.kind == OpKind::load_targets ? 1 : 0;
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(op.sequence + 1));
    for (std::int64_t i = 0; i < sources * op.micro_batch; ++i) {
        const std::int64_t source = i / op.micro_batch, sample = i % op.micro_batch;
        // The samples of the next data-parallel rank follow those of this rank.
        context.data->tokens_for(context.samples[static_cast<std::size_t>(sample)] + source * op.micro_batch, tokens);
        std::int32_t* row = out + source * one.rows + sample;
        for (const kernels::PositionRun& run : positions) {
            for (std::int64_t j = 0; j < run.count; ++j, row += op.micro_batch) {
                *row = tokens[static_cast<std::size_t>(run.first + j + shift)];
            }
        }
    }
}

}  // namespace orrery::exec
