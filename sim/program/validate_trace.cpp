// What the rules share beside the traces: classes, groups, and what the plan says of its pipeline.
#include <algorithm>

#include "core/error.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

std::vector<Trace> traces_of(const Program& program) {
    std::vector<Trace> traces;
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
        traces.push_back(trace_of(program, static_cast<std::int32_t>(c)));
    }
    return traces;
}

bool is_replicated(const Program& program) {
    return program.plan->parallelism.data_parallel == DataParallel::dp;
}

std::int64_t representative(const Program& program, ClassIndex rank_class) {
    if (is_replicated(program)) return rank_class;
    return program.mesh->rank_at({.pp = rank_class});
}

std::vector<std::int32_t> classes_of_group(const Program& program, GroupAxis axis, ClassIndex rank_class) {
    const Parallelism& p = program.plan->parallelism;
    const auto count = static_cast<std::int32_t>(program.classes.size());
    const auto all = [&] {
        std::vector<std::int32_t> classes(static_cast<std::size_t>(count));
        for (std::int32_t c = 0; c < count; ++c) classes[c] = c;
        return classes;
    };
    const bool spans_stages = axis == GroupAxis::world || axis == GroupAxis::model || axis == GroupAxis::pipeline;
    if (spans_stages || is_replicated(program)) return all();
    // Groups of gradients reach into a second stage only where that one holds the same layers.
    const std::int32_t mirror = count - 1 - rank_class;
    const bool gradients = axis == GroupAxis::dp || axis == GroupAxis::edp;
    if (gradients && p.model_copies() > 1 && mirror != rank_class) {
        return {std::min(rank_class, mirror), std::max(rank_class, mirror)};
    }
    if (axis != GroupAxis::embedding) return {rank_class};
    std::vector<std::int32_t> classes;
    for (const std::int64_t member : program.group_of(axis, representative(program, rank_class))) {
        classes.push_back(program.class_of(member));
    }
    std::sort(classes.begin(), classes.end());
    return classes;
}

Stream opposite(Stream stream) {
    switch (stream) {
        case Stream::pp_recv_forward:
            return Stream::pp_send_forward;
        case Stream::pp_send_forward:
            return Stream::pp_recv_forward;
        case Stream::pp_recv_backward:
            return Stream::pp_send_backward;
        case Stream::pp_send_backward:
            return Stream::pp_recv_backward;
        case Stream::pp_up_recv_forward:
            return Stream::pp_up_send_forward;
        case Stream::pp_up_send_forward:
            return Stream::pp_up_recv_forward;
        case Stream::pp_up_recv_backward:
            return Stream::pp_up_send_backward;
        case Stream::pp_up_send_backward:
            return Stream::pp_up_recv_backward;
        case Stream::compute:
        case Stream::host:
        case Stream::copy_out:
        case Stream::copy_in:
        case Stream::side:
        case Stream::tp:
        case Stream::cp:
        case Stream::ep:
        case Stream::dp:
        case Stream::dp_gather:
        case Stream::dp_replicate:
            break;
    }
    throw BugError("the stream " + std::string(program::name_of(stream)) + " is not one of the pipeline's");
}

ScheduleShape shape_of(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return {.schedule = p.schedule, .ranks = p.pp, .chunks = p.chunks, .micro_batches = plan.micro_batches()};
}

MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk) {
    const auto all = static_cast<std::int32_t>(plan.micro_batches());
    if (plan.parallelism.model_copies() == 1) return {0, all};
    return chunk.direction == 0 ? MicroBatches{0, all / 2} : MicroBatches{all / 2, all};
}

}  // namespace orrery::program::rules
