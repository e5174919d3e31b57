// Compares `orrery run --paced` with a simulation of the same durations, for plans with every schedule and every kind
// of data parallelism on up to sixteen ranks. Prints a row per plan. Exit code 1 if an instruction ends at another
// time, or, unless --moments is given, if the measured step time differs by more than 2%.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/file.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/program/issue_order.h"
#include "tests/cli/command.h"
#include "tests/paced/paced_plans.h"
#include "tests/unit/core/test_folder.h"
#include "topologies/cluster.h"

namespace orrery::paced {
namespace {

using program::Program;
using program::RunRecord;
using program::Span;

// Long enough that late wake-ups by the operating system are small relative to the step and to each communication, for
// which the ranks of a group wake each other several times.
constexpr double kShortestStepSeconds = 0.2;
constexpr double kSecondsPerCommunication = 2e-3;
constexpr double kSecondsPerCommunicationAndRank = 5e-4;
constexpr int kWarmUp = 2, kSteps = 4;
constexpr double kAllowed = 0.02;         // relative error of the measured step time
constexpr double kAllowedMoment = 0.001;  // of computed times, relative to the step
constexpr int kAttempts = 3;              // the machine may be busy

struct Outcome {
    double simulated_s = 0, executed_s = 0;
    double worst_moment = 0;  // largest difference of an instruction's end, relative to the step
    std::string failure;

    [[nodiscard]] double error() const { return executed_s / simulated_s - 1; }
    [[nodiscard]] bool holds(bool by_clock) const {
        return failure.empty() && worst_moment <= kAllowedMoment && (!by_clock || std::abs(error()) <= kAllowed);
    }
};

RunRecord predicted(const Program& program) {
    const topologies::Cluster cluster(program.plan->cluster);
    return sim::simulate(program, cluster, sim::RooflineCost(program.plan->cluster), sim::NetworkCommunication(cluster),
                         {.full = true, .record_spans = true});
}

/// Both records contain every rank. A constant shift between them is ignored, because the start of the executed step is
/// not known to the microsecond.
double worst_moment(const RunRecord& replayed, const RunRecord& executed) {
    std::vector<double> late;
    for (std::size_t rank = 0; rank < replayed.ranks.size(); ++rank) {
        std::vector<Span> spans = replayed.ranks[rank].spans;
        const auto place = [](const Span& span) { return std::tuple(span.action, span.segment, span.instruction); };
        std::sort(spans.begin(), spans.end(), [&](const Span& a, const Span& b) { return place(a) < place(b); });
        for (const Span& span : executed.ranks[rank].spans) {
            const auto found = std::lower_bound(spans.begin(), spans.end(), span,
                                                [&](const Span& a, const Span& b) { return place(a) < place(b); });
            late.push_back(static_cast<double>(span.end_ps - found->end_ps));
        }
    }
    std::sort(late.begin(), late.end());
    const double middle = late[late.size() / 2];
    return std::max(late.back() - middle, middle - late.front()) * 1e-12 / replayed.step_time_s;
}

double wanted_step_seconds(const Program& program) {
    std::int64_t most = 0;
    for (const program::ClassIndex c : program.classes.indices()) {
        const program::IssueOrder order(program, c);
        std::int64_t communications = 0;
        for (std::int64_t i = 0; i < order.size(); ++i) communications += order.instruction(i).is_communication ? 1 : 0;
        most = std::max(most, communications);
    }
    const double each =
        std::max(kSecondsPerCommunication, kSecondsPerCommunicationAndRank * static_cast<double>(program.world_size()));
    return std::max(kShortestStepSeconds, each * static_cast<double>(most));
}

Outcome run(const program::Plan& plan) {
    const Program program = program::lower(plan);
    const RunRecord record = predicted(program);
    const double stretch = wanted_step_seconds(program) /
                           sim::replay(program, program::durations_of(program, record, "record")).step_time_s;
    const RunRecord replayed = sim::replay(program, program::durations_of(program, record, "record", stretch),
                                           {.steps = kWarmUp + kSteps, .record_spans = true});
    const TestFolder folder;
    write_file_atomically(folder.file("plan.json"), program::to_json_text(plan));
    write_file_atomically(folder.file("record.json"), program::to_json_text(record, program));
    Outcome outcome{.simulated_s = replayed.step_time_s};
    const test::CommandResult result =
        test::orrery({"run", folder.file("plan.json"), "--quiet", "--paced", folder.file("record.json"), "--stretch",
                      fmt::format("{}", stretch), "--steps", std::to_string(kSteps), "--warm-up",
                      std::to_string(kWarmUp), "--record", folder.file("run.json")});
    if (result.exit_code != 0) {
        outcome.failure = fmt::format("exit code {}, signal {}: {}", result.exit_code, result.signal, result.err);
        return outcome;
    }
    const RunRecord executed =
        program::run_record_from_json_text(read_text_file(folder.file("run.json")), "run.json", program);
    // A step that begins late because the one before it ended late is shorter, so only the mean is exact; `run` reports
    // the median.
    outcome.executed_s = executed.step_time_s;
    outcome.worst_moment = worst_moment(replayed, executed);
    return outcome;
}

int check(const std::vector<program::Plan>& plans, bool by_clock) {
    int wrong = 0;
    fmt::print("{:<56} {:>5} {:>12} {:>12} {:>7}  {}\n", "plan", "ranks", "simulated s", "executed s", "error",
               "worst moment");
    for (const program::Plan& plan : plans) {
        Outcome outcome = run(plan);
        for (int attempt = 1; attempt < kAttempts && !outcome.holds(by_clock) && outcome.failure.empty(); ++attempt) {
            outcome = run(plan);
        }
        wrong += outcome.holds(by_clock) ? 0 : 1;
        fmt::print("{:<56} {:>5} {:>12.4f} {:>12.4f} {:>+6.2f}%  {:.3f}% {}{}\n", plan.name,
                   plan.parallelism.world_size(), outcome.simulated_s, outcome.executed_s, 100 * outcome.error(),
                   100 * outcome.worst_moment, outcome.holds(by_clock) ? "" : "WRONG ", outcome.failure);
        std::fflush(stdout);
    }
    fmt::print("{} of {} plans end each instruction when the simulation does{}\n",
               static_cast<int>(plans.size()) - wrong, plans.size(),
               by_clock ? fmt::format(", with a measured step time within {}%", 100 * kAllowed) : "");
    return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace orrery::paced

/// Arguments: --moments to ignore the measured step time, for tests on a machine that may be busy. Then nothing for all
/// plans, "few" for those of every test run, or substrings of plan names.
int main(int argc, char** argv) {
    using namespace orrery;
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool by_clock = std::erase(words, "--moments") == 0;
    if (words == std::vector<std::string>{"few"}) return paced::check(paced::few_plans(), by_clock);
    std::vector<program::Plan> plans = paced::all_plans();
    std::erase_if(plans, [&](const program::Plan& plan) {
        return !words.empty() && std::none_of(words.begin(), words.end(), [&](const std::string& word) {
            return plan.name.find(word) != std::string::npos;
        });
    });
    return paced::check(plans, by_clock);
}
