// Rule "indices": everything that names something by number names something that exists.
#include <algorithm>
#include <set>
#include <utility>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::string_view kIndices = "indices";

bool inside(std::int64_t index, std::size_t size) {
    return index >= 0 && index < static_cast<std::int64_t>(size);
}

[[noreturn]] void fail_body(const Program& program, std::size_t body, const std::string& what) {
    fail(program, kIndices, {}, "body " + std::to_string(body) + ": " + what);
}

void check_slot_index(const Program& program, std::size_t b, const Instruction& instruction, models::SlotIndex slot) {
    if (slot != models::kNoSlot && !inside(slot, program.bodies[b].slots.size())) {
        fail_body(program, b,
                  "instruction '" + instruction.name + "' names slot " + std::to_string(slot) + " of " +
                      std::to_string(program.bodies[b].slots.size()));
    }
}

void check_communication(const Program& program, std::size_t b, const Instruction& instruction) {
    const Communication& comm = instruction.communication;
    const std::string prefix = "instruction '" + instruction.name + "' ";
    check_slot_index(program, b, instruction, comm.in);
    check_slot_index(program, b, instruction, comm.out);
    const bool reads = comm.kind != CommKind::recv;
    const bool writes = comm.kind != CommKind::send;
    if (reads != (comm.in != models::kNoSlot) || writes != (comm.out != models::kNoSlot)) {
        fail_body(program, b, prefix + "has not the slots that a " + std::string(name_of(comm.kind)) + " needs");
    }
    if (comm.elements <= 0) fail_body(program, b, prefix + "moves " + std::to_string(comm.elements) + " elements");
    const bool point_to_point = !reads || !writes;
    const bool pipeline_axis = comm.axis == GroupAxis::pp_forward || comm.axis == GroupAxis::pp_backward;
    if (point_to_point != is_pipeline(instruction.stream) || point_to_point != pipeline_axis) {
        fail_body(program, b,
                  prefix + "is a " + std::string(name_of(comm.kind)) + " of the axis " +
                      std::string(name_of(comm.axis)) + " on the stream " + std::string(name_of(instruction.stream)));
    }
    // The buffer of the full size is the larger one of a gather or scatter, and either one of the others.
    const auto bytes = [&](models::SlotIndex slot) {
        return slot == models::kNoSlot ? 0 : program.bodies[b].slots[static_cast<std::size_t>(slot)].bytes;
    };
    const std::int64_t held = std::max(bytes(comm.in), bytes(comm.out));
    if (comm.elements > held / size_of(comm.dtype)) {
        fail_body(program, b,
                  prefix + "moves " + std::to_string(comm.elements) + " elements of a slot of " + std::to_string(held) +
                      " bytes");
    }
}

void check_instruction(const Program& program, std::size_t b, std::size_t i) {
    const Body& body = program.bodies[b];
    const Instruction& instruction = body.instructions[i];
    const std::string prefix = "instruction '" + instruction.name + "' ";
    if (!inside(static_cast<std::int64_t>(instruction.stream), kStreamCount)) {
        fail_body(program, b, prefix + "is on no stream");
    }
    for (const InstructionIndex earlier : instruction.after) {
        if (earlier < 0 || earlier >= static_cast<InstructionIndex>(i)) {
            fail_body(program, b,
                      prefix + "(index " + std::to_string(i) + ") comes after instruction " + std::to_string(earlier) +
                          ", which is not an earlier one of the body");
        }
    }
    if (instruction.is_communication != (instruction.stream != Stream::compute)) {
        fail_body(program, b, prefix + "is on the stream " + std::string(name_of(instruction.stream)));
    }
    if (instruction.is_communication) {
        check_communication(program, b, instruction);
        return;
    }
    if (instruction.operator_count < 0 || instruction.first_operator < 0 ||
        !inside(std::int64_t{instruction.first_operator} + instruction.operator_count, body.operators.size() + 1)) {
        fail_body(program, b,
                  prefix + "runs operators [" + std::to_string(instruction.first_operator) + ", +" +
                      std::to_string(instruction.operator_count) + ") of " + std::to_string(body.operators.size()));
    }
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[static_cast<std::size_t>(instruction.first_operator + o)];
        for (const models::SlotIndex slot : op.in) check_slot_index(program, b, instruction, slot);
        for (const models::SlotIndex slot : op.out) check_slot_index(program, b, instruction, slot);
        check_slot_index(program, b, instruction, op.scratch);
    }
}

