#include "cli/same_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"

namespace orrery::cli {
namespace {

using nlohmann::json;

/// The length and the 64-bit FNV-1a hash, which ranks compare before they send whole plans.
std::string digest(const std::string& text) {
    std::uint64_t hash = 14695981039346656037U;
    for (const unsigned char letter : text) hash = (hash ^ letter) * 1099511628211U;
    return fmt::format("{}-{:016x}", text.size(), hash);
}

std::string value_at(const json& plan, const json::json_pointer& key) {
    return plan.contains(key) ? plan.at(key).dump() : "nothing";
}

/// "FILE on HOST: KEY: got VALUE; allowed: VALUE", or "" for equal plans.
std::string first_difference(const std::string& path, const std::string& mine, const std::string& from_rank_0) {
    const json here = json::parse(mine), there = json::parse(from_rank_0);
    const json changes = json::diff(there, here);
    if (changes.empty()) return "";
    const auto key = changes.front().at("path").get<std::string>();
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    const json::json_pointer pointer(key);
    return InputError(fmt::format("{} on {}", path, host), key, value_at(here, pointer),
                      fmt::format("{}, as rank 0 has it: the same plan on all ranks", value_at(there, pointer)))
        .what();
}

}  // namespace

std::string why_plans_differ(exec::Transport& transport, const std::string& plan_path, const std::string& plan_text) {
    bool differ = false;
    const std::vector<std::string> digests = transport.gather(plan_text.empty() ? "" : digest(plan_text));
    for (const std::string& one : digests) differ = differ || (!one.empty() && one != digests.front());
    const bool comparable = !digests.empty() && !digests.front().empty();
    const std::string reference = transport.broadcast(differ && comparable ? plan_text : "");
    if (reference.empty()) return "";
    const std::string mine = plan_text.empty() ? "" : first_difference(plan_path, plan_text, reference);
    const std::vector<std::string> all = transport.gather(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (!all[rank].empty()) return fmt::format("rank {}: {}", rank, all[rank]);
    }
    return "";
}

}  // namespace orrery::cli
