// Rule "parameters": the flat order of all ranks together holds the model, and each parameter has the shard, range and
// padding that the plan and the implementation require. Buckets cover the flat order, can be sharded equally, and are
// reduced over data-parallel ranks as often as the plan requires.
#include <algorithm>
#include <numeric>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kParameters = "parameters";

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

class ClassParameters {
  public:
    ClassParameters(const Program& program, ClassIndex c, const ClosedForms& forms)
        : program_(program), c_(c), ranks_(program.classes[c]), forms_(forms), sharding_(forms.sharding()) {}

    void check() {
        check_elements();
        check_layout();
        if (!is_replicated(program_)) {
            check_buckets();
            check_reductions();
        }
    }

    /// Elements of all its parameters before sharding; the copy of a tied embedding does not count.
    [[nodiscard]] std::int64_t global_elements() const {
        std::int64_t total = 0;
        for (const Parameter& parameter : ranks_.parameters) {
            const std::int64_t elements = global_elements(parameter);
            // A parameter that is sharded over the stages is counted at the first stage.
            if (!parameter.decl.over_stages || c_ == 0) total += elements;
        }
        const models::ModelSpec& model = forms_.plan().model;
        if (!model.tied_embeddings || forms_.ties_on_rank()) return total;
        for (const Chunk& chunk : ranks_.chunks) total -= chunk.has_head ? model.vocab * model.hidden : 0;
        return total;
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const { fail(program_, kParameters, {.rank_class = c_}, what); }

    void check_elements() const {
        Bases found{}, padding{};
        for (const Parameter& parameter : ranks_.parameters) {
            found[parameter.range] += parameter.elements;
            padding[parameter.range] += parameter.padding;
        }
        std::int64_t expected = forms_.element_count(ranks_);
        for (const std::int64_t elements : padding) expected += elements;
        if (ranks_.parameter_elements != expected) {
            refuse(std::to_string(ranks_.parameter_elements) + " elements, not " + std::to_string(expected));
        }
        const Bases by_range = forms_.elements_of(ranks_);
        for (const ParameterRange r : kRanges) {
            const std::string name(name_of(r));
            if (found[r] != by_range[r]) {
                refuse(std::to_string(found[r]) + " elements in the range " + name + ", not " +
                       std::to_string(by_range[r]));
            }
            if (sharding_.orders_by_unit) continue;  // the flat order goes by unit, not by range
            if (ranks_.range_end[r] - ranks_.range_begin[r] != by_range[r] + padding[r]) {
                refuse("the range " + name + " is [" + std::to_string(ranks_.range_begin[r]) + ", " +
                       std::to_string(ranks_.range_end[r]) + "), not of " + std::to_string(by_range[r]) + " elements");
            }
        }
    }

    void check_tiles(std::vector<std::pair<std::int64_t, std::int64_t>>& list, const std::string& what) const {
        std::sort(list.begin(), list.end());
        std::int64_t end = 0;
        for (const auto& [from, to] : list) {
            if (from != end || to <= from) {
                refuse(what + ": [" + std::to_string(from) + ", " + std::to_string(to) + ") follows " +
                       std::to_string(end));
            }
            end = to;
        }
        if (end != ranks_.parameter_elements) {
            refuse(what + " end at " + std::to_string(end) + " of " + std::to_string(ranks_.parameter_elements) +
                   " elements");
        }
    }

    void check_layout() const {
        std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
        for (const Parameter& parameter : ranks_.parameters) {
            check_padding(parameter);
            ranges.emplace_back(parameter.offset, parameter.offset + parameter.elements + parameter.padding);
            const bool inside = parameter.offset >= ranks_.range_begin[parameter.range] &&
                                parameter.offset + parameter.elements <= ranks_.range_end[parameter.range];
            if (!sharding_.orders_by_unit && !inside) refuse("'" + parameter.name + "' is outside its range");
            if (parameter.range != range_of(parameter.decl)) refuse("'" + parameter.name + "' is in the wrong range");
        }
        check_tiles(ranges, "parameters");
    }

    /// Shards begin at multiples of this many elements.
    [[nodiscard]] std::int64_t shard_alignment(bool expert) const {
        const std::int64_t shards = sharding_.shards_states ? sharding_.shards(expert) : 1;
        return shards > 1 ? std::lcm(shards, forms_.plan().implementation.data_parallel.shard_alignment_elements) : 1;
    }

    /// Padding is shorter than the alignment. PyTorch's FSDP2 pads dim 0 of each parameter to a multiple of the shards.
    void check_padding(const Parameter& parameter) const {
        const bool expert = parameter.range == ParameterRange::expert;
        std::int64_t least = 0, most = shard_alignment(expert) - 1;
        const bool each = sharding_.orders_by_unit && forms_.plan().implementation.data_parallel.pads_each_parameter;
        if (each && !parameter.decl.shape.empty() && parameter.decl.shape.front() > 0) {
            const std::int64_t rows = parameter.decl.shape.front();
            least = most = (round_up(rows, sharding_.shards(expert)) - rows) * (parameter.elements / rows);
        }
        if (parameter.padding < least || parameter.padding > most) {
            refuse("'" + parameter.name + "' is padded by " + std::to_string(parameter.padding) + " elements, not by " +
                   std::to_string(least) + " to " + std::to_string(most));
        }
    }

    [[nodiscard]] static ParameterRange range_of(const models::SlotDecl& decl) {
        if (decl.expert) return ParameterRange::expert;
        if (decl.gradient_sum == models::GradientSum::tp) return ParameterRange::tensor_sum;
        return decl.gradient_sum == models::GradientSum::kv_group ? ParameterRange::kv_sum : ParameterRange::dense;
    }

    /// The parameter's elements before sharding. Checks that its shards make up the whole tensor.
    [[nodiscard]] std::int64_t global_elements(const Parameter& parameter) const {
        const Parallelism& p = forms_.plan().parallelism;
        const models::ModelSpec& model = forms_.plan().model;
        const bool expert = parameter.decl.expert;
        const bool copied = parameter.decl.gradient_sum == models::GradientSum::kv_group;
        std::int64_t row_shards = 1, column_shards = 1;
        if (expert) row_shards = p.ep;
        std::int64_t shards = expert ? p.etp : p.tp / (copied ? forms_.kv_copies() : 1);
        if (parameter.decl.over_stages) shards = p.pp;
        if (parameter.decl.shard == models::ShardDim::rows) row_shards *= shards;
        if (parameter.decl.shard == models::ShardDim::cols) column_shards *= shards;
        std::int64_t local = 0, global = 0;
        for (const models::ParameterPart& part : parameter.decl.parts) {
            const std::int64_t rows = part.local_rows * row_shards, cols = part.local_cols * column_shards;
            const bool padded = !expert && part.global_rows == model.vocab && rows == forms_.padded_vocabulary();
            if ((rows != part.global_rows && !padded) || cols != part.global_cols) {
                refuse("the shards of '" + part.name + "' in '" + parameter.name + "' make " + std::to_string(rows) +
                       " x " + std::to_string(cols) + ", not " + std::to_string(part.global_rows) + " x " +
                       std::to_string(part.global_cols));
            }
            local += part.local_rows * part.local_cols;
            global += part.global_rows * part.global_cols;
        }
        if (local != parameter.elements) {
            refuse("'" + parameter.name + "' holds " + std::to_string(parameter.elements) +
                   " elements, but its parts hold " + std::to_string(local));
        }
        return global;
    }

    void check_buckets() const {
        const bool crosses = sharding_.reduces(false) || sharding_.reduces(true);
        std::vector<std::pair<std::int64_t, std::int64_t>> tiles;
        std::int64_t shard_end = 0;
        for (const Bucket& bucket : ranks_.buckets) {
            tiles.emplace_back(bucket.offset, bucket.offset + bucket.elements);
            const std::int64_t shards = sharding_.shards(bucket.range == ParameterRange::expert);
            const std::string name = "the bucket at " + std::to_string(bucket.offset);
            const bool each =
                sharding_.orders_by_unit && forms_.plan().implementation.data_parallel.pads_each_parameter;
            const std::int64_t alignment = each ? shards : shard_alignment(bucket.range == ParameterRange::expert);
            if (bucket.elements % alignment != 0 || bucket.shard_elements * shards != bucket.elements) {
                refuse(name + ", of " + std::to_string(bucket.elements) + " elements, is cut into shards of " +
                       std::to_string(bucket.shard_elements) + "; allowed: " + std::to_string(shards) +
                       " equal shards of a bucket whose size is a multiple of " + std::to_string(alignment));
            }
            if (!sharding_.shards_states) continue;
            if (bucket.shard_offset != shard_end) {
                refuse(name + ": its shard begins at " + std::to_string(bucket.shard_offset) +
                       ", not at the end of the previous one, " + std::to_string(shard_end));
            }
            shard_end += bucket.shard_elements;
        }
        if (crosses) check_tiles(tiles, "buckets");
        if (ranks_.shard_elements != shard_end) {
            refuse("the shards have " + std::to_string(ranks_.shard_elements) +
                   " elements; those of its buckets have " + std::to_string(shard_end));
        }
    }

    /// One reduction of gradients: its position, and the number of elements. The position is the bucket's offset in the
    /// flat order or, with reduce-scatter, the offset of its shard.
    using BucketReduction = std::pair<std::int64_t, std::int64_t>;

    /// Each bucket is reduced over data-parallel ranks as often as the plan requires, and nothing else is.
    void check_reductions() const {
        std::vector<BucketReduction> found, expected;
        for (const Action& action : ranks_.actions) {
            for (const Segment& segment : ranks_.segment_lists[action.segments]) {
                const Body& body = program_.bodies[segment.body];
                if (body.stream_counts[Stream::dp] > 0) collect(body, segment, found);
            }
        }
        for (const Bucket& bucket : ranks_.buckets) {
            if (!sharding_.reduces(bucket.range == ParameterRange::expert)) continue;
            const Chunk& chunk = ranks_.chunks[chunk_of(bucket)];
            const BucketReduction one{sharding_.reduce_scatters ? bucket.shard_offset : bucket.offset, bucket.elements};
            expected.insert(expected.end(), static_cast<std::size_t>(forms_.reductions(ranks_, chunk)), one);
        }
        std::sort(found.begin(), found.end());
        std::sort(expected.begin(), expected.end());
        if (found == expected) return;
        refuse("its " + std::to_string(found.size()) + " gradient reductions are not those of its " +
               std::to_string(ranks_.buckets.size()) + " buckets, which need " + std::to_string(expected.size()));
    }

    [[nodiscard]] ChunkIndex chunk_of(const Bucket& bucket) const {
        for (const Parameter& parameter : ranks_.parameters) {
            if (parameter.offset == bucket.offset) return parameter.chunk;
        }
        refuse("the bucket at " + std::to_string(bucket.offset) + " begins inside a parameter");
    }

    void collect(const Body& body, const Segment& segment, std::vector<BucketReduction>& found) const {
        const auto place = [&](models::SlotIndex slot) {
            return resolve(ranks_, body.phase, segment, body.slots[slot]);
        };
        IndexedVector<models::SlotIndex, std::int64_t> staged(
            body.slots.size(), -1);  // by staging slot: the offset of the gradients copied to it
        for (const Instruction& instruction : body.instructions) {
            for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
                const auto& op = body.operators[instruction.first_operator + o];
                const bool copies =
                    op.kind == models::OpKind::cast && op.in[0] != models::kNoSlot && op.out[0] != models::kNoSlot;
                if (copies && body.slots[op.in[0]].space == Space::gradient) {
                    staged[op.out[0]] = place(op.in[0]).begin;
                }
            }
            const Communication& comm = instruction.communication;
            const bool reduces =
                instruction.is_communication && instruction.stream == Stream::dp &&
                (comm.axis == GroupAxis::dp || comm.axis == GroupAxis::dp_shard || comm.axis == GroupAxis::edp);
            if (!reduces) continue;
            const MemoryRange from = place(comm.in);
            std::int64_t key = from.begin;
            if (from.region == Region::reduction) key = staged[comm.in];
            if (comm.kind == CommKind::reduce_scatter) key = place(comm.out).begin;
            found.emplace_back(key, comm.elements);
        }
    }

    const Program& program_;
    ClassIndex c_;
    const RankClass& ranks_;
    const ClosedForms& forms_;
    const Sharding& sharding_;
};

}  // namespace

void check_parameters(const Program& program) {
    const Plan& plan = *program.plan;
    const ClosedForms forms(plan);
    std::int64_t total = 0;
    for (const ClassIndex c : program.classes.indices()) {
        ClassParameters ranks(program, c, forms);
        ranks.check();
        if (c == 0 || !is_replicated(program)) total += ranks.global_elements();
    }
    // The pooler is left out, because the loss that uses it is not modelled. dualpipe's ranks hold two copies of the
    // model.
    const models::ModelSpec& model = plan.model;
    const std::int64_t pooler = model.pooler ? model.hidden * (model.hidden + 1) : 0;
    const std::int64_t copies = plan.parallelism.model_copies();
    const std::int64_t expected = copies * (models::parameter_count(model) - pooler);
    if (total != expected) {
        fail(program, kParameters, {},
             "its parameters make " + std::to_string(total) + " elements; the model has " + std::to_string(expected));
    }
}

}  // namespace orrery::program::rules
