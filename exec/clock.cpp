#include "exec/clock.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "exec/transport/progress.h"

namespace orrery::exec {
namespace {

constexpr int kExchanges = 32;

/// Identifies the machine by its boot; "" if the operating system has no boot id.
std::string boot_of_this_machine() {
    try {
        return read_text_file("/proc/sys/kernel/random/boot_id");
    } catch (const InputError&) {
        return {};
    }
}

}  // namespace

ClockOffset narrowed(ClockOffset offset, std::int64_t before_ns, std::int64_t there_ns, std::int64_t after_ns) {
    return {std::max(offset.low_ns, there_ns - after_ns), std::min(offset.high_ns, there_ns - before_ns)};
}

ClockOffset measure_clock_offset(Transport& transport) {
    ClockOffset offset{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    for (int exchange = 0; exchange < kExchanges; ++exchange) {
        transport.barrier();
        const std::int64_t before = now_ns();
        // Rank 0 reads its clock only after it has heard from all ranks, so after each of them has read `before`.
        const bool is_rank_0 = !transport.gather("x").empty();
        const std::string there = transport.broadcast(is_rank_0 ? std::to_string(now_ns()) : "");
        offset = narrowed(offset, before, std::stoll(there), now_ns());
    }
    return offset;
}

std::int64_t clock_offset_ns(Transport& transport) {
    const std::string machine = boot_of_this_machine();
    const std::vector<std::string> machines = transport.gather(machine);
    const bool one_machine =
        transport.world_size() == 1 ||
        (!machine.empty() && std::count(machines.begin(), machines.end(), machine) == transport.world_size());
    if (transport.broadcast(one_machine ? "one" : "several") == "one") return 0;
    return measure_clock_offset(transport).middle_ns();
}

}  // namespace orrery::exec
