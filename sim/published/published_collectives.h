// Collectives that others measured with nccl-tests or alike, one row each: what was run and where, and how long it
// took.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "topologies/cluster_spec.h"

namespace orrery::published {

/// What a source says of one measured collective. An empty text was not stated.
struct PublishedCollective {
    std::string id;        // or the row's number, from 1
    std::string source;    // who measured it
    std::string hardware;  // in the source's words: "NVIDIA H200", "Nebius H100:8 x2 (InfiniBand)"
    std::string setting;   // the published words on how NCCL was set: "NCCL_NVLS_ENABLE=0 (ring)"
    std::string tool;      // what measured: "nccl-tests", "all_reduce_bench.py (PyTorch)"
    std::string op;        // "all_reduce", "all_gather", "reduce_scatter", "alltoall", ...
    std::string dtype;     // NCCL's name: "half", "int8", "float"
    std::string nccl_version;
    std::int64_t ranks = 0;
    std::int64_t nodes = 1;
    std::optional<std::int64_t> bytes;  // the message size S: all-reduce per rank, the others over all ranks
    std::optional<double> measured_us;  // printed, or what the printed bus bandwidth comes to
    std::string doubt;                  // why the measured time is not to be compared with; empty: it is
};

/// Where a row ran and how: a cluster, its devices 0 to ranks - 1, and what NCCL was told.
struct CollectiveSetup {
    topologies::ClusterSpec cluster;
    program::CommKind kind{};
    std::optional<DType> dtype;  // of the elements; not stated: a floating-point type
    bool nvls_off = false;       // the ring was forced
    bool sharp = false;          // the fabric's switches reduce
    topologies::Figure tool_us;  // that the measuring tool takes beside the collective
};
struct SetupOfRow {
    std::optional<CollectiveSetup> setup;
    std::string reason;  // why there is none: the op, the device, the network or the shape is not known
};

/// A file of one of four forms, told apart by its content (docs/validation.md): what nccl-tests prints, CSV with a
/// column `time_us` for each device, CSV with a column `busbw_GBps` for each system, or a JSON list. Throws InputError
/// naming file, row and column when it is none of them, or a value is missing, of the wrong kind, or not possible.
[[nodiscard]] std::vector<PublishedCollective> read_published_collectives(const std::string& path);
[[nodiscard]] std::vector<PublishedCollective> published_collectives_from_text(const std::string& text,
                                                                               const std::string& file);

/// By published words only, never by what was measured.
[[nodiscard]] SetupOfRow setup_of(const PublishedCollective& row);

}  // namespace orrery::published
