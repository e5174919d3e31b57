#include "exec/slices.h"

#include <algorithm>

#include "exec/weights.h"

namespace orrery::exec {
namespace {

/// Whether `next`, which has one row, extends `above` by a row.
bool continues(const TensorSlice& above, const TensorSlice& next) {
    return above.parameter == next.parameter && above.tensor == next.tensor && above.piece == next.piece &&
           above.col == next.col && above.cols == next.cols && above.row + above.rows == next.row &&
           above.flat + above.rows * above.flat_stride == next.flat;
}

}  // namespace

std::vector<TensorSlice> slices_of(const program::Program& program, std::int64_t rank,
                                   const std::vector<ShardPiece>& pieces) {
    const program::RankClass& rank_class = program.classes[program.class_of(rank)];
    const ShardPlace place = place_of(program, rank);
    std::vector<TensorSlice> slices;
    for (const program::Parameter& parameter : rank_class.parameters) {
        const std::string prefix = layer_prefix(parameter.name, parameter.decl);
        for_each_local_row(parameter.decl, place, [&](const ShardRow& row) {
            const std::int64_t first = parameter.offset + row.local_offset;
            auto piece = std::partition_point(pieces.begin(), pieces.end(),
                                              [&](const ShardPiece& one) { return one.flat + one.elements <= first; });
            for (; piece != pieces.end() && piece->flat < first + row.valid_cols; ++piece) {
                const std::int64_t begin = std::max(piece->flat, first);
                const std::int64_t end = std::min(piece->flat + piece->elements, first + row.valid_cols);
                if (begin >= end) continue;
                TensorSlice slice{.parameter = &parameter,
                                  .tensor = prefix + row.part->name,
                                  .shape = {row.part->global_rows, row.part->global_cols},
                                  .row = row.global_row,
                                  .col = row.global_col + begin - first,
                                  .rows = 1,
                                  .cols = end - begin,
                                  .piece = static_cast<std::size_t>(piece - pieces.begin()),
                                  .flat = begin,
                                  .flat_stride = row.local_cols};
                if (!slices.empty() && continues(slices.back(), slice)) {
                    ++slices.back().rows;
                } else {
                    slices.push_back(std::move(slice));
                }
            }
        });
    }
    return slices;
}

std::map<std::string, TensorShape> whole_tensors(const program::Program& program) {
    std::map<std::string, TensorShape> tensors;
    for (const program::RankClass& rank_class : program.classes) {
        for (const program::Parameter& parameter : rank_class.parameters) {
            const std::string prefix = layer_prefix(parameter.name, parameter.decl);
            for (const models::ParameterPart& part : parameter.decl.parts) {
                tensors[prefix + part.name] = {part.global_rows, part.global_cols};
            }
        }
    }
    return tensors;
}

}  // namespace orrery::exec
