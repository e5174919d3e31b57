#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "sim/program/run_record_fields.h"

namespace orrery::program {
namespace {

std::string layer_label(const Program& program, std::int32_t layer) {
    if (layer < 0) return "embedding";
    if (layer >= program.plan->model.layers) return "head";
    return fmt::format("layers.{}", layer);
}

template <typename I, typename T>
const T& element(const IndexedVector<I, T>& list, I index, const char* what) {
    ORRERY_CHECK(index >= 0 && index < list.next_index(), "a span refers to " + std::string(what) + " " +
                                                              std::to_string(index.value()) + " of " +
                                                              std::to_string(list.size()));
    return list[index];
}

bool updates(const Body& body) {
    return std::any_of(body.operators.begin(), body.operators.end(),
                       [](const models::Operator& op) { return op.is_update(); });
}

}  // namespace

const Instruction& instruction_of(const Program& program, ClassIndex rank_class, const Span& span) {
    const RankClass& ranks = element(program.classes, rank_class, "class");
    const Action& action = element(ranks.actions, span.action, "action");
    const Segment& segment =
        element(element(ranks.segment_lists, action.segments, "segment list"), span.segment, "segment");
    return element(element(program.bodies, segment.body, "body").instructions, span.instruction, "instruction");
}

std::string key_of(const Program& program, ClassIndex rank_class, const Span& span) {
    const Instruction& instruction = instruction_of(program, rank_class, span);
    const Action& action = program.classes[rank_class].actions[span.action];
    const Segment& segment = program.classes[rank_class].segment_lists[action.segments][span.segment];
    const Body& body = program.bodies[segment.body];
    if (body.phase == Phase::gradient_sync) return "step/gradient_sync/" + instruction.name;
    const std::string where = fmt::format("c{}/mb{}", action.chunk.value(), action.micro_batch);
    std::string key;
    if (body.phase == Phase::transfer) {
        key = fmt::format("transfer/{}/{}", where, name_of(action.kind));
    } else if (body.phase == Phase::optimizer) {
        key = updates(body) ? "step/optimizer" : "step/gradient_norm";
    } else {
        // The action's kind tells the same work for forward and backward apart. A pass says it by its phase.
        key = fmt::format("{}/{}/", layer_label(program, segment.layer), name_of(body.phase));
        if (!is_pass(body.phase)) key.append(name_of(action.kind)).append("/");
        return key.append(where).append("/").append(instruction.name);
    }
    // The only instruction of a body needs no name of its own.
    return body.instructions.size() > 1 ? key + "/" + instruction.name : key;
}

bool is_emulated(const Environment& environment) {
    const auto backend = environment.find("backend");
    return backend != environment.end() && backend->second == kEmulatedGpus;
}

void check_timed(const Environment& environment, const std::string& file) {
    if (!is_emulated(environment)) return;
    throw InputError(file, "/environment/backend", kEmulatedGpus,
                     "a run whose times mean something; those of emulated GPUs do not");
}

double percentile(std::vector<double> values, double share) {
    ORRERY_CHECK(!values.empty() && share >= 0 && share <= 1,
                 "a percentile needs at least one value, and a share from 0 to 1");
    std::sort(values.begin(), values.end());
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double exposed_seconds(const RunRecord& record) {
    double total = 0, ranks = 0;
    for (const RankRecord& rank : record.ranks) {
        const auto weight = static_cast<double>(rank.multiplicity);
        for (const Stream stream :
             {Stream::tp, Stream::cp, Stream::ep, Stream::dp, Stream::dp_gather, Stream::dp_replicate}) {
            total += weight * to_seconds(Picoseconds(rank.streams[stream].exposed_ps));
        }
        ranks += weight;
    }
    return ranks > 0 ? total / ranks : 0;
}

double bubble_fraction(const Plan& plan, double idle_fraction, double exposed_fraction) {
    return plan.parallelism.pp > 1 ? std::max(0.0, idle_fraction - exposed_fraction) : 0;
}

void summarise_steps(RunRecord& record) {
    record.step_time_s = percentile(record.step_seconds, 0.5);
    record.step_time_p5_s = percentile(record.step_seconds, 0.05);
    record.step_time_p95_s = percentile(record.step_seconds, 0.95);
}

std::vector<MemoryPart> memory_parts(const MemoryFootprint& memory) {
    std::vector<MemoryPart> parts{{"parameters", memory.parameters},         {"gathered", memory.gathered},
                                  {"gradients", memory.gradients},           {"reductions", memory.reductions},
                                  {"optimizer", memory.optimizer_states},    {"offload window", memory.offload_window},
                                  {"activations", memory.activations_arena}, {"transients", memory.transients_arena},
                                  {"boundaries", memory.boundaries_arena},   {"host memory", memory.host},
                                  {"framework", memory.framework},           {"conversions", memory.conversions}};
    std::erase_if(parts, [](const MemoryPart& part) { return part.bytes == 0; });
    return parts;
}

}  // namespace orrery::program
