// The pipeline runs of the Zero Bubble paper (arXiv 2401.10241, Table 4), predicted from its profiled stage times, so
// that only the schedule is tested. The times come from its ZB-2p runs, so for other schedules error and bias are only
// printed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/cost/table_cost.h"
#include "sim/engine/simulate.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using program::ActionKind;
using program::CommKind;
using program::GroupAxis;
using program::Plan;
using program::Schedule;

Picoseconds milliseconds(double value) {
    return picoseconds_from_seconds(value * 1e-3);
}

double step_seconds(Schedule schedule, std::int64_t stages, std::int64_t chunks, std::int64_t micro_batches,
                    const nlohmann::json& times) {
    const double forward = times.at("T_F"), input = times.at("T_B"), weight = times.at("T_W");
    const double transfer = times.at("T_comm");
    Plan plan;
    plan.name = "zero bubble";
    plan.model = models::load_model("tiny-gpt");
    plan.model.layers = stages * chunks;
    plan.cluster = topologies::load_cluster("dgx-a100", std::max<std::int64_t>(stages, 8));
    plan.cluster.device.launch_us.value = 0;
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.pp = stages;
    plan.parallelism.chunks = chunks;
    plan.parallelism.schedule = schedule;
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, stages * chunks);
    if (schedule == Schedule::zb_1p || schedule == Schedule::zb_2p) {
        plan.parallelism.schedule_times = {forward, input, weight, transfer};
    }
    plan.training.sequence_length = 64;
    plan.training.global_batch_size = micro_batches;
    plan.training.precision = program::precision_named("bf16");
    program::check_plan(plan, plan.name);

    const auto share = static_cast<double>(chunks);
    const ActionTableCost cost({{ActionKind::forward, milliseconds(forward / share)},
                                {ActionKind::backward, milliseconds((input + weight) / share)},
                                {ActionKind::backward_input, milliseconds(input / share)},
                                {ActionKind::backward_weight, milliseconds(weight / share)}});
    TableCommunication::Table table;
    for (const GroupAxis axis : {GroupAxis::down_forward, GroupAxis::down_backward}) {
        table[{axis, CommKind::send}] = milliseconds(transfer);
    }
    const topologies::Cluster cluster(plan.cluster);
    return simulate(program::lower(plan), cluster, cost, TableCommunication(table), {.steps = 4}).step_time_s;
}

TEST(ZeroBubbleRows, ThroughputOfTheTwoPScheduleIsWithinThreePercent) {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::filesystem::path file =
        std::filesystem::path(shared != nullptr ? shared : ORRERY_SOURCE_DIR "/../shared") / "validation" /
        "training.json";
    std::ifstream stream(file);
    if (!stream) GTEST_SKIP() << file << " does not exist; set ORRERY_SHARED";
    const std::map<std::string, Schedule> schedules{{"zb-2p", Schedule::zb_2p},
                                                    {"zb-1p", Schedule::zb_1p},
                                                    {"1f1b", Schedule::one_f_one_b},
                                                    {"interleaved-1f1b", Schedule::interleaved}};
    std::map<std::string, std::vector<double>> errors;
    for (const nlohmann::json& row : nlohmann::json::parse(stream)) {
        const nlohmann::json& measured = row.at("measured");
        if (!row.at("id").get<std::string>().starts_with("zb-") || !measured.contains("stage_times_ms")) continue;
        const nlohmann::json& parallel = row.at("parallel");
        const std::string name = parallel.at("pipeline_schedule");
        const std::int64_t micro_batches = row.at("batch").at("global_batch_seqs").get<std::int64_t>() /
                                           row.at("batch").at("micro_batch_seqs").get<std::int64_t>();
        const double predicted = step_seconds(schedules.at(name), parallel.at("pp"), parallel.at("vpp"), micro_batches,
                                              measured.at("stage_times_ms"));
        // Throughput is the inverse of step time.
        errors[name].push_back(measured.at("step_time_s").get<double>() / predicted - 1);
    }
    ASSERT_EQ(errors.size(), 4U);
    for (const auto& [name, list] : errors) {
        double mean = 0, bias = 0;
        for (const double error : list) {
            mean += std::abs(error) / static_cast<double>(list.size());
            bias += error / static_cast<double>(list.size());
        }
        std::printf("%-16s %zu rows: mean |error| of throughput %.2f%%, bias %+.2f%%\n", name.c_str(), list.size(),
                    100 * mean, 100 * bias);
        if (name == "zb-2p") {
            EXPECT_LT(mean, 0.03);
        }
    }
}

}  // namespace
}  // namespace orrery::sim
