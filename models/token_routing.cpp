#include "models/token_routing.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"

namespace orrery::models {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
}

/// The experts of one place by group. At most the first and the last of its groups belong to it in part.
struct Place {
    std::int64_t whole_groups = 0;
    std::vector<std::int64_t> parts{};  // experts in each group that it has in part
    auto operator<=>(const Place&) const = default;
};
Place place_of(const TokenRouting& routing, std::int64_t first, std::int64_t last) {
    const std::int64_t size = routing.experts / routing.groups;
    Place place;
    for (std::int64_t at = first; at < last;) {
        const std::int64_t end = std::min(last, (at / size + 1) * size);
        if (end - at == size) {
            ++place.whole_groups;
        } else {
            place.parts.push_back(end - at);
        }
        at = end;
    }
    return place;
}

/// Takes a token's experts one after the other, as long as none of them is in the place.
class Draws {
  public:
    Draws(const TokenRouting& routing, const Place& place) : routing_(routing), place_(place) {}

    /// Probability that the place holds none of the token's experts.
    [[nodiscard]] double missed() {
        std::map<Chosen, double> states{{Chosen{}, 1.0}};
        for (std::int64_t taken = 0; taken < routing_.top_k; ++taken) {
            std::map<Chosen, double> next;
            for (const auto& [chosen, likely] : states) {
                if (groups_of(chosen) == routing_.top_k_groups) {
                    finished_ += likely * missed_by_rest(chosen, taken);
                } else {
                    draw(chosen, likely, taken, next);
                }
            }
            states = std::move(next);
        }
        double sum = std::exchange(finished_, 0.0);
        for (const auto& [chosen, likely] : states) sum += likely;
        return sum;
    }

  private:
    /// The groups with chosen experts: how many of those that have no expert of the place, and which of its parts.
    struct Chosen {
        std::int64_t others = 0;
        std::uint32_t parts = 0;  // bit i: the group of part i
        auto operator<=>(const Chosen&) const = default;
    };
    [[nodiscard]] std::int64_t part_count() const { return std::ssize(place_.parts); }
    [[nodiscard]] bool has(const Chosen& chosen, std::int64_t part) const { return (chosen.parts >> part & 1U) != 0; }
    [[nodiscard]] std::int64_t groups_of(const Chosen& chosen) const {
        std::int64_t count = chosen.others;
        for (std::int64_t i = 0; i < part_count(); ++i) count += has(chosen, i) ? 1 : 0;
        return count;
    }
    /// The place's experts in chosen groups.
    [[nodiscard]] std::int64_t experts_in(const Chosen& chosen) const {
        std::int64_t count = 0;
        for (std::int64_t i = 0; i < part_count(); ++i) {
            if (has(chosen, i)) count += place_.parts[static_cast<std::size_t>(i)];
        }
        return count;
    }

    /// One draw from the experts of all groups, `taken` of which are taken.
    void draw(const Chosen& chosen, double likely, std::int64_t taken, std::map<Chosen, double>& next) const {
        const std::int64_t left = routing_.experts - taken;
        const auto add = [&](const Chosen& to, std::int64_t experts) {
            if (experts > 0) next[to] += likely * ratio(experts, left);
        };
        add(chosen, groups_of(chosen) * size_ - experts_in(chosen) - taken);
        const std::int64_t others = routing_.groups - place_.whole_groups - part_count();
        add({chosen.others + 1, chosen.parts}, (others - chosen.others) * size_);
        for (std::int64_t i = 0; i < part_count(); ++i) {
            if (has(chosen, i)) continue;
            add({chosen.others, chosen.parts | 1U << i}, size_ - place_.parts[static_cast<std::size_t>(i)]);
        }
    }
    /// Probability that the draws after `taken`, all from the chosen groups, miss the place.
    [[nodiscard]] double missed_by_rest(const Chosen& chosen, std::int64_t taken) const {
        const std::int64_t allowed = routing_.top_k_groups * size_, inside = experts_in(chosen);
        double probability = 1;
        for (; taken < routing_.top_k; ++taken) {
            probability *= ratio(std::max<std::int64_t>(allowed - inside - taken, 0), allowed - taken);
        }
        return probability;
    }

    const TokenRouting& routing_;
    const Place& place_;
    std::int64_t size_ = routing_.experts / routing_.groups;  // of a group
    double finished_ = 0;  // from tokens that have experts of as many groups as they may choose
};

}  // namespace

TokenRouting routing_of(const MixtureOfExperts& moe) {
    const bool is_limited = moe.expert_groups > 0;
    return {.experts = moe.expert_count,
            .top_k = moe.top_k,
            .groups = is_limited ? moe.expert_groups : 1,
            .top_k_groups = is_limited ? moe.top_k_groups : 1};
}

double expected_places(const TokenRouting& routing, std::int64_t places) {
    ORRERY_CHECK(routing.groups > 0 && routing.experts % routing.groups == 0 && places > 0,
                 "experts that cannot be divided into their groups");
    ORRERY_CHECK(routing.top_k <= routing.top_k_groups * (routing.experts / routing.groups),
                 "a token that chooses more experts than its groups have");
    std::map<Place, std::int64_t> alike;
    for (std::int64_t i = 0; i < places; ++i) {
        ++alike[place_of(routing, i * routing.experts / places, (i + 1) * routing.experts / places)];
    }
    double sum = 0;
    for (const auto& [place, count] : alike) sum += static_cast<double>(count) * (1 - Draws(routing, place).missed());
    return sum;
}

}  // namespace orrery::models
