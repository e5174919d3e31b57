#include "tests/fingerprints/fingerprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "core/random.h"
#include "sim/planner/planner.h"
#include "sim/program/validate_rules.h"

namespace orrery::fingerprints {
namespace {

using program::Body;
using program::RankClass;

class Hash {
  public:
    void add(std::string_view text) { mix(hash_name(text)); }
    void add(const char* text) { add(std::string_view(text)); }
    void add(double value) { mix(std::bit_cast<std::uint64_t>(value)); }
    template <typename Number>
    requires std::is_integral_v<Number>
    void add(Number value) { mix(static_cast<std::uint64_t>(value)); }
    template <typename Tag, typename Rep>
    void add(Index<Tag, Rep> index) {
        add(index.value());
    }
    /// Enumerators are hashed by name, since their numbers may change.
    template <typename Named>
    requires std::is_enum_v<Named>
    void add(Named value) { add(std::string_view(name_of(value))); }
    template <typename First, typename Second, typename... More>
    void add(const First& first, const Second& second, const More&... more) {
        add(first);
        (add(second), ..., add(more));
    }
    template <typename Range>
    void add_all(const Range& values) {
        for (const auto& value : values) add(value);
        add(std::size(values));
    }
    [[nodiscard]] std::uint64_t value() const { return value_; }

