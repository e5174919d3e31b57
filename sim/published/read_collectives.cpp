// Reads the four formats of files with measured collectives.
#include <algorithm>
#include <cmath>

#include "core/csv.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "core/units.h"
#include "sim/published/nccl_tests.h"
#include "sim/published/published_collectives.h"

namespace orrery::published {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

/// Bus bandwidth is the bytes that one member of a ring sends / time (nccl-tests, doc/PERFORMANCE.md).
double microseconds_of_bus_bandwidth(const PublishedCollective& row, double gb_per_s) {
    const auto ranks = static_cast<double>(row.ranks);
    const double share = (row.op == "all_reduce" ? 2 : 1) * (ranks - 1) / ranks;
    return static_cast<double>(*row.bytes) * share / (gb_per_s * kGigabyte) * 1e6;
}

PublishedCollective timed_row(const CsvRow& csv) {
    PublishedCollective row;
    row.hardware = csv.text("device");
    row.nccl_version = csv.optional_text("nccl_version");
    row.op = csv.text("op");
    row.dtype = csv.text("dtype");
    row.ranks = csv.integer("num_gpus", 1, kMostRanks);
    row.bytes = csv.integer("bytes", 0, kMostCollectiveBytes);
    row.measured_us = csv.positive("time_us");
    return row;
}

PublishedCollective bandwidth_row(const CsvRow& csv) {
    PublishedCollective row;
    row.source = csv.text("source");
    row.hardware = csv.text("system");
    row.setting = row.hardware;
    row.nccl_version = csv.optional_text("nccl");
    row.nodes = csv.integer("nodes", 1, kMostRanks);
    row.ranks = csv.integer("gpus", 2, kMostRanks);
    row.bytes = csv.integer("payload_bytes", 1, kMostCollectiveBytes);
    if (row.hardware.find("nccl-tests") != std::string::npos) row.tool = "nccl-tests";
    row.op = "all_reduce";  // the table's subject, unless a system's words name another
    for (const char* op : {"all_gather", "reduce_scatter"}) {
        if (row.hardware.find(op) != std::string::npos) row.op = op;
    }
    const double gb_per_s = csv.positive("busbw_GBps");
    row.measured_us = microseconds_of_bus_bandwidth(row, gb_per_s);
    // Printed with two decimals: 0.1 GB/s is known to 5%.
    if (gb_per_s < 0.1) row.doubt = "a bus bandwidth printed with a single digit";
    return row;
}

std::vector<PublishedCollective> from_csv(const std::string& text, const std::string& file) {
    static const std::vector<std::string> timed{"device",   "nccl_version", "op",     "dtype",
                                                "num_gpus", "bytes",        "time_us"};
    static const std::vector<std::string> bandwidth{"source", "system",        "nccl",      "nodes",
                                                    "gpus",   "payload_bytes", "busbw_GBps"};
    const CsvTable table(text, file);
    const auto has_all = [&](const std::vector<std::string>& columns) {
        return std::all_of(columns.begin(), columns.end(),
                           [&](const std::string& column) { return table.has(column); });
    };
    const bool is_timed = has_all(timed);
    if (!is_timed && !has_all(bandwidth)) {
        throw InputError(file, "the first line", table.first_line(),
                         "output of nccl-tests, a JSON list, or CSV columns "
                         "device,nccl_version,op,dtype,num_gpus,bytes,time_us or "
                         "source,system,nccl,nodes,gpus,payload_bytes,busbw_GBps");
    }
    std::vector<PublishedCollective> rows;
    for (const CsvRow& csv : table.rows()) {
        rows.push_back(is_timed ? timed_row(csv) : bandwidth_row(csv));
        rows.back().id = std::to_string(csv.number());
    }
    return rows;
}

std::string text_or_empty(const JsonReader& reader, const std::string& key) {
    return reader.has(key) && !reader.is_null(key) ? reader.string(key) : "";
}

PublishedCollective json_row(const JsonReader& reader) {
    PublishedCollective row;
    row.id = reader.string("id");
    row.source = reader.string("source");
    row.hardware = reader.string("hardware");
    row.setting = text_or_empty(reader, "setting");
    row.tool = text_or_empty(reader, "tool");
    row.op = reader.string("collective");
    row.dtype = text_or_empty(reader, "dtype");
    row.nccl_version = text_or_empty(reader, "nccl_version");
    row.ranks = reader.integer("ranks", {1, kMostRanks});
    row.nodes = reader.integer("nodes", {1, kMostRanks});
    if (!reader.is_null("size_bytes")) row.bytes = reader.integer("size_bytes", {0, kMostCollectiveBytes});
    if (!reader.is_null("time_us")) row.measured_us = reader.number("time_us", kPositive);
    return row;
}

std::vector<PublishedCollective> from_json(const std::string& text, const std::string& file) {
    // The JSON reader needs an object as document: "/rows/7/ranks" is the value of the list's eighth row.
    const JsonReader document = JsonReader::parse("{\"rows\":" + text + "}", file, JsonPolicy::lenient);
    std::vector<PublishedCollective> rows;
    for (const JsonReader& reader : document.objects("rows")) rows.push_back(json_row(reader));
    return rows;
}

}  // namespace

std::vector<PublishedCollective> published_collectives_from_text(const std::string& text, const std::string& file) {
    if (is_nccl_tests_log(text)) return collectives_of_nccl_tests(text, file);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string::npos && (text[first] == '[' || text[first] == '{');
    return is_json ? from_json(text, file) : from_csv(text, file);
}

std::vector<PublishedCollective> read_published_collectives(const std::string& path) {
    return published_collectives_from_text(read_text_file(path), path);
}

}  // namespace orrery::published
