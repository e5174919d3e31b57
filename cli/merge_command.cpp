// orrery merge: the files of a sweep's shards together.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/point_store.h"
#include "core/error.h"

namespace orrery::cli {
namespace {

struct MergeOptions {
    std::vector<std::string> from;
    std::string db;
};

int merge_files(const MergeOptions& options) {
    NamedPaths inputs;
    for (const std::string& file : options.from) inputs.emplace_back("a file to merge", file);
    check_outputs({{"--db", options.db}}, inputs);
    const std::int64_t added = merge_stores(options.from, options.db);
    print(fmt::format("{}: {} points added from {} {}\n", options.db, added, options.from.size(),
                      options.from.size() == 1 ? "file" : "files"));
    return kExitDone;
}

}  // namespace

void add_merge(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<MergeOptions>();
    CLI::App* command = app.add_subcommand("merge", "Join the results of a sweep's shards in one file");
    command->add_option("files", options->from, "Files that --db made")->required();
    command->add_option("--db", options->db, "SQLite file to which their points are added; it is made if need be")
        ->required();
    command->footer(
        "The sweep without --shard finds its points there: orrery whatif PLAN --set ... --db all.db --csv all.csv\n"
        "Example: orrery merge shard-1.db shard-2.db --db all.db");
    command->callback([options, &chosen] { chosen = [options] { return merge_files(*options); }; });
}

}  // namespace orrery::cli
