#include "exec/execute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "exec/clock.h"
#include "exec/early_stop.h"
#include "exec/environment.h"
#include "exec/faults/held_signals.h"
#include "exec/gradients.h"
#include "exec/interpreter.h"
#include "exec/make_backend.h"
#include "exec/paced/backend.h"
#include "exec/spread.h"
#include "exec/training_progress.h"
#include "exec/transport/heartbeat.h"
#include "exec/weights.h"

namespace orrery::exec {
namespace {

using program::PerStream;
using program::RankRecord;
using program::Span;
using program::Stream;

/// Packs plain numbers into a byte string, for exchanges between the ranks of a job, whose machines share one number
/// format.
class Packer {
  public:
    template <typename T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    /// A string, or a vector of plain values.
    template <typename List>
    void put_all(const List& list) {
        put(static_cast<std::int64_t>(list.size()));
        for (const auto& value : list) put(value);
    }
    [[nodiscard]] std::string take() { return std::move(bytes_); }

  private:
    std::string bytes_;
};
class Unpacker {
  public:
    explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
    template <typename T>
    [[nodiscard]] T get() {
        ORRERY_CHECK(at_ + sizeof(T) <= bytes_.size(), "a rank's record is too short");
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    template <typename List>
    void get_all(List& list) {
        list.resize(static_cast<std::size_t>(get<std::int64_t>()));
        for (auto& value : list) value = get<typename List::value_type>();
    }

  private:
    const std::string& bytes_;
    std::size_t at_ = 0;
};

/// Busy time of each stream, and the exposed part of it, during which the compute stream is idle.
PerStream<program::StreamTime> stream_times(const program::Program& program, program::ClassIndex rank_class,
                                            const std::vector<Span>& spans) {
    const program::RankClass& its_class = program.classes[rank_class];
    const auto stream_of = [&](const Span& span) {
        const program::Segment& segment =
            its_class.segment_lists[its_class.actions[span.action].segments][span.segment];
        return program.bodies[segment.body].instructions[span.instruction].stream;
    };
    std::vector<std::pair<std::int64_t, std::int64_t>> computing;  // ascending: the compute stream is in order
    PerStream<program::StreamTime> result{};
    for (const Span& span : spans) {
        const Stream stream = stream_of(span);
        result[stream].busy_ps += span.end_ps - span.ready_ps;
        if (stream == Stream::compute) computing.emplace_back(span.begin_ps, span.end_ps);
    }
    for (const Span& span : spans) {
        const Stream stream = stream_of(span);
        if (stream == Stream::compute) continue;
        std::int64_t covered = 0;
        auto entry = std::lower_bound(computing.begin(), computing.end(), span.ready_ps,
                                      [](const auto& interval, std::int64_t time) { return interval.second <= time; });
        for (; entry != computing.end() && entry->first < span.end_ps; ++entry) {
            covered +=
                std::max<std::int64_t>(0, std::min(entry->second, span.end_ps) - std::max(entry->first, span.ready_ps));
        }
        result[stream].exposed_ps += span.end_ps - span.ready_ps - covered;
    }
    return result;
}

std::string pack_times(const RunTimes& times) {
    Packer packer;
    for (const StepTimes& step : times.steps) {
        packer.put(step.begin_ns);
        packer.put(step.end_ns);
        packer.put(std::max(step.end_ns, step.paused_until_ns));
        packer.put(step.loss_sum);
    }
    return packer.take();
}

std::string pack_record(const RankRecord& record) {
    Packer packer;
    for (const program::StreamTime& stream : record.streams) packer.put(stream);
    packer.put(record.memory_peak_bytes);
    packer.put(record.bytes_sent);
    packer.put_all(record.collectives);
    packer.put(static_cast<std::int64_t>(record.memory.size()));
    for (const program::MemoryPart& part : record.memory) {
        packer.put_all(part.part);
        packer.put(part.bytes);
    }
    packer.put_all(record.spans);
    packer.put_all(record.spreads);
    return packer.take();
}

RankRecord unpack_record(const std::string& bytes) {
    Unpacker unpacker(bytes);
    RankRecord record;
    for (program::StreamTime& stream : record.streams) stream = unpacker.get<program::StreamTime>();
    record.memory_peak_bytes = unpacker.get<std::int64_t>();
    record.memory_live_peak_bytes = record.memory_peak_bytes;
    record.bytes_sent = unpacker.get<decltype(record.bytes_sent)>();
    unpacker.get_all(record.collectives);
    record.memory.resize(static_cast<std::size_t>(unpacker.get<std::int64_t>()));
    for (program::MemoryPart& part : record.memory) {
        unpacker.get_all(part.part);
        part.bytes = unpacker.get<std::int64_t>();
    }
    unpacker.get_all(record.spans);
    unpacker.get_all(record.spreads);
    return record;
}

/// The step whose spans are recorded, and when the first rank began it.
struct ChosenStep {
    std::int64_t step = 0;
    std::int64_t begin_ns = 0;
};

/// Fills in losses and step times. Of the measured steps that have spans, chooses the one nearest to the median time.
ChosenStep merge_times(const program::Program& program, const std::vector<std::string>& packed, bool has_losses,
                       std::size_t steps, std::size_t warm_up, program::RunRecord& record) {
    std::vector<std::int64_t> end(steps, 0), continued(steps, 0);
    std::vector<double> loss(steps, 0.0);
    std::vector<std::int64_t> begin(steps, std::numeric_limits<std::int64_t>::max());
    for (std::size_t rank = 0; rank < packed.size(); ++rank) {
        Unpacker unpacker(packed[rank]);
        const bool has_loss = speaks_for_loss(program, static_cast<std::int64_t>(rank));
        for (std::size_t step = 0; step < steps; ++step) {
            begin[step] = std::min(begin[step], unpacker.get<std::int64_t>());
            end[step] = std::max(end[step], unpacker.get<std::int64_t>());
            continued[step] = std::max(continued[step], unpacker.get<std::int64_t>());
            const auto sum = unpacker.get<double>();
            if (has_loss) loss[step] += sum;
        }
    }
    for (std::size_t step = 0; step < steps; ++step) {
        const double mean = mean_loss(program, loss[step]);
        if (!std::isfinite(mean)) {
            throw JobError(record.plan_name + ": the loss of step " +
                           std::to_string(record.first_step + static_cast<std::int64_t>(step)) + " is not finite");
        }
        if (has_losses) record.losses.push_back(mean);
        if (step < warm_up) continue;
        const std::int64_t from = step == 0 ? begin[0] : continued[step - 1];
        record.step_seconds.push_back(static_cast<double>(end[step] - from) * 1e-9);
    }
    program::summarise_steps(record);
    const auto measured = static_cast<std::int64_t>(record.step_seconds.size());
    std::int64_t nearest = std::max<std::int64_t>(0, measured - kStepsWithSpans);
    const auto distance = [&](std::int64_t i) {
        return std::abs(record.step_seconds[static_cast<std::size_t>(i)] - record.step_time_s);
    };
    for (std::int64_t i = nearest; i < measured; ++i) {
        if (distance(i) < distance(nearest)) nearest = i;
    }
    const std::int64_t chosen = static_cast<std::int64_t>(warm_up) + nearest;
    return {chosen, begin[static_cast<std::size_t>(chosen)]};
}

/// Resident memory of each part of the arena. The rest of the peak is attributed to the runtime.
std::vector<program::MemoryPart> measured_memory(const Arena& arena, const Backend& backend, std::int64_t peak_bytes) {
    std::vector<program::MemoryPart> parts;
    std::int64_t rest = peak_bytes;
    for (const Arena::Part& part : arena.parts()) {
        parts.push_back({part.name, backend.resident_bytes(part.memory, part.bytes)});
        rest -= parts.back().bytes;
    }
    parts.push_back({program::kRuntimeMemory, std::max<std::int64_t>(0, rest)});
    return parts;
}

/// "ended by SIGTERM after 5 of 12 steps".
std::string describe_early_end(const FlightRecorder& recorder, const ExecuteOptions& options, std::int64_t steps) {
    std::string text = "ended by " + name_of_signal(recorder.stop_signal()) + " after " + std::to_string(steps) +
                       " of " + std::to_string(options.warm_up + options.steps) + " steps";
    if (steps <= options.warm_up) text += "; the only measured step is the last one, a warm-up step";
    if (!options.gradients_path.empty()) text += "; no gradients were written, because the last step did not run";
    return text;
}

std::unique_ptr<Backend> backend_for(const program::Program& program, Transport& transport,
                                     const ExecuteOptions& options) {
    if (options.durations != nullptr) return std::make_unique<PacedBackend>(program, *options.durations, transport);
    return make_backend(program, options.on_cpu, options.deterministic, transport);
}

/// A rank's results, once all ranks have finished training.
struct Trained {
    RunTimes times;
    GlobalTensors gradients;  // of the last step, if they were requested and the training did not end early
    RankRecord memory;        // only its memory fields are filled in
    program::ClassIndex class_index = 0;
    std::map<std::string, std::string> environment;  // of its backend
};

Trained train(const program::Program& program, Transport& transport, const ExecuteOptions& options,
              program::RunRecord& record) {
    const std::int64_t wanted = options.warm_up + options.steps;
    FlightRecorder& recorder = transport.recorder();
    Trained trained;
    const std::unique_ptr<Backend> backend = backend_for(program, transport, options);
    Interpreter interpreter(program, transport.rank(), transport.world_size(), *backend, recorder);
    trained.class_index = interpreter.class_index();
    TrainingCheckpoints checkpoints(interpreter, transport, options.checkpoints);
    interpreter.start_at(checkpoints.first_step());
    EarlyStop early(transport);
    transport.barrier();
    recorder.enter(RankStage::training);
    StepHooks hooks;
    if (!options.gradients_path.empty()) {
        hooks.before_optimizer = [&](std::int64_t step) {
            if (step + 1 == wanted) trained.gradients = gather_gradients(interpreter, transport);
        };
    }
    hooks.after = [&](std::int64_t step) {
        if (options.on_step) options.on_step(recorder);
        if (step + 1 == wanted || !checkpoints.is_due(step)) return false;
        recorder.enter(RankStage::saving);
        checkpoints.write(step + 1);
        recorder.enter(RankStage::training);
        return true;
    };
    hooks.ends_before = [&](std::int64_t step) { return early.ends_before(step); };
    trained.times = interpreter.run(wanted, hooks);
    recorder.enter(RankStage::finishing);
    early.finish();
    checkpoints.write(static_cast<std::int64_t>(trained.times.steps.size()));
    trained.memory.memory_peak_bytes = backend->peak_memory_bytes();
    trained.memory.memory = measured_memory(interpreter.arena(), *backend, trained.memory.memory_peak_bytes);
    trained.environment = backend->describe();
    if (std::string& name = trained.environment["backend"]; name == "cuda" && gpus_are_emulated()) {
        name = program::kEmulatedGpus;
    }
    transport.barrier();
    checkpoints.report(record);
    return trained;
}

}  // namespace

program::RunRecord execute(const program::Program& program, Transport& transport, const ExecuteOptions& options) {
    ORRERY_CHECK(options.steps > 0 && options.warm_up >= 0, "a run has at least one measured step");
    program::RunRecord record{.maker = program::Maker::executed, .plan_name = program.plan->name};
    FlightRecorder& recorder = transport.recorder();
    recorder.follow(program, transport.rank());
    const Heartbeat heartbeat(program, transport, options.timeout_s);
    Trained trained = train(program, transport, options, record);
    RunTimes& times = trained.times;
    RankRecord mine = std::move(trained.memory);
    const auto steps = static_cast<std::int64_t>(times.steps.size());
    const bool is_whole = steps == options.warm_up + options.steps;
    // At least one step is measured, even if only warm-up steps were run.
    const std::int64_t warm_up = std::min(options.warm_up, steps - 1);
    const std::int64_t offset_ns = clock_offset_ns(transport);
    for (StepTimes& step : times.steps) {
        step.begin_ns += offset_ns;
        step.end_ns += offset_ns;
        if (step.paused_until_ns > 0) step.paused_until_ns += offset_ns;
    }

    const std::vector<std::string> all_times = transport.gather(pack_times(times));
    std::string chosen;
    if (transport.rank() == 0) {
        Packer packer;
        packer.put(merge_times(program, all_times, options.durations == nullptr, static_cast<std::size_t>(steps),
                               static_cast<std::size_t>(warm_up), record));
        chosen = packer.take();
    }
    chosen = transport.broadcast(chosen);
    const auto common = Unpacker(chosen).get<ChosenStep>();
    const auto step = static_cast<std::size_t>(common.step);
    // The time origin of all ranks is the moment at which the first rank began the step.
    const std::int64_t late_ps = (times.steps[step].begin_ns - common.begin_ns) * 1000;
    for (Span& span : times.steps[step].spans) {
        span.ready_ps += late_ps;
        span.begin_ps += late_ps;
        span.end_ps += late_ps;
    }
    mine.streams = stream_times(program, trained.class_index, times.steps[step].spans);
    for (const Stream stream : program::kStreams) mine.bytes_sent[stream] = times.bytes_sent[stream] / steps;
    for (const program::KindBytes& one : times.collectives) {
        mine.collectives.push_back({one.stream, one.kind, one.bytes_sent / steps});
    }
    if (options.record_spans) {
        mine.spreads = spreads_of(times.steps, warm_up);
        mine.spans = std::move(times.steps[step].spans);
    }
    const std::vector<std::string> all_records = transport.gather(pack_record(mine));
    if (transport.rank() != 0) return {};

    double computing = 0;
    for (std::size_t rank = 0; rank < all_records.size(); ++rank) {
        RankRecord one = unpack_record(all_records[rank]);
        one.rank = static_cast<std::int64_t>(rank);
        one.rank_class = program.class_of(one.rank);
        computing += static_cast<double>(one.streams[Stream::compute].busy_ps) * 1e-12;
        record.ranks.push_back(std::move(one));
    }
    record.idle_fraction = 1.0 - computing / (record.step_seconds[step - static_cast<std::size_t>(warm_up)] *
                                              static_cast<double>(all_records.size()));
    record.environment = describe_environment(transport);
    record.environment.merge(trained.environment);
    if (!is_whole) record.notes.push_back(describe_early_end(recorder, options, steps));
    if (!options.gradients_path.empty() && is_whole) write_tensors(options.gradients_path, trained.gradients);
    return record;
}

}  // namespace orrery::exec
