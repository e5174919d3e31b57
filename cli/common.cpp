#include <cstdio>

#include "cli/commands.h"
#include "core/error.h"

namespace orrery::cli {

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw JobError("cannot write to standard output");
    }
}

program::Program load_program(const std::string& plan_path) {
    const program::Plan plan = program::read_plan(plan_path);
    program::Program program = program::lower(plan);
    program::validate(program);
    return program;
}

}  // namespace orrery::cli
