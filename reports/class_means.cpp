#include "reports/class_means.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/units.h"

namespace orrery::reports {
namespace {

/// Sums times; `finish` divides once, so that the mean does not depend on how ranks are grouped.
void add(ClassMeans& means, const program::RankRecord& rank) {
    ORRERY_CHECK(rank.multiplicity >= 1, "a rank record represents at least one rank");
    means.ranks += rank.multiplicity;
    const auto weight = static_cast<double>(rank.multiplicity);
    for (const program::Stream stream : program::kStreams) {
        means.busy_s[stream] += weight * to_seconds(Picoseconds(rank.streams[stream].busy_ps));
        means.exposed_s[stream] += weight * to_seconds(Picoseconds(rank.streams[stream].exposed_ps));
        means.bytes_sent[stream] += (Bytes(rank.bytes_sent[stream]) * rank.multiplicity).value();
    }
    means.memory_peak_bytes = std::max(means.memory_peak_bytes, rank.memory_peak_bytes);
    means.memory_live_peak_bytes = std::max(means.memory_live_peak_bytes, rank.memory_live_peak_bytes);
}

void finish(ClassMeans& means) {
    if (means.ranks == 0) return;
    for (double& seconds : means.busy_s) seconds /= static_cast<double>(means.ranks);
    for (double& seconds : means.exposed_s) seconds /= static_cast<double>(means.ranks);
}

}  // namespace

std::vector<ClassMeans> class_means(const program::RunRecord& record) {
    std::map<program::ClassIndex, ClassMeans> by_class;
    for (const program::RankRecord& rank : record.ranks) {
        ClassMeans& means = by_class[rank.rank_class];
        means.rank_class = rank.rank_class;
        add(means, rank);
    }
    std::vector<ClassMeans> all;
    for (auto& [rank_class, means] : by_class) {
        finish(means);
        all.push_back(means);
    }
    return all;
}

ClassMeans overall_means(const program::RunRecord& record) {
    ClassMeans means;
    means.rank_class = -1;
    for (const program::RankRecord& rank : record.ranks) add(means, rank);
    finish(means);
    return means;
}

}  // namespace orrery::reports
