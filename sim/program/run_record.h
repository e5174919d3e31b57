// What happened in a run, whoever ran it: the simulator predicts one, the executor measures one, and every report can
// lay one over the other because instructions are joined by key.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/program/device_memory.h"
#include "sim/program/program.h"

namespace orrery::program {

enum class Maker : std::uint8_t { simulated, executed };

/// One instruction of one rank in the recorded step. Times are picoseconds from the step's start.
struct Span {
    ActionIndex action = 0;            // index in the class's actions
    SegmentIndex segment = 0;          // index in the action's segment list
    InstructionIndex instruction = 0;  // index in the body
    std::int64_t ready_ps = 0;         // reached the head of its stream with its dependencies met
    std::int64_t begin_ps = 0;         // all participants there (communication); equal to ready otherwise
    std::int64_t end_ps = 0;
};

/// Of one instruction, over the measured steps. Picoseconds.
struct SpanSpread {
    std::int64_t p5_ps = 0;  // of its duration, from begin to end
    std::int64_t median_ps = 0;
    std::int64_t p95_ps = 0;
    std::int64_t median_wait_ps = 0;  // from ready to begin
};

/// Bytes that a rank sent in a step, by stream and kind of communication.
struct KindBytes {
    Stream stream{};
    CommKind kind{};
    std::int64_t bytes_sent = 0;
    bool operator==(const KindBytes&) const = default;
};

/// "parameters", "gradients", … (memory_parts), and what the rank needs beside its tensors, "runtime".
struct MemoryPart {
    std::string part;
    std::int64_t bytes = 0;
};

struct StreamTime {
    std::int64_t busy_ps = 0;     // sum of end - ready
    std::int64_t exposed_ps = 0;  // part of it during which the compute stream was idle
};

/// One rank (executed, or simulated in full), or one representative of `multiplicity` equal ranks.
struct RankRecord {
    std::int64_t rank = 0;
    std::int64_t multiplicity = 1;
    ClassIndex rank_class = 0;
    PerStream<StreamTime> streams{};
    std::int64_t memory_peak_bytes = 0;       // simulated: what the device holds; executed: peak resident set
    std::int64_t memory_live_peak_bytes = 0;  // simulated: context + live peak of the walk; executed: same as above
    PerStream<std::int64_t> bytes_sent{};     // per step; executed: counted where handed to the transport
    /// In order of stream and kind; executed: counted likewise. Empty where the backend does not tell kinds apart.
    std::vector<KindBytes> collectives;
    /// Simulated: as laid out, and the context. Executed: resident as the system counts it, and the rest of the peak.
    std::vector<MemoryPart> memory;
    DeviceMemory device_memory;  // simulated, on a GPU; otherwise nothing
    std::vector<Span> spans;     // empty unless asked for
    std::vector<SpanSpread>
        spreads;  // executed: of the spans, in their order, over the measured steps that kept theirs
};

struct RunRecord {
    Maker maker = Maker::simulated;
    std::string plan_name;
    std::vector<double> step_seconds;  // simulated: one, the steady period; executed: each measured step
    double step_time_s = 0;            // simulated: the period; executed: median
    double step_time_p5_s = 0;         // percentiles of step_seconds, between its values by straight lines
    double step_time_p95_s = 0;
    /// Simulated with derivatives: the step as it is measured lies here in 9 of 10 cases (rate_spread.h). 0: not known.
    double step_time_low_s = 0, step_time_high_s = 0;
    /// Simulated: what the fullest rank has in use of its device, and what it may. 0: not known.
    std::int64_t memory_needed_bytes = 0, memory_allowed_bytes = 0;
    double idle_fraction = 0;           // 1 - compute busy / (step * ranks), communication exposure included
    std::int64_t first_step = 0;        // executed: of the losses; more than 0 where a run goes on from a checkpoint
    std::vector<double> losses;         // executed only, one a step
    std::int64_t checkpoint_bytes = 0;  // executed: of one; 0 where none were written
    std::vector<double> checkpoint_seconds;  // executed: of each that was written; no part of step times
    std::vector<RankRecord> ranks;
    std::map<std::string, std::string> environment;  // volatile facts: date, host, versions; never compared
    std::vector<std::string> notes;                  // fallbacks taken by the cost model, warnings
};

/// "layers.3/backward/c0/mb2/attention.qkv": survives re-lowering, joins records of different plans and makers.
[[nodiscard]] std::string key_of(const Program& program, ClassIndex rank_class, const Span& span);

/// The value below which a share of the values lie, 0 to 1, between two of them by a straight line. At least one value.
[[nodiscard]] double percentile(std::vector<double> values, double share);

/// Seconds of a step in which a rank communicates inside its stage and does not compute; mean over ranks.
[[nodiscard]] double exposed_seconds(const RunRecord& record);
/// Of a step: idle time less exposed communication, in which ranks wait for other pipeline stages. 0 without a
/// pipeline.
[[nodiscard]] double bubble_fraction(const Plan& plan, double idle_fraction, double exposed_fraction);

/// Fills in the median and the percentiles of the step from step_seconds, which has a value.
void summarise_steps(RunRecord& record);

/// What the footprint lays out, by name; parts without bytes are left out.
[[nodiscard]] std::vector<MemoryPart> memory_parts(const MemoryFootprint& memory);
inline constexpr const char* kRuntimeMemory = "runtime";

/// Bytes of a record's file: those of large jobs with every instruction are long.
inline constexpr std::int64_t kLargestRunRecord = std::int64_t{1} << 30;
[[nodiscard]] std::string to_json_text(const RunRecord& record, const Program& program);
/// Throws InputError naming `file` when it is not such a record, or is one of another plan.
[[nodiscard]] RunRecord run_record_from_json_text(const std::string& text, const std::string& file,
                                                  const Program& program);

}  // namespace orrery::program
