// What happened in a run, whoever ran it: the simulator predicts one, the executor measures one, and every report can
// lay one over the other because instructions are joined by key.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

enum class Maker : std::uint8_t { simulated, executed };

/// One instruction of one rank in the recorded step. Times are picoseconds from the step's start.
struct Span {
    std::int32_t action = 0;       // index in the class's actions
    std::int32_t segment = 0;      // index in the action's segment list
    std::int32_t instruction = 0;  // index in the body
    std::int64_t ready_ps = 0;     // reached the head of its stream with its dependencies met
    std::int64_t begin_ps = 0;     // all participants there (communication); equal to ready otherwise
    std::int64_t end_ps = 0;
};

struct StreamTime {
    std::int64_t busy_ps = 0;     // sum of end - ready
    std::int64_t exposed_ps = 0;  // part of it during which the compute stream was idle
};

/// One rank (executed, or simulated in full), or one representative of `multiplicity` equal ranks.
struct RankRecord {
    std::int64_t rank = 0;
    std::int64_t multiplicity = 1;
    std::int32_t rank_class = 0;
    std::array<StreamTime, kStreamCount> streams{};
    std::int64_t memory_peak_bytes = 0;       // simulated: context + arenas as allocated; executed: peak resident set
    std::int64_t memory_live_peak_bytes = 0;  // simulated: context + live peak of the walk; executed: same as above
    std::array<std::int64_t, kStreamCount> bytes_sent{};  // per step; executed: counted where handed to the transport
    std::vector<Span> spans;                              // empty unless asked for
};

struct RunRecord {
    Maker maker = Maker::simulated;
    std::string plan_name;
    std::vector<double> step_seconds;  // simulated: one, the steady period; executed: each measured step
    double step_time_s = 0;            // simulated: the period; executed: median
    double bubble_fraction = 0;        // 1 - compute busy / (step * ranks), communication exposure included
    std::vector<double> losses;        // executed only, one a step
    std::vector<RankRecord> ranks;
    std::map<std::string, std::string> environment;  // volatile facts: date, host, versions; never compared
    std::vector<std::string> notes;                  // fallbacks taken by the cost model, warnings
};

/// "layers.3/backward/c0/mb2/attention.qkv": survives re-lowering, joins records of different plans and makers.
[[nodiscard]] std::string key_of(const Program& program, std::int32_t rank_class, const Span& span);

[[nodiscard]] std::string to_json_text(const RunRecord& record, const Program& program);
/// Throws InputError naming `file` when it is not such a record, or is one of another plan.
[[nodiscard]] RunRecord run_record_from_json_text(const std::string& text, const std::string& file,
                                                  const Program& program);

}  // namespace orrery::program
