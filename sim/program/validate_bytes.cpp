// Rule "parameters": the flat buffers hold the model, each part where the plan puts it. Rule "bytes": what each rank
// communicates equals the closed forms, computed here from the plan alone.
#include <algorithm>
#include <map>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kParameters = "parameters";

/// The plan's dimensions, by the letters of the closed forms.
struct Dimensions {
    const Plan& plan;
    std::int64_t t = plan.parallelism.tp;
    std::int64_t h = plan.model.hidden;
    std::int64_t m = plan.micro_batches();
    bool sharded_sequence = plan.parallelism.sequence_parallel && t > 1;
    std::int64_t padded_vocab = models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, t);
    std::int64_t tokens = plan.training.sequence_length * plan.training.micro_batch_size;
    std::int64_t message = tokens * h * size_of(plan.training.precision.activation);  // M
    std::int64_t norm = plan.model.norm == models::NormKind::layer_norm ? 2 * h : h;

    explicit Dimensions(const Plan& of) : plan(of) {}
    [[nodiscard]] bool first(const RankClass& ranks) const { return ranks.pp_index == 0; }
    [[nodiscard]] bool last(const RankClass& ranks) const { return ranks.pp_index == plan.parallelism.pp - 1; }
    /// The last stage keeps a copy of the embedding's weight for its head.
    [[nodiscard]] bool copies_embedding(const RankClass& ranks) const {
        return plan.model.tied_embeddings && plan.parallelism.pp > 1 && last(ranks);
    }
    [[nodiscard]] std::int64_t vocabulary_shard() const { return padded_vocab / t * h; }
    /// Elements of the block's weights that every tensor-parallel rank holds whole.
    [[nodiscard]] std::int64_t replicated_in_block() const {
        const models::ModelSpec& model = plan.model;
        return 2 * norm + (model.attention_output_bias ? h : 0) + (model.mlp_bias ? h : 0) +
               (model.qk_norm ? 2 * model.head_dim : 0);
    }
    [[nodiscard]] std::int64_t positions() const {
        return plan.model.position == models::PositionKind::learned ? plan.model.max_positions * h : 0;
    }
    [[nodiscard]] std::int64_t block_elements() const {
        const models::ModelSpec& model = plan.model;
        const std::int64_t qkv = model.q_width() + 2 * model.kv_width();
        const std::int64_t in = model.mlp_in_width();
        const std::int64_t sharded = qkv * (h + (model.qkv_bias ? 1 : 0)) + h * model.q_width() +
                                     in * (h + (model.mlp_bias ? 1 : 0)) + h * model.ffn_hidden;
        return sharded / t + replicated_in_block();
    }
    [[nodiscard]] std::int64_t class_elements(const RankClass& ranks) const {
        std::int64_t elements = ranks.block_count * block_elements();
        if (first(ranks)) elements += vocabulary_shard() + positions();
        if (last(ranks)) elements += norm;
        const bool own_head_weight = !plan.model.tied_embeddings || copies_embedding(ranks);
        if (last(ranks) && own_head_weight) elements += vocabulary_shard();
        return elements;
    }
    /// Elements whose gradient each tensor-parallel rank has for its own share of the tokens only (sequence parallel),
    /// or of the heads (the norm of each head, with tensor parallel of any form).
    [[nodiscard]] std::int64_t partial_elements(const RankClass& ranks) const {
        if (t == 1) return 0;
        if (!sharded_sequence) return plan.model.qk_norm ? ranks.block_count * 2 * plan.model.head_dim : 0;
        std::int64_t elements = ranks.block_count * replicated_in_block();
        if (first(ranks)) elements += positions();
        if (last(ranks)) elements += norm;
        return elements;
    }
};

void check_layout(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const Parameter& parameter : ranks.parameters) {
        ranges.emplace_back(parameter.offset, parameter.offset + parameter.elements);
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> buckets;
    for (const Bucket& bucket : ranks.buckets) buckets.emplace_back(bucket.offset, bucket.offset + bucket.elements);
    const auto check_tiles = [&](auto& list, const std::string& what) {
        std::sort(list.begin(), list.end());
        std::int64_t end = 0;
        for (const auto& [from, to] : list) {
            if (from != end || to <= from) {
                fail(program, kParameters, {.rank_class = c},
                     what + ": [" + std::to_string(from) + ", " + std::to_string(to) + ") follows " +
                         std::to_string(end));
            }
            end = to;
        }
        if (end != ranks.parameter_elements) {
            fail(program, kParameters, {.rank_class = c},
                 what + " end at " + std::to_string(end) + " of " + std::to_string(ranks.parameter_elements) +
                     " elements");
        }
    };
    check_tiles(ranges, "parameters");
    if (program.plan->parallelism.dp > 1) check_tiles(buckets, "buckets");
    for (const Parameter& parameter : ranks.parameters) {
        if (parameter.decl.gradient_partial_over_tp == (parameter.offset >= ranks.partial_begin)) continue;
        fail(program, kParameters, {.rank_class = c},
             "'" + parameter.name + "' is on the wrong side of the partial range, which begins at " +
                 std::to_string(ranks.partial_begin));
    }
}

