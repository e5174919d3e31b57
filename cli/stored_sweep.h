// Sweeps whose points may be kept in a file, so that a sweep that was interrupted goes on, and may be shared among
// processes: `--db` and `--shard`.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace orrery::cli {

struct StoreOptions {
    std::string db;     // "": results are not kept
    std::string shard;  // "I/N": only every N-th point, from the I-th on
    [[nodiscard]] bool is_shard() const { return !shard.empty(); }
};
/// Returns both options.
std::vector<CLI::Option*> add_store_options(CLI::App& command, StoreOptions& options);

/// Those of the options that were given, with their values.
[[nodiscard]] std::string options_given(const std::vector<const CLI::Option*>& options);

/// Throws InputError if --shard cannot be read, comes without --db, or comes with one of the outputs.
void check_store(const StoreOptions& options, const NamedPaths& outputs);

struct SweepToStore {
    std::string verb;                 // shown with the progress: "predicting"
    std::string inputs;               // what all points share and their results follow from, as text
    std::vector<std::string> points;  // what tells them from each other; equal points are computed once
    /// The result of a point as text, from which `take` can read it. Called by several threads.
    std::function<std::string(std::size_t)> compute;
    /// Receives the result of each point in order, whether it was computed or kept.
    std::function<void(std::size_t, const std::string&)> take;
};
/// Computes the points that the file lacks, on all cores. Without --shard, all points are taken then. Says on standard
/// error how many were kept and computed, if there is a file. Returns whether the points were taken.
bool run_sweep(const StoreOptions& options, const SweepToStore& sweep);

}  // namespace orrery::cli
