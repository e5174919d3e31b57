// Collectives measured and published by others with nccl-tests or similar tools, one row each: what was run, where, and
// how long it took.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "topologies/cluster_spec.h"

namespace orrery::published {

/// What a source states about one measured collective. Empty texts were not stated.
struct PublishedCollective {
    std::string id;        // the stated id, or the row's number from 1
    std::string source;    // who measured it
    std::string hardware;  // in the source's words: "NVIDIA H200", "Nebius H100:8 x2 (InfiniBand)"
    std::string setting;   // NCCL's settings in the source's words: "NCCL_NVLS_ENABLE=0 (ring)"
    std::string tool;      // the measuring tool: "nccl-tests", "all_reduce_bench.py (PyTorch)"
    std::string op;        // "all_reduce", "all_gather", "reduce_scatter", "alltoall", ...
    std::string dtype;     // NCCL's name: "half", "int8", "float"
    std::string nccl_version;
    std::int64_t ranks = 0;
    std::int64_t nodes = 1;
    std::optional<std::int64_t> bytes;  // message size S: per rank for all-reduce, over all ranks for the others
    std::optional<double> measured_us;  // printed, or derived from the printed bus bandwidth
    std::string doubt;                  // why the measured time is unreliable; empty: it is reliable
};

/// Where and how a row ran: a cluster, of which devices 0 to ranks - 1 take part, and NCCL's settings.
struct CollectiveSetup {
    topologies::ClusterSpec cluster;
    program::CommKind kind{};
    std::optional<DType> dtype;  // element type; unset: not stated, a floating-point type
    bool nvls_off = false;       // NVLS was disabled, which forces the ring
    bool sharp = false;          // the fabric's switches reduce
    topologies::Figure tool_us;  // overhead of the measuring tool
};
struct SetupOfRow {
    std::optional<CollectiveSetup> setup;
    std::string reason;  // why there is no setup: unknown operation, device, network or shape
};

/// Reads a file in one of four formats, recognised by content (docs/validation.md): output of nccl-tests, CSV with
/// times (`time_us`) by device, CSV with bus bandwidths (`busbw_GBps`) by system, or a JSON list. Throws InputError
/// naming file, row and column for any other content and for a missing or invalid value.
[[nodiscard]] std::vector<PublishedCollective> read_published_collectives(const std::string& path);
[[nodiscard]] std::vector<PublishedCollective> published_collectives_from_text(const std::string& text,
                                                                               const std::string& file);

/// Uses only the published description, never the measurement.
[[nodiscard]] SetupOfRow setup_of(const PublishedCollective& row);

}  // namespace orrery::published