void check_body(const Program& program, std::size_t b) {
    const Body& body = program.bodies[b];
    std::set<std::string_view> names;
    std::array<std::int32_t, kStreamCount> counts{};
    for (std::size_t s = 0; s < body.slots.size(); ++s) {
        if (body.slots[s].bytes < 0) fail_body(program, b, "slot " + std::to_string(s) + " has a negative size");
    }
    for (std::size_t i = 0; i < body.instructions.size(); ++i) {
        check_instruction(program, b, i);
        ++counts[static_cast<std::size_t>(body.instructions[i].stream)];
        if (!names.insert(body.instructions[i].name).second) {
            fail_body(program, b, "two instructions are named '" + body.instructions[i].name + "'");
        }
    }
    if (counts != body.stream_counts) fail_body(program, b, "stream_counts are not what its streams hold");
}

/// The first touch of each region by a segment list.
struct Use {
    Region region{};
    const Instruction* instruction = nullptr;
    const Slot* slot = nullptr;
};

/// Slots that instructions touch, inside the memory of the class. Checked once per segment of each list.
std::vector<Use> check_ranges(const Program& program, std::int32_t c, std::int32_t list_index) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    const auto& list = ranks.segment_lists[static_cast<std::size_t>(list_index)];
    std::vector<Use> uses;
    std::array<bool, kRegionCount> seen{};
    for (const Segment& segment : list) {
        if (!inside(segment.body, program.bodies.size())) {
            fail(program, kIndices, {.rank_class = c},
                 "segment list " + std::to_string(list_index) + " calls body " + std::to_string(segment.body));
        }
        const Body& body = program.bodies[static_cast<std::size_t>(segment.body)];
        for (const Instruction& instruction : body.instructions) {
            for (const Access& access : accesses_of(body, instruction)) {
                const Slot& slot = body.slots[static_cast<std::size_t>(access.slot)];
                const bool tied = slot.space == Space::tied_parameter || slot.space == Space::tied_gradient;
                const Range range = resolve(ranks, segment, slot);
                if (!std::exchange(seen[static_cast<std::size_t>(range.region)], true)) {
                    uses.push_back({range.region, &instruction, &slot});
                }
                const std::int64_t extent = extent_of(ranks, range.region);
                if (range.begin >= 0 && range.end <= extent && !(tied && ranks.tied_parameter_base < 0)) continue;
                fail(program, kIndices, {.rank_class = c},
                     "segment list " + std::to_string(list_index) + ", layer " + std::to_string(segment.layer) +
                         ", instruction '" + instruction.name + "': slot '" + slot.decl.name + "' lies at [" +
                         std::to_string(range.begin) + ", " + std::to_string(range.end) + ") of the " +
                         std::string(name_of(range.region)) + " (" + std::to_string(extent) + ")");
            }
        }
    }
    return uses;
}

/// The frames and boundaries that an action's slots lie in are bound and exist.
void check_bindings(const Program& program, Site site, const Action& action, const std::vector<Use>& uses) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(site.rank_class)];
    const auto check = [&](Region region, std::int32_t count) {
        const std::int32_t bound = instance_of(action, region);
        if (bound < -1 || bound >= count) {
            fail(program, kIndices, site,
                 std::string(name_of(region)) + " " + std::to_string(bound) + " of " + std::to_string(count));
        }
    };
    check(Region::activation, ranks.frame_count);
    check(Region::input_boundary, ranks.input_boundary_count);
    check(Region::forward_boundary, ranks.forward_boundary_count);
    check(Region::backward_boundary, ranks.backward_boundary_count);
    for (const Use& use : uses) {
        if (instance_of(action, use.region) >= 0) continue;
        fail(program, kIndices, site,
             "instruction '" + use.instruction->name + "' touches slot '" + use.slot->decl.name + "' in the " +
                 std::string(name_of(use.region)) + ", and the action binds none");
    }
}

