// Cost of updating a rank's flight recorder, per instruction and per wait.
#include <benchmark/benchmark.h>

#include "exec/faults/recorder.h"

namespace orrery::exec {
namespace {

void record_instruction(benchmark::State& state) {
    FlightRecorder recorder;
    std::int32_t instruction = 0;
    for (auto step : state) {
        const InstructionPlace place{1, 2, instruction++ & 0xff};
        recorder.begin(place);
        recorder.finish(place);
    }
}
BENCHMARK(record_instruction);

void record_wait(benchmark::State& state) {
    FlightRecorder recorder;
    std::int64_t sequence = 0;
    for (auto step : state) {
        recorder.wait_for({program::Stream::tp, ++sequence});
        recorder.stop_waiting();
    }
}
BENCHMARK(record_wait);

}  // namespace
}  // namespace orrery::exec
