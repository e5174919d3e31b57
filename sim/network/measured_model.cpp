#include "sim/network/measured_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "sim/network/fraction.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;

struct Point {
    double bytes = 0;
    double seconds = 0;
};
using Curve = std::vector<Point>;  // sizes ascend, times never decrease

/// The operation's name in the samples: a receive is the other side of a send.
std::string sample_name(CommKind kind) {
    return std::string(program::name_of(kind == CommKind::recv ? CommKind::send : kind));
}

double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

/// One curve per measured number of ranks.
std::map<std::int64_t, Curve> curves_of(const std::string& op, const ClusterSpec& cluster) {
    std::map<std::int64_t, std::map<std::int64_t, std::vector<double>>> by_ranks;
    for (const topologies::TransportSample& sample : cluster.transport_samples) {
        if (sample.op == op) by_ranks[sample.ranks][sample.bytes].push_back(sample.seconds);
    }
    std::map<std::int64_t, Curve> curves;
    for (auto& [ranks, by_bytes] : by_ranks) {
        Curve& curve = curves[ranks];
        for (auto& [bytes, seconds] : by_bytes) {
            const double before = curve.empty() ? 0.0 : curve.back().seconds;
            curve.push_back({static_cast<double>(bytes), std::max(before, median(seconds))});
        }
    }
    return curves;
}

double time_on(const Curve& curve, double bytes) {
    if (bytes <= curve.front().bytes) return curve.front().seconds;
    if (bytes >= curve.back().bytes) {
        // A single sample does not separate latency from bandwidth, so its whole time scales with the bytes.
        const Point before = curve.size() > 1 ? curve[curve.size() - 2] : Point{};
        const Point last = curve.back();
        const double slope =
            last.bytes > before.bytes ? (last.seconds - before.seconds) / (last.bytes - before.bytes) : 0;
        return last.seconds + slope * (bytes - last.bytes);
    }
    const auto above = std::upper_bound(curve.begin(), curve.end(), bytes,
                                        [](double value, const Point& point) { return value < point.bytes; });
    const Point high = *above;
    const Point low = *std::prev(above);
    if (low.bytes <= 0) return low.seconds + (high.seconds - low.seconds) * bytes / high.bytes;
    const double along = std::log(bytes / low.bytes) / std::log(high.bytes / low.bytes);
    return low.seconds * std::exp(along * std::log(high.seconds / low.seconds));
}

double ring_share(std::int64_t ranks) {
    return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

bool has_samples(CommKind kind, const ClusterSpec& cluster) {
    const std::string op = sample_name(kind);
    return std::any_of(cluster.transport_samples.begin(), cluster.transport_samples.end(),
                       [&](const topologies::TransportSample& sample) { return sample.op == op; });
}

/// `times` operations of kind `of`, each with `bytes`, in sequence.
struct Composition {
    CommKind of{};
    double times = 0;
    std::int64_t bytes = 0;
};

std::optional<Composition> composition_of(CommKind kind, std::int64_t bytes, std::int64_t ranks,
                                          const ClusterSpec& cluster) {
    const auto others = static_cast<double>(ranks - 1);
    Composition parts{.of = CommKind::send};
    switch (kind) {
        case CommKind::exchange:
            parts.times = 2;
            parts.bytes = bytes;
            break;
        case CommKind::all_to_all:
        case CommKind::scatter:
        case CommKind::gather:
            parts.times = kind == CommKind::all_to_all ? 2 * others : others;
            parts.bytes = fraction_of(bytes, 1, ranks);
            break;
        case CommKind::broadcast:
        case CommKind::reduce:
            if (has_samples(CommKind::all_reduce, cluster)) return Composition{CommKind::all_reduce, 0.5, bytes};
            parts.times = others;
            parts.bytes = bytes;
            break;
        case CommKind::all_reduce:
        case CommKind::all_gather:
        case CommKind::reduce_scatter:
        case CommKind::send:
        case CommKind::recv:
            return std::nullopt;
    }
    return has_samples(CommKind::send, cluster) ? std::optional(parts) : std::nullopt;
}

}  // namespace

std::string composition(CommKind kind, const ClusterSpec& cluster) {
    if (has_samples(kind, cluster)) return "";
    const std::optional<Composition> parts = composition_of(kind, 0, 2, cluster);
    if (!parts) return "";
    return parts->of == CommKind::send ? "sends" : "half an " + std::string(program::name_of(parts->of));
}

MeasuredTime measured_time(CommKind kind, std::int64_t bytes, std::int64_t ranks, const ClusterSpec& cluster) {
    const std::string op = sample_name(kind);
    const std::map<std::int64_t, Curve> curves = curves_of(op, cluster);
    if (curves.empty()) {
        if (const std::optional<Composition> parts = composition_of(kind, bytes, ranks, cluster)) {
            const bool of_sends = parts->of == CommKind::send;
            MeasuredTime time = measured_time(parts->of, parts->bytes, of_sends ? 2 : ranks, cluster);
            time.latency_seconds *= parts->times;
            time.seconds *= parts->times;
            time.detail =
                (of_sends ? std::to_string(std::llround(parts->times)) + " x send, " : "half an all_reduce, ") +
                time.detail;
            time.is_composed = true;
            return time;
        }
        throw InputError("cluster " + cluster.name + ": transport_samples: no measurement of " + op +
                         "; run `orrery calibrate`, which measures this machine's transport");
    }
    // The bytes that a rank moves do not depend on the number of ranks.
    const bool is_pairwise = op == "send" || kind == CommKind::exchange;
    const auto scaled = [&](const std::pair<const std::int64_t, Curve>& entry) {
        const double factor = is_pairwise ? 1.0 : ring_share(ranks) / ring_share(entry.first);
        return Point{entry.second.front().seconds * factor, time_on(entry.second, static_cast<double>(bytes)) * factor};
    };
    auto above = curves.lower_bound(ranks);
    if (above == curves.end()) --above;
    auto below = above;
    if (above->first > ranks && above != curves.begin()) --below;

    MeasuredTime time;
    const auto [low_latency, low_seconds] = scaled(*below);
    if (below == above) {
        time.detail = (above->first == ranks ? "" : "scaled from ") + std::to_string(above->first) + " ranks";
        time.latency_seconds = low_latency;
        time.seconds = low_seconds;
        return time;
    }
    const auto [high_latency, high_seconds] = scaled(*above);
    const double along = static_cast<double>(ranks - below->first) / static_cast<double>(above->first - below->first);
    time.detail = "scaled from " + std::to_string(below->first) + " and " + std::to_string(above->first) + " ranks";
    time.latency_seconds = low_latency + along * (high_latency - low_latency);
    time.seconds = low_seconds + along * (high_seconds - low_seconds);
    return time;
}

}  // namespace orrery::sim
