#include "cli/run_orrery.h"

#ifdef ORRERY_HAS_MIMALLOC
#include <mimalloc.h>
#endif

int main(int argc, char** argv) {
#ifdef ORRERY_HAS_MIMALLOC
    // Searches touch gigabytes: pages of 2 MiB, where the system has them, save most page faults.
    mi_option_enable(mi_option_large_os_pages);
#endif
    return orrery::cli::run_orrery(argc, argv);
}
