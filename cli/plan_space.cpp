#include "cli/plan_space.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "core/error.h"
#include "sim/program/schedule_table.h"

namespace orrery::cli {
namespace {

using program::VocabularyParallel;
using sim::Offload;

constexpr auto kOffloads = enum_values<Offload, sim::kOffloadKinds>();
constexpr auto kVocabularies =
    enum_values<VocabularyParallel, static_cast<std::size_t>(VocabularyParallel::interlaced) + 1>();

template <typename Kinds>
std::vector<std::string> names_of_kinds(const Kinds& kinds) {
    std::vector<std::string> names;
    for (const auto kind : kinds) names.emplace_back(name_of(kind));
    return names;
}

/// The kind with the name, which the option's check has let pass.
template <typename Kinds>
auto kind_named(const Kinds& kinds, const std::string& name) {
    for (const auto kind : kinds) {
        if (name_of(kind) == name) return kind;
    }
    throw_bug(__FILE__, __LINE__, "kind_named", "an option with an unknown name");
}

}  // namespace

void add_space_options(CLI::App& command, PlanSpace& space) {
    command
        .add_option("--space", space.space,
                    "What the search covers. full adds expert tensor parallelism (etp), DualPipe-V, vocabulary "
                    "parallelism and, where nothing else fits, offload to the host, as far as the implementation has "
                    "them")
        ->check(CLI::IsMember({"default", "full"}))
        ->capture_default_str();
    command.add_option("--etp", space.etp, "Only this tensor-parallel degree of the experts")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    command
        .add_option(
            "--overlap-experts", space.overlap_experts,
            "Only plans in which a forward and a backward pass are issued in turns, so that each computes while "
            "the other's tokens travel to experts and back (true), only others (false, the default), or both (any: the "
            "search takes several times as long)")
        ->check(CLI::IsMember({"true", "false", "any"}));
    command
        .add_option("--vocabulary-parallel", space.vocabulary_parallel,
                    "Only pipelines that share embedding and head among their stages in this way")
        ->check(CLI::IsMember(names_of_kinds(kVocabularies)));
    command
        .add_option(
            "--offload", space.offload,
            "Only plans that keep this in host memory: activations of the fewest blocks with which a plan fits, "
            "optimizer states, or zero3's parameters and the optimizer states")
        ->check(CLI::IsMember(names_of_kinds(kOffloads)));
}

void check_space(const PlanSpace& space, const std::string& schedule, const std::string& data_parallel,
                 const std::string& recompute) {
    const auto refuse = [&](const std::string& other, const std::string& allowed) {
        throw InputError("command line", "--offload", space.offload, "only with " + other + " " + allowed);
    };
    if (space.offload == "parameters" && !data_parallel.empty() && data_parallel != "zero3") {
        refuse("--data-parallel", "zero3");
    }
    if (space.offload != "activations") return;
    if (!recompute.empty() && recompute != "none") refuse("--recompute", "none");
    if (!schedule.empty() && row_of(program::schedule_named(schedule)).splits_backward()) {
        refuse("--schedule", "naive, gpipe, 1f1b or interleaved-1f1b, whose backward passes are whole");
    }
}

void apply_space(const PlanSpace& space, sim::PlanRequest& request) {
    if (space.is_full()) {
        if (request.cluster.ranks_may_share_devices()) {
            throw InputError(
                "command line", "--space", space.space,
                "default, because plans for \"" + request.cluster.name + "\" are restricted to what the executor runs");
        }
        sim::allow_full_space(request);
    }
    request.etp = space.etp;
    if (space.overlap_experts == "any") {
        sim::allow_expert_overlap(request);
    } else if (!space.overlap_experts.empty()) {
        request.overlaps_experts = space.overlap_experts == "true";
    }
    if (!space.vocabulary_parallel.empty()) {
        request.vocabulary_parallel = {kind_named(kVocabularies, space.vocabulary_parallel)};
    }
    if (space.offload.empty()) return;
    request.offload = {kind_named(kOffloads, space.offload)};
    if (request.offload.front() == Offload::parameters) request.data_parallel = {program::DataParallel::zero3};
    // What is offloaded is not recomputed.
    if (request.offload.front() == Offload::activations) request.recompute = {program::Recompute::none};
}

std::map<std::string, std::string> origins_of(const PlanSpace& space) {
    std::map<std::string, std::string> origins;
    const auto add = [&](const char* pointer, bool is_given) {
        if (is_given || space.is_full()) origins[pointer] = is_given ? "flag" : "planner";
    };
    add("/parallelism/etp", space.etp != 0);
    if (!space.overlap_experts.empty() && space.overlap_experts != "any") {
        origins["/parallelism/overlaps_experts"] = "flag";
    }
    add("/parallelism/vocabulary_parallel", !space.vocabulary_parallel.empty());
    for (const char* pointer : {"/training/memory/offload_optimizer", "/training/memory/offload_parameters"}) {
        add(pointer, !space.offload.empty());
    }
    // The option says that activations are offloaded, the search of how many blocks.
    const bool is_number_chosen = space.offload == "activations";
    add("/training/memory/offload_layers", !space.offload.empty() && !is_number_chosen);
    if (is_number_chosen) origins["/training/memory/offload_layers"] = "planner";
    return origins;
}

}  // namespace orrery::cli
