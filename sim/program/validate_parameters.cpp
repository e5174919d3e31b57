// Rule "parameters": the flat order of all ranks together holds the model, and each parameter has the shard, range and
// padding that the plan and the implementation require. Buckets cover the flat order, can be sharded equally, and are
// reduced over data-parallel ranks as often as the plan requires.
#include <algorithm>
#include <numeric>

#include "sim/program/validate_forms.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kParameters = "parameters";

class ClassParameters : ClassRule {
  public:
    ClassParameters(const Program& program, ClassIndex c, const ClosedForms& forms)
        : ClassRule(program, c, kParameters), forms_(forms) {}

    void check() const {
        check_elements();
        check_layout();
        if (!is_replicated(plan_)) {
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
        const models::ModelSpec& model = plan_.model;
        if (!model.tied_embeddings || forms_.ties_on_rank()) return total;
        for (const Chunk& chunk : ranks_.chunks) total -= chunk.has_head ? model.vocab * model.hidden : 0;
        return total;
    }

  private:
    using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

    void check_elements() const {
        Bases found{}, padding{};
        for (const Parameter& parameter : ranks_.parameters) {
            found[parameter.range] += parameter.elements;
            padding[parameter.range] += parameter.padding;
        }
        const Bases by_range = forms_.elements_of(ranks_);
        for (const ParameterRange r : kRanges) {
            if (found[r] != by_range[r]) refuse("{} elements, not {}, in the range {}", found[r], by_range[r], r);
            if (sharding_.orders_by_unit) continue;  // the flat order goes by unit, not by range
            const std::int64_t size = ranks_.range_end[r] - ranks_.range_begin[r], expected = by_range[r] + padding[r];
            if (size != expected) refuse("the range {} has {} elements, not {}", r, size, expected);
        }
    }

    void check_tiles(Pairs& list, std::string_view what) const {
        std::sort(list.begin(), list.end());
        std::int64_t end = 0;
        for (const auto& [from, to] : list) {
            if (from != end || to <= from) refuse("{}: [{}, {}) follows {}", what, from, to, end);
            end = to;
        }
        if (end == ranks_.parameter_elements) return;
        refuse("{} end at {} of {} elements", what, end, ranks_.parameter_elements);
    }

    void check_layout() const {
        Pairs tiles;
        for (const Parameter& parameter : ranks_.parameters) {
            check_padding(parameter);
            const std::int64_t end = parameter.offset + parameter.elements;
            tiles.emplace_back(parameter.offset, end + parameter.padding);
            const bool inside =
                parameter.offset >= ranks_.range_begin[parameter.range] && end <= ranks_.range_end[parameter.range];
            if (!sharding_.orders_by_unit && !inside) refuse("'{}' is outside its range", parameter.name);
            if (parameter.range != range_of(parameter.decl)) refuse("'{}' is in the wrong range", parameter.name);
        }
        check_tiles(tiles, "parameters");
    }

    /// Shards begin at multiples of this many elements.
    [[nodiscard]] std::int64_t shard_alignment(ParameterRange range) const {
        const std::int64_t shards = sharding_.shards(range);
        return shards > 1 ? std::lcm(shards, choices_.shard_alignment_elements) : 1;
    }

    /// Padding is shorter than the alignment. PyTorch's FSDP2 pads dim 0 of each parameter to a multiple of the shards.
    void check_padding(const Parameter& parameter) const {
        std::int64_t least = 0, most = shard_alignment(parameter.range) - 1;
        if (pads_each_ && !parameter.decl.shape.empty() && parameter.decl.shape.front() > 0) {
            const std::int64_t rows = parameter.decl.shape.front();
            least = most = (round_up(rows, sharding_.shards(parameter.range)) - rows) * (parameter.elements / rows);
        }
        if (parameter.padding >= least && parameter.padding <= most) return;
        refuse("'{}' is padded by {} elements, not by {} to {}", parameter.name, parameter.padding, least, most);
    }

    [[nodiscard]] static ParameterRange range_of(const models::SlotDecl& decl) {
        if (decl.expert) return ParameterRange::expert;
        if (decl.gradient_sum == models::GradientSum::tp) return ParameterRange::tensor_sum;
        return decl.gradient_sum == models::GradientSum::kv_group ? ParameterRange::kv_sum : ParameterRange::dense;
    }

    /// The parameter's elements before sharding. Checks that its shards make up the whole tensor.
    [[nodiscard]] std::int64_t global_elements(const Parameter& parameter) const {
        const models::SlotDecl& decl = parameter.decl;
        const bool copied = decl.gradient_sum == models::GradientSum::kv_group;
        std::int64_t shards = decl.expert ? p_.etp : p_.tp / (copied ? forms_.kv_copies() : 1);
        if (decl.over_stages) shards = p_.pp;
        const std::int64_t row_shards = (decl.expert ? p_.ep : 1) * (decl.shard == models::ShardDim::rows ? shards : 1);
        const std::int64_t column_shards = decl.shard == models::ShardDim::cols ? shards : 1;
        std::int64_t local = 0, global = 0;
        for (const models::ParameterPart& part : decl.parts) {
            const std::int64_t rows = part.local_rows * row_shards, cols = part.local_cols * column_shards;
            const bool padded =
                !decl.expert && part.global_rows == plan_.model.vocab && rows == forms_.padded_vocabulary();
            if ((rows != part.global_rows && !padded) || cols != part.global_cols) {
                refuse("the shards of '{}' in '{}' make {} x {}, not {} x {}", part.name, parameter.name, rows, cols,
                       part.global_rows, part.global_cols);
            }
            local += part.local_rows * part.local_cols;
            global += part.global_rows * part.global_cols;
        }
        if (local == parameter.elements) return global;
        refuse("'{}' holds {} elements, but its parts hold {}", parameter.name, parameter.elements, local);
    }

    void check_buckets() const {
        Pairs tiles;
        std::int64_t shard_end = 0;
        for (const Bucket& bucket : ranks_.buckets) {
            tiles.emplace_back(bucket.offset, bucket.offset + bucket.elements);
            const std::int64_t shards = sharding_.shards(bucket.range);
            const std::int64_t alignment = pads_each_ ? shards : shard_alignment(bucket.range);
            if (bucket.elements % alignment != 0 || bucket.shard_elements * shards != bucket.elements) {
                refuse(
                    "the bucket at {}, of {} elements, is cut into shards of {}; allowed: {} equal shards of a "
                    "bucket whose size is a multiple of {}",
                    bucket.offset, bucket.elements, bucket.shard_elements, shards, alignment);
            }
            if (!sharding_.shards_states) continue;
            if (bucket.shard_offset != shard_end) {
                refuse("the bucket at {}: its shard begins at {}, not at the end of the previous one, {}",
                       bucket.offset, bucket.shard_offset, shard_end);
            }
            shard_end += bucket.shard_elements;
        }
        if (sharding_.dense_ranks > 1 || sharding_.expert_ranks > 1) check_tiles(tiles, "buckets");
        if (ranks_.shard_elements == shard_end) return;
        refuse("the shards have {} elements; those of its buckets have {}", ranks_.shard_elements, shard_end);
    }

    /// Each bucket is reduced over data-parallel ranks as often as the plan requires, and nothing else is. Of each
    /// reduction it compares the position and the number of elements. The position is the bucket's offset in the flat
    /// order or, with reduce-scatter, the offset of its shard.
    void check_reductions() const {
        Pairs found, expected;
        for (const Action& action : ranks_.actions) {
            for (const Segment& segment : ranks_.segment_lists[action.segments]) {
                const Body& body = program_.bodies[segment.body];
                if (body.stream_counts[Stream::dp] > 0) collect(body, segment, found);
            }
        }
        for (const Bucket& bucket : ranks_.buckets) {
            if (!sharding_.reduces(bucket.range)) continue;
            const BucketContents contents = contents_of(plan_, ranks_, bucket);
            if (!contents.begins_one) refuse("the bucket at {} begins inside a parameter", bucket.offset);
            const std::pair one{sharding_.reduce_scatters ? bucket.shard_offset : bucket.offset, bucket.elements};
            const std::int64_t times = forms_.reductions(ranks_, ranks_.chunks[contents.chunk]);
            expected.insert(expected.end(), static_cast<std::size_t>(times), one);
        }
        std::sort(found.begin(), found.end());
        std::sort(expected.begin(), expected.end());
        if (found == expected) return;
        refuse("its {} gradient reductions are not those of its {} buckets, which need {}", found.size(),
               ranks_.buckets.size(), expected.size());
    }

    void collect(const Body& body, const Segment& segment, Pairs& found) const {
        const auto place = [&](models::SlotIndex slot) {
            return resolve(ranks_, body.phase, segment, body.slots[slot]);
        };
        IndexedVector<models::SlotIndex, std::int64_t> staged(
            body.slots.size(), -1);  // by staging slot: the offset of the gradients copied to it
        for (const Instruction& instruction : body.instructions) {
            if (!instruction.is_communication) {
                for (const models::Operator& op : operators_of(body, instruction)) {
                    const models::SlotIndex from = op.in[0], to = op.out[0];
                    if (op.kind != models::OpKind::cast || from == models::kNoSlot || to == models::kNoSlot) continue;
                    if (body.slots[from].space == Space::gradient) staged[to] = place(from).begin;
                }
                continue;
            }
            const Communication& comm = instruction.communication;
            if (instruction.stream != Stream::dp || !moves_buckets(comm.axis)) continue;
            const MemoryRange from = place(comm.in);
            std::int64_t key = from.region == Region::reduction ? staged[comm.in] : from.begin;
            if (comm.kind == CommKind::reduce_scatter) key = place(comm.out).begin;
            found.emplace_back(key, comm.elements);
        }
    }

    const ClosedForms& forms_;
    const Sharding& sharding_ = forms_.sharding();
    const models::DataParallelChoices& choices_ = plan_.implementation.data_parallel;
    const bool pads_each_ = sharding_.orders_by_unit && choices_.pads_each_parameter;  // each parameter of a unit
};

}  // namespace

void check_parameters(const Program& program) {
    const Plan& plan = *program.plan;
    const ClosedForms forms(plan);
    std::int64_t total = 0;
    for (const ClassIndex c : program.classes.indices()) {
        const ClassParameters ranks(program, c, forms);
        ranks.check();
        if (c == 0 || !is_replicated(*program.plan)) total += ranks.global_elements();
    }
    // The pooler is left out, because the loss that uses it is not modelled. dualpipe's ranks hold two copies of the
    // model.
    const models::ModelSpec& model = plan.model;
    const std::int64_t pooler = model.pooler ? model.hidden * (model.hidden + 1) : 0;
    const std::int64_t expected = plan.parallelism.model_copies() * (models::parameter_count(model) - pooler);
    if (total == expected) return;
    fail(program, kParameters, {}, "its parameters make {} elements; the model has {}", total, expected);
}

}  // namespace orrery::program::rules