std::int32_t calls_on(const Program& program, const RankClass& ranks, const Action& action, Stream stream) {
    std::int32_t count = 0;
    for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
        count += program.bodies[static_cast<std::size_t>(segment.body)].stream_counts[static_cast<std::size_t>(stream)];
    }
    return count;
}

void check_waits(const Program& program, Site site, const Action& action) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(site.rank_class)];
    if (action.wait_count < 0 || action.first_wait < 0 ||
        !inside(std::int64_t{action.first_wait} + action.wait_count, ranks.waits.size() + 1)) {
        fail(program, kIndices, site,
             "waits [" + std::to_string(action.first_wait) + ", +" + std::to_string(action.wait_count) + ") of " +
                 std::to_string(ranks.waits.size()));
    }
    for (std::int32_t w = 0; w < action.wait_count; ++w) {
        const Wait& wait = ranks.waits[static_cast<std::size_t>(action.first_wait + w)];
        const std::string text = "it waits for action " + std::to_string(wait.action);
        const bool earlier = wait.steps_back == 1 || (wait.steps_back == 0 && wait.action < site.action);
        if (!inside(wait.action, ranks.actions.size()) || !earlier) {
            fail(program, kIndices, site, text + ", which has not been issued then");
        }
        const Action& other = ranks.actions[static_cast<std::size_t>(wait.action)];
        if (!inside(static_cast<std::int64_t>(wait.stream), kStreamCount) ||
            calls_on(program, ranks, other, wait.stream) == 0) {
            fail(program, kIndices, site,
                 text + ", which puts nothing on the stream " + std::string(name_of(wait.stream)));
        }
    }
}

void check_class(const Program& program, std::int32_t c) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(c)];
    for (const std::int32_t count :
         {ranks.frame_count, ranks.input_boundary_count, ranks.forward_boundary_count, ranks.backward_boundary_count}) {
        if (count >= 0 && count <= program.plan->micro_batches()) continue;
        fail(program, kIndices, {.rank_class = c},
             "a pool of " + std::to_string(count) + " buffers for " + std::to_string(program.plan->micro_batches()) +
                 " micro-batches");
    }
    std::vector<std::vector<Use>> uses;  // by segment list
    for (std::size_t list = 0; list < ranks.segment_lists.size(); ++list) {
        uses.push_back(check_ranges(program, c, static_cast<std::int32_t>(list)));
    }
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        const Action& action = ranks.actions[a];
        const Site site{.rank_class = c, .action = static_cast<std::int32_t>(a)};
        if (!inside(action.segments, ranks.segment_lists.size())) {
            fail(program, kIndices, site, "segment list " + std::to_string(action.segments) + " does not exist");
        }
        check_bindings(program, site, action, uses[static_cast<std::size_t>(action.segments)]);
    }
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        check_waits(program, {.rank_class = c, .action = static_cast<std::int32_t>(a)}, ranks.actions[a]);
    }
}

}  // namespace

void check_indices(const Program& program) {
    if (static_cast<std::int64_t>(program.classes.size()) != program.plan->parallelism.pp) {
        fail(program, kIndices, {},
             std::to_string(program.classes.size()) + " classes for " + std::to_string(program.plan->parallelism.pp) +
                 " pipeline stages");
    }
    for (std::size_t b = 0; b < program.bodies.size(); ++b) check_body(program, b);
    for (std::size_t c = 0; c < program.classes.size(); ++c) check_class(program, static_cast<std::int32_t>(c));
}

}  // namespace orrery::program::rules
