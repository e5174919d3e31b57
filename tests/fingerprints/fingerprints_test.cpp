// Lowering and simulation give the plans of the parity tests, random plans and the published runs the fingerprints in
// tests/data/fingerprints.txt. After an intended change, record them again with ORRERY_RECORD=1 in the environment, and
// state in the commit message which entries changed and why.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "core/file.h"
#include "sim/planner/planner.h"
#include "sim/published/plan_of.h"
#include "tests/fingerprints/fingerprint.h"
#include "tests/parity/plans.h"
#include "tests/unit/program/random_plans.h"

namespace orrery::fingerprints {
namespace {

const std::string kRecorded = ORRERY_SOURCE_DIR "/tests/data/fingerprints.txt";

using Fingerprints = std::map<std::string, Fingerprint>;

Fingerprints recorded() {
    Fingerprints result;
    std::istringstream lines(read_text_file(kRecorded));
    for (std::string line; std::getline(lines, line);) {
        const std::size_t end = line.find('\t');
        result.emplace(line.substr(0, end), fingerprint_from(line.substr(end + 1)));
    }
    return result;
}

/// Replaces the recorded fingerprints whose names begin with `group`.
void record(const std::string& group, const Fingerprints& now) {
    Fingerprints all = recorded();
    std::erase_if(all, [&](const auto& entry) { return entry.first.starts_with(group); });
    all.insert(now.begin(), now.end());
    std::string text;
    for (const auto& [name, fingerprint] : all) text += name + "\t" + to_text(fingerprint) + "\n";
    write_file_atomically(kRecorded, text);
}

/// Processors differ in the last bit of logarithms and powers, which may change the rounding of durations.
bool is_same_time(std::int64_t a_ps, std::int64_t b_ps) {
    return std::abs(a_ps - b_ps) <= 1 + b_ps / 100'000'000'000;
}

void expect_same(const std::string& name, const Fingerprint& now, const Fingerprint& before) {
    SCOPED_TRACE(name);
    EXPECT_EQ(now.lists, before.lists) << "actions, segments or instructions are others";
    EXPECT_EQ(now.order, before.order) << "an instruction comes after others than before";
    EXPECT_EQ(now.memory, before.memory) << "memory is laid out otherwise";
    EXPECT_TRUE(is_same_time(now.step_ps, before.step_ps))
        << "a step takes " << now.step_ps << " ps, not " << before.step_ps;
}

struct NamedPlan {
    std::string name;
    program::Plan plan;
};

/// Checks every `each`-th plan, or all with FINGERPRINTS_ALL in the environment (`ctest -C extended`).
void check_group(const std::string& group, const std::vector<NamedPlan>& plans, std::size_t each = 1) {
    const bool records = std::getenv("ORRERY_RECORD") != nullptr;
    if (records || std::getenv("FINGERPRINTS_ALL") != nullptr) each = 1;
    Fingerprints now;
    for (std::size_t i = 0; i < plans.size(); i += each) {
        ASSERT_TRUE(now.emplace(group + plans[i].name, fingerprint_of(plans[i].plan)).second)
            << "two " << plans[i].name;
    }
    if (records) return record(group, now);
    Fingerprints before = recorded();
    std::erase_if(before, [&](const auto& entry) { return !entry.first.starts_with(group); });
    EXPECT_EQ((before.size() + each - 1) / each, now.size()) << "ORRERY_RECORD=1 records them";
    for (const auto& [name, fingerprint] : now) {
        const auto known = before.find(name);
        if (known == before.end()) {
            ADD_FAILURE() << name << " is not recorded";
        } else {
            expect_same(name, fingerprint, known->second);
        }
    }
}

TEST(Fingerprints, OfParityPlans) {
    std::vector<NamedPlan> plans;
    std::map<std::string, int> known;
    for (const parity::Case& one : parity::all_cases()) {
        const std::string name = one.model + " " + one.shape.name;
        const int of_this_name = ++known[name];
        program::Plan plan = parity::make_plan(one);
        plan.cluster.device.peaks.push_back({DType::bf16, plan.cluster.device.peaks.front().tflops});
        plans.push_back({of_this_name == 1 ? name : fmt::format("{} ({})", name, of_this_name), std::move(plan)});
    }
    check_group("parity ", plans);
}

TEST(Fingerprints, OfRandomPlans) {
    constexpr std::size_t kPlans = 500;
    program::samples::RandomPlans random(17);
    std::vector<NamedPlan> plans;
    while (plans.size() < kPlans) plans.push_back({std::to_string(plans.size()), random.make_legal()});
    check_group("random ", plans);
}

TEST(Fingerprints, OfPublishedRuns) {
    std::vector<NamedPlan> plans;
    for (const published::PublishedRow& row :
         published::read_published_rows({ORRERY_SOURCE_DIR "/sim/published/data"})) {
        if (!row.refused.empty()) continue;
        published::PlanOfRun translated = published::plan_of(row.run);
        if (translated.plan && !sim::shorter_steps(*translated.plan)) {
            plans.push_back({row.run.id, std::move(*translated.plan)});
        }
    }
    check_group("published ", plans, 5);
}

}  // namespace
}  // namespace orrery::fingerprints
