#include "cli/run_orrery.h"

int main(int argc, char** argv) {
    return orrery::cli::run_orrery(argc, argv);
}
