// Regenerates the outputs that a page shows. Comparing and rewriting use the same new page.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/docs/page.h"

namespace orrery::docs {

/// Output of a command: stdout and stderr in the order of writing.
struct Printed {
    std::string text;
    int exit_code = 0;
};

/// The folder in which the commands of one page run one after another.
struct Place {
    std::function<Printed(const std::vector<std::string>& words)> run;  // the words after "orrery"
    std::function<void(const std::string& name, const std::string& text)> write;
};

/// The lines of an output that a mark selects. Throws PageError, without page and line, if the output lacks a part.
[[nodiscard]] std::vector<std::string> excerpt(const std::string& output, const Mark& mark);

struct Renewed {
    std::string text;                      // the page with regenerated outputs
    std::vector<std::string> differences;  // "page:line: …": outputs that differ from the page
    std::vector<std::string> mistakes;     // "page:line: …": errors that regenerating does not fix
};

[[nodiscard]] Renewed renew(const Page& page, const Place& place);

}  // namespace orrery::docs
