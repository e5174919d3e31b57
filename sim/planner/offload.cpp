#include "sim/planner/offload.h"

#include <algorithm>
#include <utility>

#include "core/enum_names.h"
#include "sim/planner/candidates.h"

namespace orrery::sim {
namespace {

/// The index of the sharding in the list that has another offload, in the direction `step` of the enum.
std::optional<std::size_t> with_offload(const std::vector<Sharding>& shardings, std::size_t index, int step) {
    Sharding wanted = shardings[index];
    for (int kind = static_cast<int>(wanted.offload) + step; kind >= 0 && std::cmp_less(kind, kOffloadKinds);
         kind += step) {
        wanted.offload = static_cast<Offload>(kind);
        const auto found = std::ranges::find(shardings, wanted);
        if (found != shardings.end()) return static_cast<std::size_t>(found - shardings.begin());
    }
    return {};
}

}  // namespace

std::string_view name_of(Offload kind) {
    static constexpr auto kNames = name_table<Offload::parameters>({"none", "activations", "optimizer", "parameters"});
    return kNames[kind];
}

std::optional<std::size_t> more_offload(const std::vector<Sharding>& shardings, std::size_t index) {
    return with_offload(shardings, index, 1);
}

std::optional<std::size_t> less_offload(const std::vector<Sharding>& shardings, std::size_t index) {
    return with_offload(shardings, index, -1);
}

std::vector<std::size_t> CandidateList::tried_first(const std::vector<Sharding>& all, bool keeps_all) const {
    std::vector<std::size_t> first;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::optional<std::size_t> less =
            keeps_all && all[i].offload != Offload::none ? less_offload(all, i) : std::nullopt;
        if (!less.has_value() || must_offload_activations(all[*less])) first.push_back(i);
    }
    return first;
}

}  // namespace orrery::sim
