#include "exec/spread.h"

#include <cmath>

namespace orrery::exec {

std::vector<program::SpanSpread> spreads_of(const std::vector<StepTimes>& steps, std::int64_t warm_up) {
    std::vector<const std::vector<program::Span>*> kept;
    for (std::size_t step = static_cast<std::size_t>(warm_up); step < steps.size(); ++step) {
        if (!steps[step].spans.empty()) kept.push_back(&steps[step].spans);
    }
    std::vector<program::SpanSpread> spreads(kept.empty() ? 0 : kept.front()->size());
    std::vector<double> taken(kept.size()), waited(kept.size());
    for (std::size_t i = 0; i < spreads.size(); ++i) {
        for (std::size_t step = 0; step < kept.size(); ++step) {
            const program::Span& span = (*kept[step])[i];
            taken[step] = static_cast<double>(span.end_ps - span.begin_ps);
            waited[step] = static_cast<double>(span.begin_ps - span.ready_ps);
        }
        const auto of = [](const std::vector<double>& values, double share) {
            return std::llround(program::percentile(values, share));
        };
        spreads[i] = {of(taken, 0.05), of(taken, 0.5), of(taken, 0.95), of(waited, 0.5)};
    }
    return spreads;
}

}  // namespace orrery::exec
