#include "sim/published/run_groups.h"

#include <array>
#include <optional>
#include <string_view>

namespace orrery::published {
namespace {

/// A source family, recognised by a part of the title.
struct Family {
    std::string_view part, name;
};
constexpr std::array<Family, 4> kFamilies{{
    {"BigScience", "BigScience"},
    {"SimuMax", "SimuMax"},
    {"nanotron", "nanotron"},
    {"Ultra-Scale Playbook", "nanotron"},
}};

std::string text_of(const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : "-";
}

}  // namespace

std::string source_family(const std::string& title) {
    for (const Family& family : kFamilies) {
        if (title.find(family.part) != std::string::npos) return std::string(family.name);
    }
    return title;
}

std::string group_of(const PublishedRun& run) {
    std::string group = source_family(run.source) + "|" + run.hardware.gpu + "|" + text_of(run.hardware.gpus);
    const PublishedRun::Model& model = run.model;
    const PublishedRun::Parallel& p = run.parallel;
    for (const std::optional<std::int64_t>& value :
         {model.layers, model.hidden, model.heads, std::optional(model.sequence_length), p.tp, p.pp, p.chunks, p.cp,
          p.ep, run.global_batch, run.micro_batch}) {
        group += "|" + text_of(value);
    }
    return group + "|" + run.recompute;
}

std::string sweep_of(const PublishedRun& run) {
    const auto number = [](const std::optional<std::int64_t>& value) { return std::to_string(value.value_or(0)); };
    return run.source + "|" + run.model.name + "|" + number(run.model.sequence_length) + "|" + run.hardware.gpu + "|" +
           number(run.hardware.gpus) + "|" + number(run.global_batch);
}

std::uint32_t fold_of(const PublishedRun& run) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : group_of(run)) {
        hash ^= static_cast<unsigned char>(letter);
        hash *= 0x100000001b3;
    }
    return static_cast<std::uint32_t>(hash % kFolds);
}

}  // namespace orrery::published
