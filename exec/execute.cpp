#include "exec/execute.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <memory>

#include "core/error.h"
#include "exec/clock.h"
#include "exec/cpu/backend.h"
#include "exec/gradients.h"
#include "exec/interpreter.h"

namespace orrery::exec {
namespace {

using program::kStreamCount;
using program::RankRecord;
using program::Span;
using program::Stream;

/// Plain numbers in a byte string, for the exchange between ranks of one job on equal machines.
class Packer {
  public:
    template <typename T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
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

  private:
    const std::string& bytes_;
    std::size_t at_ = 0;
};

/// Busy time of each stream, and the part of it during which the compute stream does nothing.
std::array<program::StreamTime, kStreamCount> stream_times(const program::Program& program, std::int32_t rank_class,
                                                           const std::vector<Span>& spans) {
    const program::RankClass& its_class = program.classes[static_cast<std::size_t>(rank_class)];
    const auto stream_of = [&](const Span& span) {
        const auto& action = its_class.actions[static_cast<std::size_t>(span.action)];
        const auto& segment =
            its_class.segment_lists[static_cast<std::size_t>(action.segments)][static_cast<std::size_t>(span.segment)];
        return program.bodies[static_cast<std::size_t>(segment.body)]
            .instructions[static_cast<std::size_t>(span.instruction)]
            .stream;
    };
    std::vector<std::pair<std::int64_t, std::int64_t>> computing;  // ascending, since one thread computes
    std::array<program::StreamTime, kStreamCount> result{};
    for (const Span& span : spans) {
        const Stream stream = stream_of(span);
        result[static_cast<std::size_t>(stream)].busy_ps += span.end_ps - span.ready_ps;
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
        result[static_cast<std::size_t>(stream)].exposed_ps += span.end_ps - span.ready_ps - covered;
    }
    return result;
}

std::string pack_times(const RunTimes& times) {
    Packer packer;
    for (const StepTimes& step : times.steps) {
        packer.put(step.begin_ns);
        packer.put(step.end_ns);
        packer.put(step.loss_sum);
    }
    return packer.take();
}

std::string pack_record(const RankRecord& record) {
    Packer packer;
    for (const program::StreamTime& stream : record.streams) packer.put(stream);
    packer.put(record.memory_peak_bytes);
    packer.put(record.bytes_sent);
    packer.put(static_cast<std::int64_t>(record.spans.size()));
    for (const Span& span : record.spans) packer.put(span);
    return packer.take();
}

RankRecord unpack_record(const std::string& bytes) {
    Unpacker unpacker(bytes);
    RankRecord record;
    for (program::StreamTime& stream : record.streams) stream = unpacker.get<program::StreamTime>();
    record.memory_peak_bytes = unpacker.get<std::int64_t>();
    record.memory_live_peak_bytes = record.memory_peak_bytes;
    record.bytes_sent = unpacker.get<decltype(record.bytes_sent)>();
    record.spans.resize(static_cast<std::size_t>(unpacker.get<std::int64_t>()));
    for (Span& span : record.spans) span = unpacker.get<Span>();
    return record;
}

/// The step whose spans are kept, and when its first rank began it.
struct ChosenStep {
    std::int64_t step = 0;
    std::int64_t begin_ns = 0;
};

/// Fills in losses and step times; chooses the measured step nearest to the median among those with
/// spans.
ChosenStep merge_times(const program::Program& program, const std::vector<std::string>& packed,
                       const ExecuteOptions& options, program::RunRecord& record) {
    const auto steps = static_cast<std::size_t>(options.warm_up + options.steps);
    std::vector<std::int64_t> end(steps, 0);
    std::vector<double> loss(steps, 0.0);
    std::vector<std::int64_t> begin(steps, std::numeric_limits<std::int64_t>::max());
    for (std::size_t rank = 0; rank < packed.size(); ++rank) {
        Unpacker unpacker(packed[rank]);
        const program::MeshCoordinates at = program.coordinates(static_cast<std::int64_t>(rank));
        // Tensor-parallel ranks compute the same loss; each holder of the head has it for its own tokens.
        const auto& chunks =
            program.classes[static_cast<std::size_t>(program.class_of(static_cast<std::int64_t>(rank)))].chunks;
        const bool has_loss = at.tp == 0 && std::any_of(chunks.begin(), chunks.end(),
                                                        [](const program::Chunk& chunk) { return chunk.has_head; });
        for (std::size_t step = 0; step < steps; ++step) {
            begin[step] = std::min(begin[step], unpacker.get<std::int64_t>());
            end[step] = std::max(end[step], unpacker.get<std::int64_t>());
            const auto sum = unpacker.get<double>();
            if (has_loss) loss[step] += sum;
        }
    }
    const program::Training& training = program.plan->training;
    for (std::size_t step = 0; step < steps; ++step) {
        record.losses.push_back(loss[step] /
                                static_cast<double>(training.global_batch_size * training.sequence_length));
        if (!std::isfinite(record.losses.back())) {
            throw JobError(record.plan_name + ": the loss of step " + std::to_string(step) + " is not finite");
        }
        if (step < static_cast<std::size_t>(options.warm_up)) continue;
        record.step_seconds.push_back(static_cast<double>(end[step] - (step == 0 ? begin[0] : end[step - 1])) * 1e-9);
    }
    std::vector<double> sorted = record.step_seconds;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    record.step_time_s = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    const auto measured = static_cast<std::int64_t>(record.step_seconds.size());
    std::int64_t nearest = std::max<std::int64_t>(0, measured - kStepsWithSpans);
    const auto distance = [&](std::int64_t i) {
        return std::abs(record.step_seconds[static_cast<std::size_t>(i)] - record.step_time_s);
    };
    for (std::int64_t i = nearest; i < measured; ++i) {
        if (distance(i) < distance(nearest)) nearest = i;
    }
    const std::int64_t chosen = options.warm_up + nearest;
    return {chosen, begin[static_cast<std::size_t>(chosen)]};
}

std::map<std::string, std::string> describe_environment(const Transport& transport) {
    std::map<std::string, std::string> environment;
    char host[256] = {};
    if (gethostname(host, sizeof(host) - 1) == 0) environment["host"] = host;
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    char date[32] = {};
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
    environment["date"] = date;
    environment["compiler"] = __VERSION__;
    environment["cores"] = std::to_string(transport.cores());
    environment["ranks_on_host"] = std::to_string(transport.ranks_on_host());
    return environment;
}

}  // namespace

program::RunRecord execute(const program::Program& program, Transport& transport, const ExecuteOptions& options) {
    ORRERY_CHECK(options.steps > 0 && options.warm_up >= 0, "a run has at least one measured step");
    const std::int64_t steps = options.warm_up + options.steps;
    RunTimes times;
    GlobalTensors gradients;
    RankRecord mine;
    std::int32_t class_index = 0;
    std::map<std::string, std::string> environment;
    {
        CpuBackend backend(transport);
        Interpreter interpreter(program, transport.rank(), transport.world_size(), backend);
        class_index = interpreter.class_index();
        transport.barrier();
        times = interpreter.run(steps, [&](std::int64_t step) {
            if (step + 1 == steps && !options.gradients_path.empty()) {
                gradients = gather_gradients(interpreter, transport);
            }
        });
        mine.memory_peak_bytes = backend.peak_memory_bytes();
        environment = backend.describe();
        transport.barrier();
    }
    const std::int64_t offset_ns = clock_offset_ns(transport);
    for (StepTimes& step : times.steps) {
        step.begin_ns += offset_ns;
        step.end_ns += offset_ns;
    }

    program::RunRecord record{.maker = program::Maker::executed, .plan_name = program.plan->name};
    const std::vector<std::string> all_times = transport.gather(pack_times(times));
    std::string chosen;
    if (transport.rank() == 0) {
        Packer packer;
        packer.put(merge_times(program, all_times, options, record));
        chosen = packer.take();
    }
    chosen = transport.broadcast(chosen);
    const auto common = Unpacker(chosen).get<ChosenStep>();
    const auto step = static_cast<std::size_t>(common.step);
    // One origin for all ranks: the moment at which the first of them began the step.
    const std::int64_t late_ps = (times.steps[step].begin_ns - common.begin_ns) * 1000;
    for (Span& span : times.steps[step].spans) {
        span.ready_ps += late_ps;
        span.begin_ps += late_ps;
        span.end_ps += late_ps;
    }
    mine.streams = stream_times(program, class_index, times.steps[step].spans);
    for (std::size_t s = 0; s < mine.bytes_sent.size(); ++s) mine.bytes_sent[s] = times.bytes_sent[s] / steps;
    if (options.record_spans) mine.spans = std::move(times.steps[step].spans);
    const std::vector<std::string> all_records = transport.gather(pack_record(mine));
    if (transport.rank() != 0) return {};

    double computing = 0;
    for (std::size_t rank = 0; rank < all_records.size(); ++rank) {
        RankRecord one = unpack_record(all_records[rank]);
        one.rank = static_cast<std::int64_t>(rank);
        one.rank_class = program.class_of(one.rank);
        computing += static_cast<double>(one.streams[static_cast<std::size_t>(Stream::compute)].busy_ps) * 1e-12;
        record.ranks.push_back(std::move(one));
    }
    record.bubble_fraction = 1.0 - computing / (record.step_seconds[step - static_cast<std::size_t>(options.warm_up)] *
                                                static_cast<double>(all_records.size()));
    record.environment = describe_environment(transport);
    record.environment.merge(environment);
    if (!options.gradients_path.empty()) write_tensors(options.gradients_path, gradients);
    return record;
}

}  // namespace orrery::exec
