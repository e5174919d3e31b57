// Recursive halving and doubling, and bcube.
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

/// Reduces n ranks to the p = 2^i that take part. If n is not a power of two, the even ones of the first 2 r ranks are
/// left out, and the odd rank after each acts for it.
struct Fold {
    std::int64_t n = 0;
    std::int64_t taking_part = 0;  // p
    std::int64_t folded = 0;       // r = n - p
    std::int64_t levels = 0;       // log2 p

    explicit Fold(std::int64_t ranks)
        : n(ranks),
          taking_part(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks)))),
          folded(n - taking_part),
          levels(log2_ceil(taking_part)) {}
    [[nodiscard]] bool is_extra(Party rank) const { return rank < 2 * folded && rank % 2 == 0; }
    [[nodiscard]] bool acts_for_extra(Party rank) const { return rank < 2 * folded && rank % 2 == 1; }
    [[nodiscard]] std::int64_t id_of(Party rank) const { return rank < 2 * folded ? rank / 2 : rank - folded; }
    [[nodiscard]] Party rank_of(std::int64_t id) const { return id < folded ? 2 * id + 1 : id + folded; }
    /// The first rank whose slice participant `id` handles; n for id = p.
    [[nodiscard]] std::int64_t first_slice(std::int64_t id) const { return id < folded ? 2 * id : id + folded; }
};

/// The slices of participants [first, last): equal parts of the message, or (by_rank) those of the ranks they act for.
struct Shares {
    Fold fold;
    Slice message;
    bool by_rank = false;
    [[nodiscard]] Slice of(std::int64_t first, std::int64_t last) const {
        if (!by_rank) return parts_of(message, first, last, fold.taking_part);
        return parts_of(message, fold.first_slice(first), fold.first_slice(last), fold.n);
    }
};

/// One round between the left-out ranks and the ranks that act for them, towards the latter if `inward`: the whole
/// message, or the left-out rank's own slice.
Stage fold_stage(const Shares& shares, bool inward, bool everything, bool reduces) {
    return {1, [=](std::int64_t, Party me, const Visit& visit) {
                const Fold& fold = shares.fold;
                if (inward ? !fold.is_extra(me) : !fold.acts_for_extra(me)) return;
                const Party to = inward ? me + 1 : me - 1;
                const Party extra = inward ? me : me - 1;
                visit({me, to, everything ? shares.message : part_of(shares.message, extra, fold.n), reduces, 0});
            }};
}

/// Recursive halving: distances descend, and each step exchanges half of the remaining slices.
Stage halving(const Shares& shares) {
    return {shares.fold.levels, [=](std::int64_t step, Party me, const Visit& visit) {
                const Fold& fold = shares.fold;
                if (fold.is_extra(me)) return;
                const std::int64_t distance = std::int64_t{1} << (fold.levels - 1 - step);
                const std::int64_t peer = fold.id_of(me) ^ distance;
                const std::int64_t first = peer / distance * distance;
                visit({me, fold.rank_of(peer), shares.of(first, first + distance), true, 0});
            }};
}

/// Recursive doubling: distances ascend, and each step sends everything gathered so far.
Stage doubling(const Shares& shares) {
    return {shares.fold.levels, [=](std::int64_t step, Party me, const Visit& visit) {
                const Fold& fold = shares.fold;
                if (fold.is_extra(me)) return;
                const std::int64_t distance = std::int64_t{1} << step;
                const std::int64_t id = fold.id_of(me);
                const std::int64_t first = id / distance * distance;
                visit({me, fold.rank_of(id ^ distance), shares.of(first, first + distance), false, 0});
            }};
}

/// Adds `stage` if the number of ranks is not a power of two.
void add_fold(Stages& stages, const Shares& shares, Stage stage) {
    if (shares.fold.folded > 0) stages.push_back(std::move(stage));
}

void append(Stages& stages, Stages more) {
    for (Stage& stage : more) stages.push_back(std::move(stage));
}

}  // namespace

std::vector<std::int64_t> prime_factors(std::int64_t n) {
    std::vector<std::int64_t> factors;
    for (std::int64_t factor = 2; factor * factor <= n; ++factor) {
        for (; n % factor == 0; n /= factor) factors.push_back(factor);
    }
    if (n > 1) factors.push_back(n);
    return factors;
}

Stages halving_doubling_stages(const Task& task) {
    const CommKind kind = task.kind;
    const Shares shares{Fold(task.ranks()), task.message(), kind != CommKind::all_reduce};
    const bool scatters = kind != CommKind::all_gather && kind != CommKind::broadcast;
    const bool gathers = kind != CommKind::reduce_scatter && kind != CommKind::reduce;
    const bool all_reduces = kind == CommKind::all_reduce;
    Stages stages;
    if (kind == CommKind::broadcast) {
        Task scatter = task;
        scatter.kind = CommKind::scatter;
        append(stages, binomial_tree_stages(scatter));
    }
    if (scatters) {
        add_fold(stages, shares, fold_stage(shares, true, true, true));
        stages.push_back(halving(shares));
        if (!all_reduces) add_fold(stages, shares, fold_stage(shares, false, false, false));
    }
    if (gathers) {
        if (!all_reduces) add_fold(stages, shares, fold_stage(shares, true, false, false));
        stages.push_back(doubling(shares));
        add_fold(stages, shares, fold_stage(shares, false, true, false));
    }
    if (kind == CommKind::reduce) {
        Task gather = task;
        gather.kind = CommKind::gather;
        append(stages, binomial_tree_stages(gather));
    }
    return stages;
}

Stages recursive_doubling_stages(const Task& task) {
    const Shares shares{Fold(task.ranks()), task.message(), false};
    Stages stages;
    add_fold(stages, shares, fold_stage(shares, true, true, true));
    stages.push_back({shares.fold.levels, [=](std::int64_t step, Party me, const Visit& visit) {
                          const Fold& fold = shares.fold;
                          if (fold.is_extra(me)) return;
                          const std::int64_t peer = fold.id_of(me) ^ (std::int64_t{1} << step);
                          visit({me, fold.rank_of(peer), shares.message, true, 0});
                      }});
    add_fold(stages, shares, fold_stage(shares, false, true, false));
    return stages;
}

Stages bcube_stages(const Task& task) {
    const std::int64_t n = task.ranks();
    const std::vector<std::int64_t> factors = prime_factors(n);
    const auto steps = static_cast<std::int64_t>(factors.size());
    // Ranks are numbers in mixed radix, with the first factor's digit the most significant. After step j of the
    // reduce-scatter a rank holds the slices of the ranks that share its digits up to j.
    const auto exchange = [=](std::int64_t step, Party me, bool reduces, const Visit& visit) {
        std::int64_t width = n;
        for (std::int64_t i = 0; i <= step; ++i) width /= factors[static_cast<std::size_t>(i)];
        const std::int64_t size = factors[static_cast<std::size_t>(step)];
        const std::int64_t digit = me / width % size;
        const std::int64_t base = me / (width * size) * (width * size);
        for (std::int64_t value = 0; value < size; ++value) {
            if (value == digit) continue;
            const std::int64_t first = base + (reduces ? value : digit) * width;
            visit({me, me + (value - digit) * width, parts_of(task.message(), first, first + width, n), reduces, 0});
        }
    };
    return {{2 * steps, [=](std::int64_t round, Party me, const Visit& visit) {
                 const bool reduces = round < steps;
                 exchange(reduces ? round : 2 * steps - 1 - round, me, reduces, visit);
             }}};
}

}  // namespace orrery::sim::algorithms
