// A hand-made Program with two stages, and records of it, small enough to check by hand.
//
// Each stage has one forward action: a compute instruction and a tensor-parallel all-reduce; stage 0 then sends. tp 2,
// pp 2: ranks 0 and 1 are stage 0, ranks 2 and 3 stage 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports::sample {

inline program::Plan plan() {
    program::Plan plan;
    plan.name = "sample";
    plan.model.name = "tiny";
    plan.model.family = "llama";
    plan.model.layers = 2;
    plan.model.hidden = 8;
    plan.model.heads = 2;
    plan.model.kv_heads = 2;
    plan.model.head_dim = 4;
    plan.model.ffn_hidden = 16;
    plan.model.vocab = 32;
    plan.model.max_positions = 16;
    plan.cluster.name = "lab";
    plan.cluster.device.name = "card";
    plan.cluster.device.peaks = {{DType::fp32, {2.0, topologies::Provenance::datasheet, "made up"}}};
    plan.cluster.devices_per_node = 4;
    plan.parallelism.tp = 2;
    plan.parallelism.pp = 2;
    plan.parallelism.stage_layers = {1, 1};
    plan.training.sequence_length = 16;
    plan.training.global_batch_size = 4;
    return plan;
}

inline program::Instruction compute(const std::string& name) {
    program::Instruction instruction;
    instruction.name = name;
    instruction.stream = program::Stream::compute;
    return instruction;
}

inline program::Instruction communication(const std::string& name, program::Stream stream, program::CommKind kind) {
    program::Instruction instruction;
    instruction.name = name;
    instruction.stream = stream;
    instruction.is_communication = true;
    instruction.communication.kind = kind;
    return instruction;
}

inline program::Program program(const program::Plan& plan = sample::plan()) {
    program::Program program;
    program.plan = std::make_shared<const program::Plan>(plan);
    program.mesh = std::make_shared<const program::Mesh>(plan);
    program::Body block;
    block.phase = program::Phase::forward;
    block.layer_kind = models::LayerKind::block;
    block.instructions = {compute("mlp"),
                          communication("tp.reduce", program::Stream::tp, program::CommKind::all_reduce)};
    program::Body send;
    send.phase = program::Phase::transfer;
    send.instructions = {communication("send", program::Stream::pp_send_forward, program::CommKind::send)};
    program::count_streams(block);
    program::count_streams(send);
    program.bodies = {block, send};
    for (std::int32_t stage = 0; stage < 2; ++stage) {
        program::RankClass rank_class;
        rank_class.name = "stage " + std::to_string(stage);
        rank_class.pp_index = stage;
        rank_class.chunks = {{.virtual_stage = stage, .first_block = stage, .block_count = 1}};
        program::Segment segment;
        segment.layer = stage;
        program::Segment transfer;
        transfer.body = 1;
        rank_class.segment_lists = {{segment}, {transfer}};
        program::Action forward;
        forward.kind = program::ActionKind::forward;
        forward.micro_batch = 0;
        program::Action sending = forward;
        sending.kind = program::ActionKind::send_forward;
        sending.segments = 1;
        rank_class.actions = {forward};
        if (stage == 0) rank_class.actions.push_back(sending);
        rank_class.memory.parameters = 3 << 20;
        rank_class.memory.arena = 5 << 20;
        rank_class.memory.live_peak = 4 << 20;
        rank_class.memory.peak_action = 0;
        program.classes.push_back(rank_class);
    }
    return program;
}

inline constexpr std::int64_t kMicrosecond = 1'000'000;  // picoseconds

/// One rank with its spans: compute [0, compute_us], then an all-reduce of reduce_us including wait_us of waiting, and
/// on stage 0 a send of 1 us.
inline program::RankRecord rank(std::int64_t number, std::int64_t multiplicity, std::int64_t compute_us,
                                std::int64_t reduce_us, std::int64_t wait_us) {
    program::RankRecord record;
    record.rank = number;
    record.multiplicity = multiplicity;
    record.rank_class = program::ClassIndex::of(number / 2);
    const std::int64_t middle = compute_us * kMicrosecond;
    const std::int64_t end = middle + reduce_us * kMicrosecond;
    record.spans = {{0, 0, 0, 0, 0, middle}, {0, 0, 1, middle, middle + wait_us * kMicrosecond, end}};
    if (number < 2) record.spans.push_back({1, 0, 0, end, end, end + kMicrosecond});
    const auto set = [&](program::Stream stream, std::int64_t busy, std::int64_t bytes) {
        record.streams[stream] = {busy, stream == program::Stream::compute ? 0 : busy};
        record.bytes_sent[stream] = bytes;
    };
    set(program::Stream::compute, middle, 0);
    set(program::Stream::tp, end - middle, 1000);
    if (number < 2) set(program::Stream::pp_send_forward, kMicrosecond, 64);
    record.memory_peak_bytes = (6 + number / 2) << 20;
    record.memory_live_peak_bytes = record.memory_peak_bytes;
    return record;
}

/// One representative per stage: compute 10 us, all-reduce 4 us, step 20 us.
inline program::RunRecord predicted() {
    program::RunRecord record;
    record.maker = program::Maker::simulated;
    record.plan_name = "sample";
    record.step_seconds = {20e-6};
    record.step_time_s = 20e-6;
    record.idle_fraction = 0.25;
    record.ranks = {rank(0, 2, 10, 4, 0), rank(2, 2, 10, 4, 0)};
    record.notes = {"no efficiency was measured for mlp"};
    return record;
}

/// All four ranks. Stage 0: compute 8 and 12 us, all-reduce 5 us (2 us waiting); stage 1: 20 us and 4 us; step 25 us.
inline program::RunRecord measured() {
    program::RunRecord record;
    record.maker = program::Maker::executed;
    record.plan_name = "sample";
    record.step_seconds = {24e-6, 25e-6, 30e-6};
    record.step_time_s = 25e-6;
    record.idle_fraction = 0.5;
    record.ranks = {rank(0, 1, 8, 5, 2), rank(1, 1, 12, 5, 2), rank(2, 1, 20, 4, 0), rank(3, 1, 20, 4, 0)};
    return record;
}

}  // namespace orrery::reports::sample
