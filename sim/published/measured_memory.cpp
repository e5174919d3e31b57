#include "sim/published/measured_memory.h"

#include <algorithm>

#include "sim/program/device_memory.h"

namespace orrery::published {
namespace {

std::int64_t bytes_of(const program::DeviceMemory& memory, MemoryKind kind) {
    switch (kind) {
        case MemoryKind::allocated:
            return memory.allocated();
        case MemoryKind::in_use:
            return memory.in_use();
        case MemoryKind::reserved:
        case MemoryKind::unstated:
            break;
    }
    return memory.reserved();
}

}  // namespace

std::int64_t memory_as_measured(const program::Program& program, const PublishedMeasurement& measured) {
    std::int64_t most = 0;
    for (const program::RankClass& ranks : program.classes) {
        if (measured.memory_of_last_stage && &ranks != &program.classes.back()) continue;
        most = std::max(most, bytes_of(program::device_memory(program, ranks), measured.memory_kind));
    }
    return most;
}

}  // namespace orrery::published
