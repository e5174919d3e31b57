#include "cli/stored_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>
#include <optional>

#include "cli/parallel.h"
#include "cli/point_store.h"
#include "core/error.h"

namespace orrery::cli {
namespace {

struct Shard {
    std::size_t index = 0, count = 1;  // the index counts from 0
};

Shard shard_of(const StoreOptions& options) {
    if (!options.is_shard()) return {};
    Shard shard;
    const char *const begin = options.shard.data(), *const end = begin + options.shard.size();
    const auto [slash, error] = std::from_chars(begin, end, shard.index);
    if (error == std::errc() && slash != end && *slash == '/') {
        const auto [last, count_error] = std::from_chars(slash + 1, end, shard.count);
        const bool is_read = count_error == std::errc() && last == end;
        if (is_read && shard.index >= 1 && shard.index <= shard.count) return {shard.index - 1, shard.count};
    }
    throw InputError("command line", "--shard", options.shard, "I/N with 1 <= I <= N, such as 2/8");
}

}  // namespace

std::vector<CLI::Option*> add_store_options(CLI::App& command, StoreOptions& options) {
    CLI::Option* db = command.add_option(
        "--db", options.db, "Keep each result in this SQLite file; results that it holds are not computed again");
    CLI::Option* shard = command.add_option(
        "--shard", options.shard,
        "I/N: compute only every N-th point from the I-th on, into --db, and print nothing; join the "
        "files with orrery merge");
    return {db, shard};
}

std::string options_given(const std::vector<const CLI::Option*>& options) {
    std::string text;
    for (const CLI::Option* option : options) {
        if (!option->empty()) text += fmt::format("{} {}\n", option->get_name(), fmt::join(option->results(), " "));
    }
    return text;
}

void check_store(const StoreOptions& options, const NamedPaths& outputs) {
    (void)shard_of(options);
    if (!options.is_shard()) return;
    if (options.db.empty()) throw InputError("command line", "--shard", options.shard, "only with --db");
    for (const auto& [option, path] : outputs) {
        if (path.empty()) continue;
        throw InputError("command line", option, "together with --shard",
                         "without --shard, with the --db that orrery merge makes of all shards");
    }
}

bool run_sweep(const StoreOptions& options, const SweepToStore& sweep) {
    std::map<std::string, std::vector<std::size_t>> places;  // of equal points
    for (std::size_t i = 0; i < sweep.points.size(); ++i) places[sweep.points[i]].push_back(i);

    std::optional<PointStore> store;
    std::int64_t inputs = 0;
    if (!options.db.empty()) {
        store.emplace(options.db, StoreAccess::write);
        inputs = store->inputs_id(sweep.inputs);
    }
    const Shard shard = shard_of(options);
    std::vector<std::string> results(sweep.points.size());
    std::vector<std::size_t> missing;
    std::size_t kept = 0, number = 0;
    for (std::size_t i = 0; i < sweep.points.size(); ++i) {
        if (places[sweep.points[i]].front() != i || number++ % shard.count != shard.index) continue;
        if (auto known = store ? store->find(inputs, sweep.points[i]) : std::nullopt) {
            results[i] = std::move(*known);
            ++kept;
        } else {
            missing.push_back(i);
        }
    }
    in_parallel(sweep.verb, missing.size(), [&](std::size_t m) {
        const std::size_t i = missing[m];
        results[i] = sweep.compute(i);
        if (store) store->put(inputs, sweep.points[i], results[i]);
    });
    if (store) {
        say(fmt::format("{}: {} of the {} points{} were there, {} computed\n", options.db, kept, kept + missing.size(),
                        options.is_shard() ? " of shard " + options.shard : "", missing.size()));
    }
    if (options.is_shard()) return false;
    for (std::size_t i = 0; i < sweep.points.size(); ++i) sweep.take(i, results[places[sweep.points[i]].front()]);
    return true;
}

}  // namespace orrery::cli
