// `orrery validate --rows`: turns published runs into plans, predicts them and compares with the measurements.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

struct RowsOptions {
    std::vector<std::string> files;  // or folders
    std::string only;                // part of the source's title
    std::string explain_row;         // id
    bool sensitivity = false;
    bool differences = false;  // compare the derivatives with finite differences
    bool all = false;          // include rows that are not scored
    bool scored_only = false;
    bool verbose = false;
    bool misfits = false;  // list the rows whose fit is predicted wrongly
    bool check = false;    // validate each Program
};

/// Adds the options; returns --rows.
CLI::Option* add_rows_options(CLI::App& command, RowsOptions& options);

[[nodiscard]] int run_validate_rows(const RowsOptions& options, bool json);

}  // namespace orrery::cli
