// Runs one case of flow_cases.h in its own process and prints simulated picoseconds, CPU seconds and peak memory.
#include "tests/peers/flow_cases.h"
#include "tests/peers/worker.h"

namespace peers = orrery::peers;

int main(int argc, char** argv) {
    const peers::WorkerCase work = peers::read_case(argc, argv, {"ring", "collective", "all-to-all"});
    const double begin_cpu_s = peers::cpu_seconds();
    const peers::FatTree tree(work.hosts);
    std::int64_t end_ps = 0;
    if (work.kind == "ring") end_ps = peers::ring(tree, work.bytes);
    if (work.kind == "collective") end_ps = peers::collective(tree, work.bytes);
    if (work.kind == "all-to-all") end_ps = peers::all_to_all(tree, work.bytes);
    peers::print_result(static_cast<double>(end_ps), begin_cpu_s);
}
