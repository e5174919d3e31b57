// The record of a run, which the simulator predicts and the executor measures. Instructions have keys, by which reports
// compare records.
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
    ActionIndex action = 0;
    SegmentIndex segment = 0;
    InstructionIndex instruction = 0;
    std::int64_t ready_ps = 0;  // at the head of its stream, with its dependencies completed
    std::int64_t begin_ps = 0;  // communication: all participants are ready; otherwise equal to ready_ps
    std::int64_t end_ps = 0;
};

/// The spread of one instruction's times over the measured steps.
struct SpanSpread {
    std::int64_t p5_ps = 0;  // of the duration from begin to end, as are the next two
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

/// A part of a rank's memory: one of memory_parts(), or "runtime", the memory that the rank needs beside its tensors.
struct MemoryPart {
    std::string part;
    std::int64_t bytes = 0;
};

struct StreamTime {
    std::int64_t busy_ps = 0;     // sum of end - ready
    std::int64_t exposed_ps = 0;  // part of it during which the compute stream was idle
};

/// One rank, or the representative of `multiplicity` equal ranks (simulated, unless in full).
struct RankRecord {
    std::int64_t rank = 0;
    std::int64_t multiplicity = 1;
    ClassIndex rank_class = 0;
    PerStream<StreamTime> streams{};
    std::int64_t memory_peak_bytes = 0;       // simulated: in use on the device; executed: peak resident set
    std::int64_t memory_live_peak_bytes = 0;  // simulated: context + live peak; executed: as memory_peak_bytes
    PerStream<std::int64_t> bytes_sent{};     // per step; executed: as handed to the transport
    /// The parts of bytes_sent by kind, in order of stream and kind. Empty if the backend does not distinguish kinds.
    std::vector<KindBytes> collectives;
    /// Simulated: the parts of the layout, and as runtime the context, communicators, workspaces and libraries.
    /// Executed: the resident parts, and the rest of the peak as runtime.
    std::vector<MemoryPart> memory;
    DeviceMemory device_memory;  // simulated on a GPU; otherwise all 0
    std::vector<Span> spans;     // empty unless requested
    /// Executed: one for each span, in the same order, over the measured steps whose spans were recorded.
    std::vector<SpanSpread> spreads;
};

struct RunRecord {
    Maker maker = Maker::simulated;
    std::string plan_name;
    /// Executed: each measured step. Simulated: the steady period; with several jobs or a fabric that changes during
    /// the run, all steps but the first.
    std::vector<double> step_seconds;
    double step_time_s = 0;     // simulated: the period; executed: median
    double step_time_p5_s = 0;  // percentile() of step_seconds, as is the next
    double step_time_p95_s = 0;
    /// Simulated with derivatives: the 90% interval of the measured step time (rate_spread.h). 0: not known.
    double step_time_low_s = 0, step_time_high_s = 0;
    /// Simulated: the memory that the fullest rank needs on its device, and the memory that it may use. 0: not known.
    std::int64_t memory_needed_bytes = 0, memory_allowed_bytes = 0;
    double idle_fraction = 0;           // 1 - busy time of compute / (step x ranks), exposed communication included
    std::int64_t first_step = 0;        // executed: the step of losses[0]; > 0 if the run resumed from a checkpoint
    std::vector<double> losses;         // executed: one for each step
    std::int64_t checkpoint_bytes = 0;  // executed: size of one checkpoint; 0 if none was written
    std::vector<double> checkpoint_seconds;  // executed: for each one written; not part of step times
    std::vector<RankRecord> ranks;
    std::map<std::string, std::string> environment;  // date, host, versions; never compared
    std::vector<std::string> notes;                  // fallbacks taken by the cost model, warnings
};

/// The key of an instruction, such as "layers.3/backward/c0/mb2/attention.qkv". It is the same in records of other
/// plans and makers.
[[nodiscard]] std::string key_of(const Program& program, ClassIndex rank_class, const Span& span);

using Environment = std::map<std::string, std::string>;
/// The "backend" of a run on emulated GPUs, whose times mean nothing.
inline constexpr const char* kEmulatedGpus = "cuda_emulated";
[[nodiscard]] bool is_emulated(const Environment& environment);
/// Throws InputError naming `file`, which has this environment, if its times mean nothing.
void check_timed(const Environment& environment, const std::string& file);

/// The value below which `share` (0 to 1) of the values lie, by linear interpolation between two of them. There must be
/// at least one value.
[[nodiscard]] double percentile(std::vector<double> values, double share);

/// Exposed communication of a step in seconds, mean over ranks, without transfers between pipeline stages.
[[nodiscard]] double exposed_seconds(const RunRecord& record);
/// The share of a step in which ranks wait for other pipeline stages: the idle time less the exposed communication. 0
/// without a pipeline.
[[nodiscard]] double bubble_fraction(const Plan& plan, double idle_fraction, double exposed_fraction);

/// Fills in the median and the percentiles of the step time from step_seconds, which must not be empty.
void summarise_steps(RunRecord& record);

/// The parts of the footprint by name, without empty ones.
[[nodiscard]] std::vector<MemoryPart> memory_parts(const MemoryFootprint& memory);
inline constexpr const char* kRuntimeMemory = "runtime";

/// The largest file of a record, in bytes. Records of large jobs with every instruction are long.
inline constexpr std::int64_t kLargestRunRecord = std::int64_t{1} << 30;
[[nodiscard]] std::string to_json_text(const RunRecord& record, const Program& program);
/// Throws InputError naming `file` if it is not a run record, or is the record of another plan.
[[nodiscard]] RunRecord run_record_from_json_text(const std::string& text, const std::string& file,
                                                  const Program& program);

}  // namespace orrery::program
