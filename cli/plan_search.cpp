#include "cli/plan_search.h"

#include <exception>

#include "core/error.h"

namespace orrery::cli {

void for_each_stack(const std::vector<sim::PlanRequest>& requests,
                    const std::function<void(const sim::PlanRequest&)>& search, std::vector<std::string>& notes) {
    std::exception_ptr nothing_fits, problem;
    bool found = false;
    for (const sim::PlanRequest& request : requests) {
        const auto note = [&](std::exception_ptr& first, const char* error) {
            if (!first) first = std::current_exception();
            notes.push_back(request.implementation.name + ": " + error);
        };
        try {
            search(request);
            found = true;
        } catch (const InfeasibleError& error) {
            note(nothing_fits, error.what());
        } catch (const InputError& error) {
            note(problem, error.what());
        }
    }
    if (!found) std::rethrow_exception(nothing_fits ? nothing_fits : problem);
}

sim::PlanSearch search_each(const std::vector<sim::PlanRequest>& requests, std::size_t keep, const RivalSearch& search,
                            std::vector<std::string>& notes) {
    sim::PlanSearch all;
    for_each_stack(
        requests,
        [&](const sim::PlanRequest& request) { sim::merge(all, search(request, sim::step_times(all)), keep); }, notes);
    return all;
}

}  // namespace orrery::cli
