#include "reports/plan_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/table.h"

namespace orrery::reports {
namespace {

/// What is recomputed and offloaded; "" if nothing is.
std::string savings_words(const program::MemorySavings& memory) {
    std::string text;
    const auto add = [&text](const std::string& word) { text += " " + word; };
    if (memory.recompute == program::Recompute::selective) {
        add(memory.recompute_parts.empty() ? "selective" : fmt::format("{}", fmt::join(memory.recompute_parts, "+")));
    } else if (memory.recompute == program::Recompute::full) {
        add(memory.recompute_layers < 0 ? "full" : fmt::format("full{}", memory.recompute_layers));
    }
    if (memory.offload_layers > 0) add(fmt::format("offload-activations{}", memory.offload_layers));
    if (memory.offload_optimizer) add(memory.offload_parameters ? "offload-parameters" : "offload-optimizer");
    return text;
}

}  // namespace

std::string plan_words(const program::ChosenPlan& plan) {
    const program::Parallelism& p = plan.parallelism;
    std::string text;
    const auto add = [&text](const char* name, std::int64_t degree) {
        if (degree > 1) text += fmt::format("{}{} ", name, degree);
    };
    add("tp", p.tp);
    add("cp", p.cp);
    add("ep", p.ep);
    add("etp", p.etp);
    add("pp", p.pp);
    add("dp", p.dp);
    text += program::name_of(p.data_parallel);
    if (p.has_shard_sets()) text += fmt::format("/{}", p.dp_shard);
    if (p.shards_parameters() && !p.reshard_after_forward) text += "-kept";
    if (p.pp > 1) text += " " + program::name_of(p.schedule);
    if (p.chunks > 1) text += fmt::format(" vpp{}", p.chunks);
    if (p.spreads_vocabulary()) text += " " + program::name_of(p.vocabulary_parallel);
    if (p.order != program::Parallelism().order) text += " " + program::mesh_order_text(p);
    return text + fmt::format(" mb{}", plan.micro_batch_size) + savings_words(plan.memory);
}

std::string limit_name(program::Limit limit) {
    std::string name(name_of(limit));
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
}

std::string share_words(const program::LimitShare& share) {
    return limit_name(share.limit) + " " + format_percent(share.share, 0);
}

std::string limit_words(const program::ScalingPoint& point) {
    return point.shares.empty() ? "-" : share_words(point.shares.front());
}

std::string origin_words(const program::DatedFigure& figure) {
    return (figure.as_of.empty() ? "" : figure.as_of + ": ") + figure.source;
}

}  // namespace orrery::reports
