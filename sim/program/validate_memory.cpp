// Rule "buffers": frames and boundary buffers are taken by one micro-batch at a time and given back. Rule "footprint":
// what the class says about its memory adds up.
#include <algorithm>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kBuffers = "buffers";

bool may_take(ActionKind kind, Region region) {
    switch (region) {
        case Region::input_boundary:
            return kind == ActionKind::recv_forward;
        case Region::activation:
        case Region::forward_boundary:
            return kind == ActionKind::forward;
        case Region::backward_boundary:
            return kind == ActionKind::recv_backward || kind == ActionKind::backward;
        case Region::parameter:
        case Region::gradient:
        case Region::optimizer:
        case Region::transient:
        case Region::scalars:
            break;
    }
    return false;
}

/// The action that gives the buffer back: what its micro-batch last needs it for.
ActionKind last_user(const RankClass& ranks, Region region) {
    if (region == Region::forward_boundary) return ActionKind::send_forward;
    if (region == Region::backward_boundary && ranks.pp_index > 0) return ActionKind::send_backward;
    return ActionKind::backward;
}

void check_pool(const Program& program, std::int32_t c, Region region, std::int32_t count) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::vector<std::int32_t> holder(static_cast<std::size_t>(count), -1);  // micro-batch, -1: free
    std::vector<bool> used(static_cast<std::size_t>(count));
    std::vector<std::int32_t> held(static_cast<std::size_t>(program.plan->micro_batches()), -1);  // by micro-batch
    const std::string name(name_of(region));
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        const Action& action = ranks.actions[a];
        const std::int32_t index = instance_of(action, region);
        if (index < 0) continue;
        const Site site{.rank_class = c, .action = static_cast<std::int32_t>(a)};
        if (action.micro_batch < 0) fail(program, kBuffers, site, "it binds a " + name + " for no micro-batch");
        std::int32_t& of_holder = holder[static_cast<std::size_t>(index)];
        std::int32_t& of_batch = held[static_cast<std::size_t>(action.micro_batch)];
        if (of_batch < 0) {
            if (of_holder >= 0) {
                fail(program, kBuffers, site,
                     "it takes " + name + " " + std::to_string(index) + ", which micro-batch " +
                         std::to_string(of_holder) + " holds");
            }
            if (!may_take(action.kind, region)) {
                fail(program, kBuffers, site,
                     "it binds " + name + " " + std::to_string(index) +
                         ", which its micro-batch has not taken or has given back");
            }
            of_holder = action.micro_batch;
            of_batch = index;
            used[static_cast<std::size_t>(index)] = true;
        }
        if (of_batch != index) {
            fail(program, kBuffers, site,
                 "it binds " + name + " " + std::to_string(index) + "; its micro-batch holds " +
                     std::to_string(of_batch));
        }
        if (action.kind == last_user(ranks, region)) {
            of_holder = -1;
            of_batch = -1;
        }
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) fail(program, kBuffers, {.rank_class = c}, "nobody uses " + name + " " + std::to_string(i));
        if (holder[i] >= 0) {
            fail(program, kBuffers, {.rank_class = c},
                 name + " " + std::to_string(i) + " is never given back by " + "micro-batch " +
                     std::to_string(holder[i]));
        }
    }
}

void check_equal(const Program& program, std::int32_t c, const std::string& name, std::int64_t found,
                 std::int64_t expected) {
    if (found == expected) return;
    fail(program, "footprint", {.rank_class = c},
         name + " is " + std::to_string(found) + ", not " + std::to_string(expected));
}

void check_at_most(const Program& program, std::int32_t c, const std::string& name, std::int64_t found,
                   std::int64_t most) {
    if (found >= 0 && found <= most) return;
    fail(program, "footprint", {.rank_class = c},
         name + " is " + std::to_string(found) + ", outside 0 to " + std::to_string(most));
}

void check_transients(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    std::int64_t largest = 0;
    for (const auto& list : ranks.segment_lists) {
        for (const Segment& segment : list) {
            const Body& body = program.bodies[static_cast<std::size_t>(segment.body)];
            largest = std::max(largest, body.transient_bytes);
            const std::string name = "body " + std::to_string(segment.body) + ": ";
            check_at_most(program, c, name + "transient_live_peak", body.transient_live_peak, body.transient_bytes);
            for (const Instruction& instruction : body.instructions) {
                for (const Access& access : accesses_of(body, instruction)) {
                    const Slot& slot = body.slots[static_cast<std::size_t>(access.slot)];
                    if (slot.space != Space::transient) continue;
                    check_at_most(program, c, name + "the end of the transient '" + slot.decl.name + "'",
                                  slot.offset + slot.bytes, body.transient_bytes);
                }
            }
        }
    }
    check_equal(program, c, "transient_bytes", ranks.transient_bytes, largest);
}

}  // namespace

void check_buffers(const Program& program) {
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const auto c = static_cast<std::int32_t>(i);
        check_pool(program, c, Region::activation, program.classes[i].frame_count);
        check_pool(program, c, Region::input_boundary, program.classes[i].input_boundary_count);
        check_pool(program, c, Region::forward_boundary, program.classes[i].forward_boundary_count);
        check_pool(program, c, Region::backward_boundary, program.classes[i].backward_boundary_count);
    }
}

void check_footprint(const Program& program) {
    const Precision& precision = program.plan->training.precision;
    const std::int64_t state_bytes = 2 * size_of(DType::fp32) + (precision.master_weights ? size_of(DType::fp32) : 0);
    for (std::size_t i = 0; i < program.classes.size(); ++i) {
        const RankClass& ranks = program.classes[i];
        const MemoryFootprint& memory = ranks.memory;
        const auto c = static_cast<std::int32_t>(i);
        check_transients(program, c);
        check_equal(program, c, "parameters", memory.parameters,
                    ranks.parameter_elements * size_of(precision.parameter));
        check_equal(program, c, "gradients", memory.gradients, ranks.parameter_elements * size_of(precision.gradient));
        check_equal(program, c, "optimizer_states", memory.optimizer_states, ranks.parameter_elements * state_bytes);
        check_equal(program, c, "activations_arena", memory.activations_arena, ranks.frame_count * ranks.frame_bytes);
        check_equal(program, c, "boundaries_arena", memory.boundaries_arena,
                    ranks.boundary_bytes *
                        (ranks.input_boundary_count + ranks.forward_boundary_count + ranks.backward_boundary_count));
        check_equal(program, c, "transients_arena", memory.transients_arena, ranks.transient_bytes);
        check_equal(program, c, "arena", memory.arena,
                    memory.parameters + memory.gradients + memory.optimizer_states + memory.activations_arena +
                        memory.boundaries_arena + memory.transients_arena);
        check_at_most(program, c, "activations_live_peak", memory.activations_live_peak, memory.activations_arena);
        check_at_most(program, c, "transients_live_peak", memory.transients_live_peak, memory.transients_arena);
        check_at_most(program, c, "live_peak", memory.live_peak, memory.arena);
    }
}

}  // namespace orrery::program::rules