  private:
    void mix(std::uint64_t bits) { value_ = mix64(value_ ^ mix64(bits)); }
    std::uint64_t value_ = 0;
};

void add(Hash& hash, const program::Slot& slot) {
    const models::SlotDecl& decl = slot.decl;
    hash.add(decl.name, static_cast<int>(decl.role), static_cast<int>(decl.dtype), decl.most_rows, decl.over_stages,
             decl.weight_decay, decl.tied, decl.expert, decl.init_std);
    hash.add_all(decl.shape);
    for (const models::ParameterPart& part : decl.parts) {
        hash.add(part.name, part.global_rows, part.global_cols, part.local_rows, part.local_cols);
    }
    hash.add(static_cast<int>(slot.space), slot.offset, slot.bytes, slot.range, slot.born, slot.dies);
    hash.add(slot.own_block ? name_of(*slot.own_block) : std::string_view());
}

void add(Hash& hash, const models::Operator& op) {
    hash.add(op.kind, op.weight_gradient, op.overwrites_gradients, op.at_end, op.again, op.offloaded,
             static_cast<int>(op.math), op.sequence_sharded, op.rows, op.pieces, op.n, op.k, op.heads, op.kv_heads,
             op.head_dim, op.value_dim, op.sequence, op.queries, op.reach, static_cast<int>(op.keys), op.ring_step,
             op.copies, op.from_column, op.to_column, op.groups, op.sources, op.micro_batch, op.elements, op.scratch,
             op.flops, op.bytes_read, op.bytes_written);
    hash.add_all(op.in);
    hash.add_all(op.out);
}

std::uint64_t hash_of(const Body& body) {
    Hash hash;
    hash.add(body.phase, body.layer_kind, body.transient_bytes, body.transient_live_peak);
    for (const program::Slot& slot : body.slots) add(hash, slot);
    for (const program::Instruction& instruction : body.instructions) {
        hash.add(instruction.name, instruction.stream, instruction.is_communication);
        if (instruction.is_communication) {
            const program::Communication& comm = instruction.communication;
            hash.add(comm.kind, comm.axis, static_cast<int>(comm.reduce), static_cast<int>(comm.dtype), comm.elements,
                     comm.in, comm.out, comm.accumulates, comm.consumes, comm.root, comm.send_counts,
                     comm.receive_counts, comm.row_elements);
            if (comm.tokens_once) {
                const models::TokenRouting& routing = *comm.tokens_once;
                hash.add(routing.experts, routing.top_k, routing.groups, routing.top_k_groups);
            }
        }
        hash.add(instruction.operator_count);
        for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
            add(hash, body.operators[instruction.first_operator + i]);
        }
    }
    return hash.value();
}

void add(Hash& hash, const program::Segment& segment) {
    hash.add(segment.layer);
    hash.add_all(segment.parameter_base);
    hash.add_all(segment.gradient_base);
    hash.add_all(segment.shard_base);
    hash.add(segment.reduction_base, segment.weight_copy_base, segment.host_base, segment.activation_base,
             segment.hidden_in_offset, segment.hidden_out_offset, segment.gradient_in_offset,
             segment.gradient_out_offset, segment.in_offload_window);
}

std::uint64_t hash_of_lists(const program::Program& program) {
    IndexedVector<program::BodyId, std::uint64_t> bodies;
    bodies.reserve(program.bodies.size());
    for (const Body& body : program.bodies) bodies.push_back(hash_of(body));
    Hash hash;
    for (const RankClass& ranks : program.classes) {
        IndexedVector<program::SegmentListId, std::uint64_t> lists;
        for (const program::SegmentList& segments : ranks.segment_lists) {
            Hash list;
            for (const program::Segment& segment : segments) {
                add(list, segment);
                list.add(bodies[segment.body]);
            }
            lists.push_back(list.value());
        }
        for (const program::Action& action : ranks.actions) {
            hash.add(action.kind, action.chunk, action.micro_batch, action.activation_frame, action.input_boundary,
                     action.forward_boundary, action.backward_boundary, action.gradient_out, action.output_stays,
                     lists[action.segments]);
        }
        for (const program::Parameter& parameter : ranks.parameters) {
            hash.add(parameter.name, parameter.range, parameter.offset, parameter.elements, parameter.padding,
                     parameter.layer, parameter.chunk);
        }
        for (const program::Bucket& bucket : ranks.buckets) {
            hash.add(bucket.range, bucket.offset, bucket.elements, bucket.shard_offset, bucket.shard_elements);
        }
    }
    return hash.value();
}

/// How many instructions of each stream are known to have completed when an instruction begins. Streams are FIFOs, so
/// these counts determine all predecessors.
using Clock = program::PerStream<std::int32_t>;

/// Waits that are implied by others do not change the hash.
std::uint64_t hash_of_order(const program::Program& program) {
    Hash hash;
    for (const program::Trace& trace : program::rules::traces_of(program)) {
        std::vector<Clock> previous(trace.calls.size()), current(trace.calls.size());
        for (std::int32_t step = 0; step < 2; ++step) {
            const auto join = [&](Clock& clock, program::Stream stream, std::int32_t position, std::int32_t back) {
                if (position == 0 || back > step) return;
                const auto call =
                    static_cast<std::size_t>(trace.calls_on[stream][static_cast<std::size_t>(position - 1)]);
                const Clock& known = back == 0 ? current[call] : previous[call];
                for (const program::Stream s : program::kStreams) clock[s] = std::max(clock[s], known[s]);
                clock[stream] = std::max(clock[stream], (step - back) * trace.count_on(stream) + position);
            };
            for (std::size_t i = 0; i < trace.calls.size(); ++i) {
                const program::Call& call = trace.calls[i];
                Clock clock{};
                const bool first = call.position == 1;
                join(clock, call.stream, first ? trace.count_on(call.stream) : call.position - 1, first ? 1 : 0);
                for (std::int32_t e = 0; e < call.event_count; ++e) {
                    const program::Event& event = trace.events[static_cast<std::size_t>(call.first_event + e)];
                    join(clock, event.stream, event.count, event.steps_back);
                }
                current[i] = clock;
            }
            previous.swap(current);
        }
        for (const Clock& clock : previous) hash.add_all(clock);
    }
    return hash.value();
}

std::uint64_t hash_of_memory(const program::Program& program) {
    Hash hash;
    for (const RankClass& ranks : program.classes) {
        const program::MemoryFootprint& m = ranks.memory;
        hash.add(m.parameters, m.gathered, m.gradients, m.reductions, m.optimizer_states, m.offload_window, m.framework,
                 m.activations_live_peak, m.activations_arena, m.transients_live_peak, m.transients_arena,
                 m.boundaries_arena, m.live_peak, m.arena, m.host, m.conversions, m.peak_action, m.activations_at_peak,
                 m.transients_at_peak);
        for (const program::Chunk& chunk : ranks.chunks) {
            hash.add(chunk.virtual_stage, chunk.direction, chunk.up, chunk.first_block, chunk.block_count,
                     chunk.has_embedding, chunk.has_head, chunk.frame_bytes, chunk.frame_count, chunk.host_frame_bytes);
        }
        hash.add(ranks.parameter_elements, ranks.parameter_buffer_elements, ranks.gradient_buffer_elements,
                 ranks.shard_elements, ranks.parameter_shards_alias, ranks.gradient_shards_alias,
                 ranks.optimizer_elements, ranks.reduction_bytes, ranks.weight_copy_bytes, ranks.tied_parameter_base,
                 ranks.tied_gradient_base, ranks.boundary_bytes, ranks.input_boundary_count,
                 ranks.forward_boundary_count, ranks.backward_boundary_count, ranks.transient_bytes,
                 ranks.offload_window_bytes, ranks.host_bytes);
        hash.add_all(ranks.range_begin);
        hash.add_all(ranks.range_end);
    }
    return hash.value();
}

}  // namespace

Fingerprint fingerprint_of(const program::Plan& plan) {
    const program::Program program = program::lower(plan);
    const topologies::Cluster cluster(plan.cluster);
    const double step_s = sim::evaluate(program, cluster).result.step_time_s;
    return {.lists = hash_of_lists(program),
            .order = hash_of_order(program),
            .memory = hash_of_memory(program),
            .step_ps = std::llround(step_s * 1e12)};
}

std::string to_text(const Fingerprint& fingerprint) {
    return fmt::format("{:016x} {:016x} {:016x} {}", fingerprint.lists, fingerprint.order, fingerprint.memory,
                       fingerprint.step_ps);
}

Fingerprint fingerprint_from(const std::string& text) {
    Fingerprint result;
    const int read = std::sscanf(text.c_str(), "%16" SCNx64 " %16" SCNx64 " %16" SCNx64 " %" SCNd64, &result.lists,
                                 &result.order, &result.memory, &result.step_ps);
    ORRERY_CHECK(read == 4, "not a fingerprint: " + text);
    return result;
}

}  // namespace orrery::fingerprints