/// Each bucket is all-reduced over the data-parallel ranks once a step, and nothing else is.
void check_buckets_reduced(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::vector<std::pair<std::int64_t, std::int64_t>> reduced;
    std::vector<std::pair<std::int64_t, std::int64_t>> buckets;
    for (const Bucket& bucket : ranks.buckets) buckets.emplace_back(bucket.offset, bucket.offset + bucket.elements);
    for (const Action& action : ranks.actions) {
        for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
            const Body& body = program.bodies[static_cast<std::size_t>(segment.body)];
            if (body.stream_counts[static_cast<std::size_t>(Stream::dp)] == 0) continue;
            for (const Instruction& instruction : body.instructions) {
                const Communication& comm = instruction.communication;
                if (!instruction.is_communication || comm.axis != GroupAxis::dp) continue;
                const Range range = resolve(ranks, segment, body.slots[static_cast<std::size_t>(comm.in)]);
                if (range.region == Region::gradient) reduced.emplace_back(range.begin, range.end);
            }
        }
    }
    std::sort(reduced.begin(), reduced.end());
    std::sort(buckets.begin(), buckets.end());
    if (reduced != buckets) {
        fail(program, kParameters, {.rank_class = c},
             std::to_string(reduced.size()) + " ranges of gradients are reduced, which are not its " +
                 std::to_string(buckets.size()) + " buckets");
    }
}

/// Global elements of the parameter; checks that the local share is what its cut says.
std::int64_t global_elements(const Program& program, std::int32_t c, const Dimensions& dims,
                             const Parameter& parameter) {
    std::int64_t local = 0;
    std::int64_t global = 0;
    for (const models::ParameterPart& part : parameter.decl.parts) {
        const bool by_rows = parameter.decl.shard == models::ShardDim::rows;
        const bool by_cols = parameter.decl.shard == models::ShardDim::cols;
        const std::int64_t rows = part.local_rows * (by_rows ? dims.t : 1);
        const std::int64_t cols = part.local_cols * (by_cols ? dims.t : 1);
        const bool padded = by_rows && part.global_rows == dims.plan.model.vocab && rows == dims.padded_vocab;
        // On one rank a padded vocabulary is a weight like any other, whether or not it is marked as cut.
        const bool padded_alone = dims.t == 1 && part.global_rows == dims.plan.model.vocab && rows == dims.padded_vocab;
        if ((rows != part.global_rows && !padded && !padded_alone) || cols != part.global_cols) {
            fail(program, kParameters, {.rank_class = c},
                 "the shards of '" + part.name + "' in '" + parameter.name + "' make " + std::to_string(rows) + " x " +
                     std::to_string(cols) + ", not " + std::to_string(part.global_rows) + " x " +
                     std::to_string(part.global_cols));
        }
        local += part.local_rows * part.local_cols;
        global += part.global_rows * part.global_cols;
    }
    if (local != parameter.elements) {
        fail(program, kParameters, {.rank_class = c},
             "'" + parameter.name + "' holds " + std::to_string(parameter.elements) + " elements, its parts " +
                 std::to_string(local));
    }
    return global;
}

using BytesByKind = std::map<std::pair<GroupAxis, CommKind>, std::int64_t>;

/// Message bytes of one step of the class.
BytesByKind issued_bytes(const Program& program, const RankClass& ranks) {
    std::vector<std::int64_t> calls(program.bodies.size());
    for (const Action& action : ranks.actions) {
        for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
            ++calls[static_cast<std::size_t>(segment.body)];
        }
    }
    BytesByKind bytes;
    for (std::size_t b = 0; b < calls.size(); ++b) {
        for (const Instruction& instruction : program.bodies[b].instructions) {
            const Communication& comm = instruction.communication;
            if (instruction.is_communication && calls[b] > 0) bytes[{comm.axis, comm.kind}] += calls[b] * comm.bytes();
        }
    }
    return bytes;
}

