// Outputs that a page shows, made again. Who compares and who rewrites look at the same new page.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/docs/page.h"

namespace orrery::docs {

/// What a command printed, both streams in the order of writing.
struct Printed {
    std::string text;
    int exit_code = 0;
};

/// The folder in which the commands of one page run, one after the other.
struct Place {
    std::function<Printed(const std::vector<std::string>& words)> run;  // the words after "orrery"
    std::function<void(const std::string& name, const std::string& text)> write;
};

/// What a mark shows of an output. Throws PageError, with the text alone, where the output lacks a part.
[[nodiscard]] std::vector<std::string> excerpt(const std::string& output, const Mark& mark);

struct Renewed {
    std::string text;                      // of the page, with the outputs as they are now
    std::vector<std::string> differences;  // "page:line: …": outputs that are shown otherwise
    std::vector<std::string> mistakes;     // "page:line: …": what making them again does not mend
};

[[nodiscard]] Renewed renew(const Page& page, const Place& place);

}  // namespace orrery::docs
