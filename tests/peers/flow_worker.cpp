// One case of flow_cases.h in a process of its own: prints simulated picoseconds, CPU seconds and peak memory.
#include "tests/peers/flow_cases.h"
#include "tests/peers/worker.h"

int main(int argc, char** argv) {
    using namespace orrery::peers;
    const WorkerCase work = read_case(argc, argv, {"ring", "collective", "all-to-all"});
    const double begin_cpu_s = cpu_seconds();
    const FatTree tree(work.hosts);
    std::int64_t end_ps = 0;
    if (work.kind == "ring") end_ps = ring(tree, work.bytes);
    if (work.kind == "collective") end_ps = collective(tree, work.bytes);
    if (work.kind == "all-to-all") end_ps = all_to_all(tree, work.bytes);
    print_result(static_cast<double>(end_ps), begin_cpu_s);
}
