#include "sim/planner/exclusion.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/enum_names.h"
#include "core/error.h"
#include "models/implementation.h"
#include "sim/planner/planner.h"

namespace orrery {
template <>
inline constexpr int kValuesOf<sim::PlanField> = static_cast<int>(sim::PlanField::micro_batch) + 1;
}  // namespace orrery

namespace orrery::sim {
namespace {

constexpr auto kFieldNames = name_table<PlanField::micro_batch>(
    {"stack", "dp", "tp", "cp", "ep", "etp", "pp", "sp", "data", "shards", "gathered", "order", "schedule", "VPP",
     "vocabulary", "stages", "recompute", "offload", "micro-batch"});
/// No degree or micro-batch size is larger.
constexpr std::int64_t kLargestCount = std::int64_t{1} << 30;

template <typename Enum, std::size_t kCount>
std::vector<std::string> names_of_values() {
    std::vector<std::string> names;
    for (const Enum value : enum_values<Enum, kCount>()) names.emplace_back(name_of(value));
    return names;
}

/// Fields whose values also stand alone.
constexpr std::array<PlanField, 3> kBareFields{PlanField::data, PlanField::schedule, PlanField::recompute};

std::optional<std::int64_t> place_of(const std::string& name, PlanField field) {
    const std::vector<std::string>& allowed = allowed_values(field);
    const auto found = std::find(allowed.begin(), allowed.end(), name);
    if (found == allowed.end()) return {};
    return found - allowed.begin();
}

Exclusion bare(const std::string& text, const std::string& flag) {
    std::string bare_values;
    for (const PlanField field : kBareFields) {
        if (const auto place = place_of(text, field)) return {field, *place};
        bare_values += ", " + comma_list(allowed_values(field));
    }
    throw InputError("command line", flag, text,
                     "FIELD=VALUE with one of the fields " + comma_list(names_of<PlanField>()) + "; or" +
                         bare_values.substr(1) + " alone");
}

}  // namespace

std::string_view name_of(PlanField field) {
    return kFieldNames[field];
}

const std::vector<std::string>& allowed_values(PlanField field) {
    static const EnumArray<PlanField, std::vector<std::string>, kValuesOf<PlanField>> values = [] {
        EnumArray<PlanField, std::vector<std::string>, kValuesOf<PlanField>> of_field;
        of_field[PlanField::stack] = models::implementation_names();
        of_field[PlanField::sp] = {"no", "yes"};
        of_field[PlanField::data] = names_of_values<program::DataParallel, program::kDataParallelRows.size()>();
        of_field[PlanField::gathered] = {"kept", "freed"};
        of_field[PlanField::order] = {mesh_order_text(program::Parallelism()),
                                      mesh_order_text(program::Parallelism{.order = kStagesBeforeReplicas})};
        of_field[PlanField::schedule] = names_of_values<program::Schedule, program::kScheduleCount>();
        of_field[PlanField::vocabulary] =
            names_of_values<program::VocabularyParallel,
                            static_cast<std::size_t>(program::VocabularyParallel::interlaced) + 1>();
        of_field[PlanField::stages] = {"even", "uneven"};
        of_field[PlanField::recompute] = {name_of(program::Recompute::none), name_of(program::Recompute::selective),
                                          name_of(program::Recompute::full)};
        of_field[PlanField::offload] = names_of_values<Offload, kOffloadKinds>();
        return of_field;
    }();
    return values[field];
}

Exclusion exclusion_named(const std::string& text, const std::string& flag) {
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos) return bare(text, flag);
    const std::string name = text.substr(0, sign), value = text.substr(sign + 1);
    const std::optional<PlanField> field = value_named<PlanField>(name);
    if (!field.has_value()) {
        throw InputError("command line", flag, text, "one of the fields " + comma_list(names_of<PlanField>()));
    }
    if (!allowed_values(*field).empty()) {
        const std::optional<std::int64_t> place = place_of(value, *field);
        if (place.has_value()) return {*field, *place};
        throw InputError("command line", flag, text, name + "= one of " + comma_list(allowed_values(*field)));
    }
    std::int64_t number = 0;
    const char* const end = value.data() + value.size();
    const auto [rest, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || rest != end || number < 1 || number > kLargestCount) {
        throw InputError("command line", flag, text,
                         name + "= a whole number from 1 to " + std::to_string(kLargestCount));
    }
    return {*field, number};
}

std::string text_of(const Exclusion& exclusion) {
    const std::vector<std::string>& allowed = allowed_values(exclusion.field);
    const std::string value =
        allowed.empty() ? std::to_string(exclusion.value) : allowed.at(static_cast<std::size_t>(exclusion.value));
    return std::string(name_of(exclusion.field)) + "=" + value;
}

}  // namespace orrery::sim