BytesByKind tensor_parallel_bytes(const Dimensions& dims, const RankClass& ranks) {
    BytesByKind bytes;
    if (dims.t == 1) return bytes;
    const std::int64_t blocks = ranks.block_count;
    const std::int64_t first = dims.first(ranks) ? 1 : 0;
    const std::int64_t last = dims.last(ranks) ? 1 : 0;
    const std::int64_t gradient_size = size_of(dims.plan.training.precision.gradient);
    // One maximum and two sums a token, always in fp32.
    const std::int64_t cross_entropy = 3 * dims.tokens * size_of(DType::fp32);
    const std::int64_t once = dims.partial_elements(ranks) * gradient_size;
    std::int64_t& reduced = bytes[{GroupAxis::tp, CommKind::all_reduce}];
    reduced = once + dims.m * last * cross_entropy;
    if (!dims.sharded_sequence) {
        // Block: two sums forward, two backward. Embedding: one forward. Head: one backward.
        reduced += dims.m * (4 * blocks + first + last) * dims.message;
        return bytes;
    }
    // Block: 2 gathers and 2 scatters forward; backward the mirror image and 2 gathers of inputs that were kept cut.
    // Embedding: scatter forward, gather backward. Head: gather forward; scatter and a second gather backward.
    bytes[{GroupAxis::tp, CommKind::all_gather}] = dims.m * (6 * blocks + first + 2 * last) * dims.message;
    bytes[{GroupAxis::tp, CommKind::reduce_scatter}] = dims.m * (4 * blocks + first + last) * dims.message;
    return bytes;
}

BytesByKind expected_bytes(const Dimensions& dims, const RankClass& ranks) {
    BytesByKind bytes = tensor_parallel_bytes(dims, ranks);
    const std::int64_t gradient_size = size_of(dims.plan.training.precision.gradient);
    if (dims.plan.parallelism.dp > 1) {
        bytes[{GroupAxis::dp, CommKind::all_reduce}] = dims.class_elements(ranks) * gradient_size;
    }
    const bool holds_tied = dims.first(ranks) || dims.last(ranks);
    if (dims.plan.model.tied_embeddings && dims.plan.parallelism.pp > 1 && holds_tied) {
        bytes[{GroupAxis::embedding, CommKind::all_reduce}] = dims.vocabulary_shard() * gradient_size;
    }
    const std::int64_t transfer = dims.m * (dims.sharded_sequence ? dims.message / dims.t : dims.message);
    if (!dims.first(ranks)) {
        bytes[{GroupAxis::pp_forward, CommKind::recv}] = transfer;
        bytes[{GroupAxis::pp_backward, CommKind::send}] = transfer;
    }
    if (!dims.last(ranks)) {
        bytes[{GroupAxis::pp_forward, CommKind::send}] = transfer;
        bytes[{GroupAxis::pp_backward, CommKind::recv}] = transfer;
    }
    return bytes;
}

}  // namespace

void check_parameters(const Program& program) {
    const Dimensions dims(*program.plan);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const RankClass& ranks = program.classes[i];
        const auto c = static_cast<std::int32_t>(i);
        if (ranks.parameter_elements != dims.class_elements(ranks)) {
            fail(program, kParameters, {.rank_class = c},
                 std::to_string(ranks.parameter_elements) + " elements, not " +
                     std::to_string(dims.class_elements(ranks)));
        }
        const std::int64_t partial = ranks.parameter_elements - ranks.partial_begin;
        if (partial != dims.partial_elements(ranks)) {
            fail(program, kParameters, {.rank_class = c},
                 std::to_string(partial) + " elements with partial gradients, not " +
                     std::to_string(dims.partial_elements(ranks)));
        }
        check_layout(program, c);
        check_buckets_reduced(program, c);
        for (const Parameter& parameter : ranks.parameters) total += global_elements(program, c, dims, parameter);
        if (dims.copies_embedding(ranks)) total -= dims.plan.model.vocab * dims.h;
    }
    const std::int64_t expected = models::parameter_count(program.plan->model);
    if (total != expected) {
        fail(program, kParameters, {},
             "its parameters make " + std::to_string(total) + " in all; the model has " + std::to_string(expected));
    }
}

void check_bytes(const Program& program) {
    const Dimensions dims(*program.plan);
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const RankClass& ranks = program.classes[i];
        BytesByKind issued = issued_bytes(program, ranks);
        BytesByKind expected = expected_bytes(dims, ranks);
        for (const auto& [key, bytes] : expected) issued[key] += 0;
        for (const auto& [key, bytes] : issued) {
            if (bytes == expected[key]) continue;
            fail(program, "bytes", {.rank_class = static_cast<std::int32_t>(i)},
                 std::string(name_of(key.second)) + " on the axis " + std::string(name_of(key.first)) + " moves " +
                     std::to_string(bytes) + " bytes a step; by the closed form it is " +
                     std::to_string(expected[key]));
        }
    }
}

}  // namespace orrery::program::rules
