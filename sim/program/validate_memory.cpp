// Rule "footprint": the memory figures of a class agree with the plan, and add up.
#include <algorithm>

#include "sim/program/validate_forms.h"

namespace orrery::program::rules {
namespace {

/// A unit, whose parameters are gathered together and whose gradients are reduced together.
struct UnitSize {
    BucketContents contents;
    std::int64_t elements = 0;      // padded
    std::int64_t staged_bytes = 0;  // of its buckets, in the type of the reduction
};

class Footprint : ClassRule {
  public:
    Footprint(const Program& program, ClassIndex c, const ClosedForms& forms)
        : ClassRule(program, c, "footprint"), forms_(forms) {
        if (sharding_.orders_by_unit) collect_units();
    }

    void check(const TouchedSlots& touched) const {
        check_transients(touched);
        check_parameters();
        check_gradients();
        check_states();
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
    void equal(std::string_view name, std::int64_t found, std::int64_t expected) const {
        if (found != expected) refuse("{} is {}, not {}", name, found, expected);
    }
    void at_most(std::string_view name, std::int64_t found, std::int64_t most) const {
        if (found < 0 || found > most) refuse("{} is {}, outside 0 to {}", name, found, most);
    }

    void check_transients(const TouchedSlots& touched) const {
        std::int64_t largest = 0;
        IndexedVector<BodyId, bool> seen(program_.bodies.size());
        for (const SegmentList& list : ranks_.segment_lists) {
            for (const Segment& segment : list) {
                seen[segment.body] = true;
                largest = std::max(largest, segment.transient_base + program_.bodies[segment.body].transient_bytes);
            }
        }
        for (const BodyId b : seen.indices()) {
            if (!seen[b]) continue;
            const Body& body = program_.bodies[b];
            at_most(text("body {}: transient_live_peak", b), body.transient_live_peak, body.transient_bytes);
            for (const models::SlotIndex index : touched[b]) {
                const Slot& slot = body.slots[index];
                if (slot.space != Space::transient) continue;
                at_most(text("body {}: the end of the transient '{}'", b, slot.decl.name), slot.offset + slot.bytes,
                        body.transient_bytes);
            }
        }
        equal("transient_bytes", ranks_.transient_bytes, largest);
        equal("transients_arena", memory_.transients_arena, ranks_.transient_bytes);
    }

    /// Collects the units from their buckets: each dense bucket may be followed by the bucket of its experts. The root
    /// unit may have further buckets, such as a copy of a tied embedding.
    void collect_units() {
        for (const Bucket& bucket : ranks_.buckets) {
            const BucketContents one = contents_of(plan_, ranks_, bucket);
            const BucketContents last = units_.empty() ? BucketContents{.chunk = -1} : units_.back().contents;
            const bool experts_of_last = bucket.range == ParameterRange::expert &&
                                         last.first_layer <= one.first_layer && one.last_layer <= last.last_layer;
            if (!one.has_one_chunk) refuse("the unit at {} has parameters of several chunks", bucket.offset);
            if (last.chunk != one.chunk || !(experts_of_last || (one.is_root && last.is_root)))
                units_.push_back({.contents = one});
            units_.back().elements += bucket.elements;
            units_.back().staged_bytes += aligned(bucket.elements * size_of(precision_.reduction));
        }
    }
    /// The elements of a buffer with the root unit and `slots` slots for other units.
    [[nodiscard]] std::int64_t window_elements(std::int64_t slots) const {
        std::int64_t root = 0, largest = 0;
        for (const UnitSize& unit : units_) {
            if (unit.contents.is_root) root += unit.elements;
            if (!unit.contents.is_root) largest = std::max(largest, unit.elements);
        }
        return root + slots * largest;
    }
    /// Slots for gathered units, without the root unit: all units if they stay gathered after the forward pass,
    /// otherwise the one in use and the prefetched ones.
    [[nodiscard]] std::int64_t gather_slots() const {
        const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
        const std::int64_t turns = 1 + std::max(choices.forward_prefetch, choices.backward_prefetch);
        IndexedVector<ChunkIndex, std::int64_t> by_chunk(ranks_.chunks.size());
        std::int64_t all = 0, most = 0;
        for (const UnitSize& unit : units_) {
            if (unit.contents.is_root) continue;
            most = std::max(most, ++by_chunk[unit.contents.chunk]);
            ++all;
        }
        return p_.reshard_after_forward ? std::min(most, turns) : all;
    }

    void check_parameters() const {
        // The rule "parameters" checks the number of all elements.
        const std::int64_t buffer =
            sharding_.gathers_units ? window_elements(gather_slots()) : ranks_.parameter_elements;
        const std::int64_t bytes = buffer * size_of(precision_.parameter);
        const std::int64_t shards = shards_on_host_ ? 0 : shard_bytes_;
        equal("weight_copy_bytes", ranks_.weight_copy_bytes, weight_copies());
        equal("parameter_buffer_elements", ranks_.parameter_buffer_elements, buffer);
        equal("gathered", memory_.gathered, sharding_.gathers_units ? bytes : 0);
        equal("parameters", memory_.parameters, (sharding_.gathers_units ? shards : bytes) + ranks_.weight_copy_bytes);
    }

    [[nodiscard]] std::int64_t weight_copies() const {
        std::int64_t sum = 0, largest = 0;
        for (const Chunk& chunk : ranks_.chunks) {
            const std::int64_t experts = forms_.expert_blocks(chunk.first_block, chunk.block_count);
            for (const bool expert : {false, true}) {
                const std::int64_t blocks = expert ? experts : chunk.block_count - experts;
                if (blocks == 0) continue;
                sum += blocks * forms_.weight_copy_bytes(expert);
                largest = std::max(largest, forms_.weight_copy_bytes(expert));
            }
        }
        return sharding_.gathers_units ? largest : sum;
    }

    void check_gradients() const {
        // One slot is enough if a unit is reduced from a staging buffer while the next one is computed; otherwise two
        // slots alternate.
        const std::int64_t turns = sharding_.staged ? 1 : 2;
        const std::int64_t buffer = sharding_.reduces_units ? window_elements(turns) : ranks_.parameter_elements;
        const std::int64_t shards = sharding_.reduces_units ? ranks_.shard_elements : 0;
        equal("gradient_buffer_elements", ranks_.gradient_buffer_elements, buffer);
        equal("gradients", memory_.gradients,
              buffer * size_of(sharding_.gradient_dtype) + shards * size_of(precision_.gradient));
        if (!is_replicated(plan_)) equal("reductions", memory_.reductions, staging());
        equal("reduction_bytes", ranks_.reduction_bytes, memory_.reductions);
    }

    /// Staging buffers: one for the largest unit, or two (one if there is only one bucket) for the largest bucket.
    [[nodiscard]] std::int64_t staging() const {
        if (!sharding_.staged) return 0;
        std::int64_t largest = 0, count = 0;
        for (const UnitSize& unit : units_) largest = std::max(largest, unit.staged_bytes);
        if (sharding_.orders_by_unit) return largest;
        for (const Bucket& bucket : ranks_.buckets) {
            if (!sharding_.reduces(bucket.range)) continue;
            largest = std::max(largest, aligned(bucket.elements * size_of(precision_.reduction)));
            ++count;
        }
        return largest * std::min<std::int64_t>(count, 2);
    }

    void check_states() const {
        std::int64_t updated = sharding_.shards_states ? ranks_.shard_elements : ranks_.parameter_elements;
        if (is_replicated(plan_) && c_ > 0) updated = 0;
        const bool has_master = precision_.master_weights && !fp32_shards_;
        const std::int64_t moments = plan_.training.optimizer.kind == OptimizerKind::sgd_momentum ? 1 : 2;
        const std::int64_t states =
            updated * (moments * size_of(precision_.moments) + (has_master ? size_of(DType::fp32) : 0));
        equal("optimizer_elements", ranks_.optimizer_elements, updated);
        equal("optimizer_states", memory_.optimizer_states, savings_.offload_optimizer ? 0 : states);

        std::int64_t host = shards_on_host_ ? shard_bytes_ : 0;
        if (savings_.offload_optimizer) {
            // Parameters that live on the host are updated in place.
            host += states + updated * (size_of(sharding_.reduced_dtype) +
                                        (shards_on_host_ ? 0 : size_of(precision_.parameter)));
        }
        for (const Chunk& chunk : ranks_.chunks) host += chunk.host_frame_bytes * chunk.frame_count;
        equal("host_bytes", ranks_.host_bytes, host);
        equal("host", memory_.host, host);
    }

    void check_activations() const {
        std::int64_t frames = 0;
        bool offloads = false;
        for (const Chunk& chunk : ranks_.chunks) {
            frames += chunk.frame_bytes * chunk.frame_count;
            const bool offloaded = savings_.offload_layers > 0 && chunk.block_count > 0;
            offloads = offloads || offloaded;
            if (!offloaded) equal("host_frame_bytes", chunk.host_frame_bytes, 0);
            if (offloaded && chunk.host_frame_bytes <= 0) {
                refuse("a chunk has no host memory for its offloaded activations");
            }
        }
        equal("activations_arena", memory_.activations_arena, frames);
        equal("offload_window", memory_.offload_window, ranks_.offload_window_bytes);
        if (offloads && ranks_.offload_window_bytes <= 0) {
            refuse("activations are offloaded, but there is no offload window");
        }
        if (!offloads) equal("offload_window_bytes", ranks_.offload_window_bytes, 0);
        equal("boundary_bytes", ranks_.boundary_bytes,
              aligned(forms_.hidden_elements() * size_of(precision_.activation)));
        const std::int64_t buffers =
            ranks_.input_boundary_count + ranks_.forward_boundary_count + ranks_.backward_boundary_count;
        equal("boundaries_arena", memory_.boundaries_arena, ranks_.boundary_bytes * buffers);
    }

    const ClosedForms& forms_;
    const Sharding& sharding_ = forms_.sharding();
    const MemoryFootprint& memory_ = ranks_.memory;
    const MemorySavings& savings_ = plan_.training.memory;
    const Precision& precision_ = plan_.training.precision;
    const bool fp32_shards_ = sharding_.gathers_units && plan_.implementation.stores_fp32_shards;  // as master weights
    const bool shards_on_host_ = sharding_.gathers_units && savings_.offload_parameters;
    const std::int64_t shard_bytes_ =
        ranks_.shard_elements * size_of(fp32_shards_ ? DType::fp32 : precision_.parameter);
    std::vector<UnitSize> units_;
};

}  // namespace

void check_footprint(const Program& program) {
    const ClosedForms forms(*program.plan);
    const TouchedSlots touched = touched_slots(program);
    for (const ClassIndex c : program.classes.indices()) Footprint(program, c, forms).check(touched);
}

}  // namespace orrery::program::rules
