// Rule "footprint": the memory figures of a class agree with the plan, and add up.
#include <algorithm>
#include <map>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

std::int64_t aligned(std::int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/// A unit, whose parameters are gathered together and whose gradients are reduced together: padded elements.
struct UnitSize {
    ChunkIndex chunk = 0;
    std::int32_t first_layer = 0, last_layer = 0;
    bool root = false;
    std::int64_t dense = 0, expert = 0;
    std::int64_t staged_bytes = 0;  // of its buckets, in the type of the reduction
    [[nodiscard]] std::int64_t padded() const { return dense + expert; }
};

class Footprint {
  public:
    Footprint(const Program& program, ClassIndex c, const ClosedForms& forms)
        : program_(program),
          plan_(*program.plan),
          c_(c),
          ranks_(program.classes[c]),
          memory_(ranks_.memory),
          forms_(forms),
          sharding_(forms.sharding()) {
        if (sharding_.orders_by_unit) collect_units();
    }

    void check() {
        check_transients();
        check_parameters_and_states();
        check_activations();
        const std::int64_t fixed = memory_.parameters + memory_.gathered + memory_.gradients + memory_.reductions +
                                   memory_.optimizer_states + memory_.offload_window + memory_.framework +
                                   memory_.boundaries_arena;
        equal("arena", memory_.arena, fixed + memory_.activations_arena + memory_.transients_arena);
        at_most("activations_live_peak", memory_.activations_live_peak, memory_.activations_arena);
        at_most("transients_live_peak", memory_.transients_live_peak, memory_.transients_arena);
        at_most("live_peak", memory_.live_peak, memory_.arena);
        at_most("the memory that is always allocated", fixed, memory_.live_peak);
        at_most("activations_at_peak", memory_.activations_at_peak, memory_.activations_live_peak);
        at_most("transients_at_peak", memory_.transients_at_peak, memory_.transients_live_peak);
        equal("live_peak", memory_.live_peak, fixed + memory_.activations_at_peak + memory_.transients_at_peak);
    }

  private:
    void equal(const std::string& name, std::int64_t found, std::int64_t expected) const {
        if (found == expected) return;
        fail(program_, "footprint", {.rank_class = c_},
             name + " is " + std::to_string(found) + ", not " + std::to_string(expected));
    }
    void at_most(const std::string& name, std::int64_t found, std::int64_t most) const {
        if (found >= 0 && found <= most) return;
        fail(program_, "footprint", {.rank_class = c_},
             name + " is " + std::to_string(found) + ", outside 0 to " + std::to_string(most));
    }

    void check_transients() const {
        std::int64_t largest = 0;
        IndexedVector<BodyId, bool> seen(program_.bodies.size());
        for (const auto& list : ranks_.segment_lists) {
            for (const Segment& segment : list) {
                if (seen[segment.body]) continue;
                seen[segment.body] = true;
                const Body& body = program_.bodies[segment.body];
                largest = std::max(largest, body.transient_bytes);
                const std::string name = "body " + std::to_string(segment.body.value()) + ": ";
                at_most(name + "transient_live_peak", body.transient_live_peak, body.transient_bytes);
                for (const Instruction& instruction : body.instructions) {
                    for (const SlotAccess& access : accesses_of(body, instruction)) {
                        const Slot& slot = body.slots[access.slot];
                        if (slot.space != Space::transient) continue;
                        at_most(name + "the end of the transient '" + slot.decl.name + "'", slot.offset + slot.bytes,
                                body.transient_bytes);
                    }
                }
            }
        }
        equal("transient_bytes", ranks_.transient_bytes, largest);
        equal("transients_arena", memory_.transients_arena, ranks_.transient_bytes);
    }

    /// Collects the units from their buckets: each dense bucket may be followed by the bucket of its experts. The root
    /// unit may have further buckets, such as a copy of a tied embedding.
    void collect_units() {
        const bool roots = plan_.implementation.data_parallel.keeps_root_gathered || plan_.model.tied_embeddings;
        for (const Bucket& bucket : ranks_.buckets) {
            UnitSize unit;
            bool first = true;
            for (const Parameter& parameter : ranks_.parameters) {
                if (parameter.offset < bucket.offset || parameter.offset >= bucket.offset + bucket.elements) continue;
                const bool end = parameter.layer < 0 || parameter.layer == plan_.model.layers;
                unit.root = unit.root || (roots && end);
                unit.chunk = parameter.chunk;
                unit.first_layer = first ? parameter.layer : std::min(unit.first_layer, parameter.layer);
                unit.last_layer = first ? parameter.layer : std::max(unit.last_layer, parameter.layer);
                first = false;
            }
            const bool expert = bucket.range == ParameterRange::expert;
            const bool experts_of_last = expert && !units_.empty() && units_.back().chunk == unit.chunk &&
                                         units_.back().first_layer <= unit.first_layer &&
                                         unit.last_layer <= units_.back().last_layer;
            const bool root_of_last =
                unit.root && !units_.empty() && units_.back().root && units_.back().chunk == unit.chunk;
            if (!experts_of_last && !root_of_last) units_.push_back(unit);
            UnitSize& sum = units_.back();
            (expert ? sum.expert : sum.dense) += bucket.elements;
            sum.staged_bytes += aligned(bucket.elements * size_of(plan_.training.precision.reduction));
        }
    }
    [[nodiscard]] std::int64_t root_elements() const {
        std::int64_t sum = 0;
        for (const UnitSize& unit : units_) sum += unit.root ? unit.padded() : 0;
        return sum;
    }
    [[nodiscard]] std::int64_t largest_unit() const {
        std::int64_t largest = 0;
        for (const UnitSize& unit : units_) largest = std::max(largest, unit.root ? 0 : unit.padded());
        return largest;
    }
    /// Slots for gathered units, without the root unit: all units if they stay gathered after the forward pass,
    /// otherwise the one in use and the prefetched ones.
    [[nodiscard]] std::int64_t window_slots() const {
        const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
        const std::int64_t turns = 1 + std::max(choices.forward_prefetch, choices.backward_prefetch);
        IndexedVector<ChunkIndex, std::int64_t> by_chunk(ranks_.chunks.size());
        for (const UnitSize& unit : units_) by_chunk[unit.chunk] += unit.root ? 0 : 1;
        std::int64_t sum = 0, most = 0;
        for (const std::int64_t count : by_chunk) {
            sum += count;
            most = std::max(most, std::min(count, turns));
        }
        return plan_.parallelism.reshard_after_forward ? most : sum;
    }

    void check_parameters_and_states() const {
        const Precision& precision = plan_.training.precision;
        const MemorySavings& savings = plan_.training.memory;
        const std::int64_t elements = ranks_.parameter_elements;  // checked by the rule "parameters"
        const std::int64_t shards = ranks_.shard_elements;
        const std::int64_t parameter = size_of(precision.parameter);
        const bool fp32_shards = sharding_.gathers_units && plan_.implementation.stores_fp32_shards;
        const std::int64_t stored = shards * (fp32_shards ? size_of(DType::fp32) : parameter);
        const bool on_host = sharding_.gathers_units && savings.offload_parameters;

        equal("weight_copy_bytes", ranks_.weight_copy_bytes, weight_copies());
        const std::int64_t buffer =
            sharding_.gathers_units ? root_elements() + window_slots() * largest_unit() : elements;
        equal("parameter_buffer_elements", ranks_.parameter_buffer_elements, buffer);
        equal("gathered", memory_.gathered, sharding_.gathers_units ? buffer * parameter : 0);
        equal("parameters", memory_.parameters,
              (sharding_.gathers_units ? (on_host ? 0 : stored) : elements * parameter) + ranks_.weight_copy_bytes);

        // One slot is enough if a unit is reduced from a staging buffer while the next one is computed; otherwise two
        // slots alternate.
        const std::int64_t turns = sharding_.staged ? 1 : 2;
        const std::int64_t gradients = sharding_.reduces_units ? root_elements() + turns * largest_unit() : elements;
        equal("gradient_buffer_elements", ranks_.gradient_buffer_elements, gradients);
        equal("gradients", memory_.gradients,
              gradients * size_of(sharding_.gradient_dtype) +
                  (sharding_.reduces_units ? shards * size_of(precision.gradient) : 0));
        if (!is_replicated(program_)) equal("reductions", memory_.reductions, staging());
        equal("reduction_bytes", ranks_.reduction_bytes, memory_.reductions);

        std::int64_t updated = sharding_.shards_states ? shards : elements;
        if (is_replicated(program_) && c_ > 0) updated = 0;
        const std::int64_t master = precision.master_weights && !fp32_shards ? size_of(DType::fp32) : 0;
        const std::int64_t states = updated * (plan_.training.optimizer.states() * size_of(DType::fp32) + master);
        equal("optimizer_elements", ranks_.optimizer_elements, updated);
        equal("optimizer_states", memory_.optimizer_states, savings.offload_optimizer ? 0 : states);

        std::int64_t host = on_host ? stored : 0;
        if (savings.offload_optimizer) {
            const DType sent = sharding_.reduces_units ? precision.gradient : sharding_.gradient_dtype;
            // Parameters that live on the host are updated in place.
            host += states + updated * (size_of(sent) + (on_host ? 0 : parameter));
        }
        for (const Chunk& chunk : ranks_.chunks) host += chunk.host_frame_bytes * chunk.frame_count;
        equal("host_bytes", ranks_.host_bytes, host);
        equal("host", memory_.host, host);
    }

    [[nodiscard]] std::int64_t weight_copies() const {
        std::int64_t sum = 0, largest = 0;
        for (const Chunk& chunk : ranks_.chunks) {
            for (std::int64_t i = 0; i < chunk.block_count; ++i) {
                const std::int64_t one = forms_.weight_copy_bytes(plan_.model.is_expert_layer(chunk.first_block + i));
                sum += one;
                largest = std::max(largest, one);
            }
        }
        return sharding_.gathers_units ? largest : sum;
    }

    /// Staging buffers: one for the largest unit, or two (one if there is only one bucket) for the largest bucket.
    [[nodiscard]] std::int64_t staging() const {
        if (!sharding_.staged) return 0;
        const std::int64_t size = size_of(plan_.training.precision.reduction);
        std::int64_t largest = 0, count = 0;
        if (sharding_.orders_by_unit) {
            for (const UnitSize& unit : units_) {
                largest = std::max(largest, unit.staged_bytes);
            }
            return largest;
        }
        for (const Bucket& bucket : ranks_.buckets) {
            if (!sharding_.reduces(bucket.range == ParameterRange::expert)) continue;
            largest = std::max(largest, aligned(bucket.elements * size));
            ++count;
        }
        return largest * std::min<std::int64_t>(count, 2);
    }

    void check_activations() const {
        std::int64_t frames = 0;
        const MemorySavings& savings = plan_.training.memory;
        bool offloads = false;
        for (const Chunk& chunk : ranks_.chunks) {
            frames += chunk.frame_bytes * chunk.frame_count;
            const bool has_offload = savings.offload_layers > 0 && chunk.block_count > 0;
            offloads = offloads || has_offload;
            if (has_offload != (chunk.host_frame_bytes > 0)) {
                equal("host_frame_bytes", chunk.host_frame_bytes, 0);
                fail(program_, "footprint", {.rank_class = c_},
                     "a chunk has no host memory for its offloaded activations");
            }
        }
        equal("activations_arena", memory_.activations_arena, frames);
        equal("offload_window", memory_.offload_window, ranks_.offload_window_bytes);
        if (offloads != (ranks_.offload_window_bytes > 0)) {
            fail(program_, "footprint", {.rank_class = c_},
                 offloads ? "activations are offloaded, but there is no offload window"
                          : "there is an offload window, but no activations are offloaded");
        }
        equal("boundary_bytes", ranks_.boundary_bytes,
              aligned(forms_.hidden_elements() * size_of(plan_.training.precision.activation)));
        const std::int64_t buffers =
            ranks_.input_boundary_count + ranks_.forward_boundary_count + ranks_.backward_boundary_count;
        equal("boundaries_arena", memory_.boundaries_arena, ranks_.boundary_bytes * buffers);
    }

    const Program& program_;
    const Plan& plan_;
    ClassIndex c_;
    const RankClass& ranks_;
    const MemoryFootprint& memory_;
    const ClosedForms& forms_;
    const Sharding& sharding_;
    std::vector<UnitSize> units_;
};

}  // namespace

void check_footprint(const Program& program) {
    const ClosedForms forms(*program.plan);
    for (const ClassIndex c : program.classes.indices()) Footprint(program, c, forms).check();
}

}  // namespace orrery::program::rules
