// `orrery validate --rows`: published runs as plans, predicted, against what was measured.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

struct RowsOptions {
    std::vector<std::string> files;  // or folders of them
    std::string only;                // part of the source's title
    std::string explain_row;         // id
    bool sensitivity = false;
    bool differences = false;  // hold the derivatives beside finite differences
    bool all = false;          // rows that are not scored too
    bool scored_only = false;
    bool verbose = false;
    bool misfits = false;  // list the rows whose fit is said wrongly
    bool check = false;    // prove each Program well-formed
};

/// The options of its own; the returned one is --rows.
CLI::Option* add_rows_options(CLI::App& command, RowsOptions& options);

[[nodiscard]] int run_validate_rows(const RowsOptions& options, bool json);

}  // namespace orrery::cli
