#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "sim/published/published_collectives.h"

namespace orrery::published {
namespace {

const std::string kTimed =
    "device,nccl_version,op,dtype,num_gpus,bytes,time_us\n"
    "NVIDIA H200,2.29.2,all_reduce,half,8,1048576,26.1\n"
    "NVIDIA H200,2.29.2,alltoall,int8,2,512,6.5\r\n";
const std::string kBandwidth =
    "source,system,nccl,nodes,gpus,payload_bytes,busbw_GBps\n"
    "\"someone, somewhere\",8xH200 all_gather ring,2.27.7,1,8,8000000,350\n"
    "someone,2x8 H200 400G RoCE,,2,16,16000000,0.01\n";
const std::string kJson =
    R"json([{"id": "a", "source": "s", "hardware": "H100:8 x2 (InfiniBand)", "ranks": 16, "nodes": 2,
    "collective": "all_reduce", "size_bytes": 1024, "time_us": 31.5, "nccl_version": null, "note": "unread"}])json";

void expect_refused(const std::string& text, const std::vector<std::string>& words) {
    try {
        (void)published_collectives_from_text(text, "some.file");
        FAIL() << "not refused: " << text;
    } catch (const InputError& error) {
        for (const std::string& word : words) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        }
    }
}

std::string replaced(std::string text, const std::string& part, const std::string& by) {
    return text.replace(text.find(part), part.size(), by);
}

TEST(PublishedCollectives, ReadsBothCsvFormatsAndJson) {
    const auto timed = published_collectives_from_text(kTimed, "f");
    ASSERT_EQ(timed.size(), 2U);
    EXPECT_EQ(timed[1].id, "2");
    EXPECT_EQ(timed[1].op, "alltoall");
    EXPECT_EQ(timed[1].ranks, 2);
    EXPECT_EQ(timed[1].bytes, 512);
    EXPECT_DOUBLE_EQ(*timed[1].measured_us, 6.5);

    const auto bandwidth = published_collectives_from_text(kBandwidth, "f");
    ASSERT_EQ(bandwidth.size(), 2U);
    EXPECT_EQ(bandwidth[0].source, "someone, somewhere");
    EXPECT_EQ(bandwidth[0].op, "all_gather");
    // 7/8 of 8 MB at 350 GB/s
    EXPECT_DOUBLE_EQ(*bandwidth[0].measured_us, 20);
    EXPECT_EQ(bandwidth[0].doubt, "");
    // 2 * 15/16 of 16 MB at 0.01 GB/s: one digit is too imprecise
    EXPECT_DOUBLE_EQ(*bandwidth[1].measured_us, 3e6);
    EXPECT_NE(bandwidth[1].doubt, "");

    const auto json = published_collectives_from_text(kJson, "f");
    ASSERT_EQ(json.size(), 1U);
    EXPECT_EQ(json[0].id, "a");
    EXPECT_EQ(json[0].nodes, 2);
    EXPECT_EQ(json[0].nccl_version, "");
}

/// Output of nccl-tests with placeholders "OP" and "ROWS".
constexpr const char* kLog = R"(# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: OP
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validate: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4011 on     node-a device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   4011 on     node-a device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   4011 on     node-a device  2 [0000:52:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   4011 on     node-a device  3 [0000:61:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
ROWS
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 60.1
)";
std::string log_of(const std::string& op, const std::string& rows) {
    return replaced(replaced(kLog, "OP", op), "ROWS", rows);
}
constexpr const char* kReduced =
    "     1048576        262144     float     sum      -1    20.00   52.43   78.64       0    25.00   41.94   62.91    "
    "   0";

TEST(PublishedCollectives, ReadsTheOutputOfNcclTests) {
    const auto rows = published_collectives_from_text(log_of("all_reduce_perf", kReduced), "job-7.out");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].op, "all_reduce");
    EXPECT_EQ(rows[0].dtype, "float");
    EXPECT_EQ(rows[0].hardware, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(rows[0].tool, "nccl-tests");
    EXPECT_EQ(rows[0].nccl_version, "2.28.7");
    EXPECT_EQ(rows[0].ranks, 4);
    EXPECT_EQ(rows[0].nodes, 1);
    EXPECT_EQ(rows[0].bytes, 1048576);
    EXPECT_DOUBLE_EQ(*rows[0].measured_us, 20);
    EXPECT_DOUBLE_EQ(*rows[1].measured_us, 25);
    EXPECT_EQ(rows[1].id, rows[0].id + " in place");
    EXPECT_TRUE(setup_of(rows[0]).setup.has_value()) << setup_of(rows[0]).reason;

    // Not all programs measure in place.
    const auto exchanged = published_collectives_from_text(
        log_of("alltoall_perf", "1048576 65536 half none -1 20.00 52.43 39.32 0 N/A N/A N/A N/A"), "f");
    ASSERT_EQ(exchanged.size(), 1U);
    EXPECT_EQ(exchanged[0].op, "alltoall");
}

/// Older releases do not name the program; the columns or the file name identify it.
TEST(PublishedCollectives, IdentifiesTheProgramOfOldNcclTests) {
    const auto op_of = [](const std::string& row, const std::string& file) {
        const std::string text = replaced(log_of("", row), "# Collective test starting: \n", "");
        return published_collectives_from_text(text, file).front().op;
    };
    EXPECT_EQ(op_of(kReduced, "f"), "all_reduce");
    EXPECT_EQ(op_of("1048576 65536 float sum -1 20.00 52.43 39.32 0 20.00 52.43 39.32 0", "f"), "reduce_scatter");
    EXPECT_EQ(op_of("1048576 262144 float none 0 20.00 52.43 52.43 0 20.00 52.43 52.43 0", "f"), "broadcast");
    EXPECT_EQ(op_of("1048576 262144 float sum 0 20.00 52.43 52.43 0 20.00 52.43 52.43 0", "f"), "reduce");
    const char* const gathered = "1048576 65536 float none -1 20.00 52.43 39.32 0 20.00 52.43 39.32 0";
    EXPECT_EQ(op_of(gathered, "logs/all_gather_perf.4.out"), "all_gather");
    EXPECT_THROW((void)op_of(gathered, "all_gather/job-7.out"), InputError) << "all_gather or all-to-all";
}

TEST(PublishedCollectives, ReadsNcclTestsOfSeveralHostsUnderMpi) {
    std::string text = log_of("all_reduce_perf", kReduced);
    text = replaced(replaced(text, "node-a device  2", "node-b device  0"), "node-a device  3", "node-b device  1");
    text =
        "node-a:41:41 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
        "node-a:41:90 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n" +
        replaced(text, "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n", "");
    std::string prefixed = "[1,0]<stdout>:";
    for (const char letter : text)
        prefixed += letter == '\n' ? std::string("\n[1,0]<stdout>:") : std::string(1, letter);
    const auto rows = published_collectives_from_text(prefixed, "f");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].nodes, 2);
    EXPECT_EQ(rows[0].nccl_version, "2.21.5");
    EXPECT_EQ(rows[0].hardware, "NVIDIA H100 80GB HBM3 (InfiniBand)");
    EXPECT_TRUE(setup_of(rows[0]).setup.has_value()) << setup_of(rows[0]).reason;
}

TEST(PublishedCollectives, RefusesIncompleteNcclTests) {
    expect_refused(log_of("all_reduce_perf", ""), {"some.file", "its rows", "none"});
    expect_refused(replaced(log_of("all_reduce_perf", kReduced), "20.00", "-1.00"),
                   {"some.file", "line 14", "time out of place", "'-1.00'", "greater than 0"});
    std::string anonymous = log_of("all_reduce_perf", kReduced);
    while (anonymous.find("#  Rank") != std::string::npos) anonymous = replaced(anonymous, "#  Rank", "#  Rang");
    expect_refused(anonymous, {"some.file", "the ranks", "none", "# Rank 0"});
}

/// `orrery collectives` accepts these names, so tables may use them.
TEST(PublishedCollectives, KnowsOurOwnNamesOfOperationsAndTypes) {
    for (const auto& [op, dtype] : {std::pair{"all_to_all", "fp32"}, {"all_reduce", "bf16"}, {"all_gather", "fp16"}}) {
        PublishedCollective row = published_collectives_from_text(kTimed, "f").front();
        row.op = op;
        row.dtype = dtype;
        EXPECT_TRUE(setup_of(row).setup.has_value()) << setup_of(row).reason;
    }
}

/// Must not divide by zero GPUs per node.
TEST(PublishedCollectives, RefusesMoreNodesThanRanks) {
    const auto rows = published_collectives_from_text(replaced(kBandwidth, "2.27.7,1,8,", "2.27.7,27,8,"), "f");
    EXPECT_FALSE(setup_of(rows.front()).setup.has_value());
    EXPECT_EQ(setup_of(rows.front()).reason, "8 ranks on 27 nodes");
}

TEST(PublishedCollectives, RefusesNamingFileRowAndColumn) {
    expect_refused("", {"some.file", "the first line"});
    expect_refused("a,b\n1,2\n", {"some.file", "num_gpus", "busbw_GBps"});
    expect_refused(std::string("a,b\n1,\0002\n", 9), {"some.file", "a NUL"});
    expect_refused(replaced(kTimed, "8,1048576", "0,1048576"), {"some.file", "row 1", "num_gpus", "'0'"});
    expect_refused(replaced(kTimed, "1048576", "1e6"), {"row 1", "bytes", "'1e6'"});
    expect_refused(replaced(kTimed, "1048576", "99999999999999999999"), {"row 1", "bytes"});
    expect_refused(replaced(kTimed, ",6.5", ",-6.5"), {"row 2", "time_us", "greater than 0"});
    expect_refused(replaced(kTimed, ",6.5", ",nan"), {"row 2", "time_us"});
    expect_refused(replaced(kTimed, ",6.5", ",6.5,7"), {"row 2", "8 fields", "7"});
    expect_refused(replaced(kTimed, "alltoall", ""), {"row 2", "column op"});
    expect_refused(replaced(kBandwidth, ",350", ",x"), {"row 1", "busbw_GBps", "'x'"});
    expect_refused(replaced(kJson, "\"ranks\": 16", "\"ranks\": \"16\""), {"/rows/0/ranks"});
    expect_refused(replaced(kJson, "31.5", "-1"), {"/rows/0/time_us"});
    expect_refused(replaced(kJson, "\"id\": \"a\", ", ""), {"/rows/0", "id"});
    expect_refused("[1]", {"some.file"});
    expect_refused("{}", {"some.file"});
}

PublishedCollective row_on(const std::string& hardware, std::int64_t ranks, std::int64_t nodes = 1) {
    PublishedCollective row;
    row.hardware = hardware;
    row.op = "all_reduce";
    row.ranks = ranks;
    row.nodes = nodes;
    row.bytes = 1024;
    return row;
}

std::string reason_of(const PublishedCollective& row) {
    const SetupOfRow translated = setup_of(row);
    EXPECT_FALSE(translated.setup) << row.hardware;
    return translated.reason;
}

TEST(PublishedCollectives, WordsNameTheClusterAndNcclsSettings) {
    const auto setup = [](const PublishedCollective& row) { return setup_of(row).setup.value(); };
    EXPECT_EQ(setup(row_on("NVIDIA A100-SXM4-80GB", 4)).cluster.name, "dgx-a100");
    EXPECT_EQ(setup(row_on("8x H200 node", 5)).cluster.name, "hgx-h200");
    const CollectiveSetup efa = setup(row_on("AWS p5 (8x H100, EFA)", 16, 2));
    EXPECT_EQ(efa.cluster.nic.name, "efa-400");
    EXPECT_EQ(efa.cluster.nodes, 2);
    EXPECT_FALSE(efa.sharp);
    EXPECT_TRUE(setup(row_on("HGX H100, InfiniBand NDR with SHARP", 96, 12)).sharp);
    EXPECT_FALSE(setup(row_on("8x H200 (NVLS/SHARP on)", 8)).sharp);  // inside the node: NVLS
    PublishedCollective ring = row_on("8x H200 node", 8);
    EXPECT_FALSE(setup(ring).nvls_off);
    ring.setting = "NCCL_NVLS_ENABLE=0 (ring)";
    EXPECT_TRUE(setup(ring).nvls_off);
    // A rack is one NVLink domain, regardless of how many nodes the source counts in it.
    EXPECT_EQ(setup(row_on("GB200 NVL72", 72, 18)).cluster.nodes, 1);
    EXPECT_EQ(setup(row_on("GB200 NVL72 x20 racks (IB between racks)", 1440, 360)).cluster.nodes, 20);
    EXPECT_EQ(setup(row_on("H100 (GPUDirect-TCPX)", 16, 2)).cluster.nics_per_node, 4);
}

TEST(PublishedCollectives, UnknownRowsHaveNoSetupAndAReason) {
    EXPECT_NE(reason_of(row_on("8x MI300X", 8)).find("MI300X"), std::string::npos);
    EXPECT_NE(reason_of(row_on("H100", 16, 2)).find("no network"), std::string::npos);
    EXPECT_NE(reason_of(row_on("H100", 16)).find("at most 8"), std::string::npos);
    EXPECT_NE(reason_of(row_on("H100 NDR", 17, 2)).find("17 ranks on 2 nodes"), std::string::npos);
    PublishedCollective odd = row_on("H100", 8);
    odd.op = "moe_dispatch";
    EXPECT_NE(reason_of(odd).find("moe_dispatch"), std::string::npos);
    odd = row_on("H100", 8);
    odd.dtype = "complex";
    EXPECT_NE(reason_of(odd).find("complex"), std::string::npos);
    odd = row_on("H100", 8);
    odd.bytes.reset();
    EXPECT_NE(reason_of(odd).find("size"), std::string::npos);
}

TEST(PublishedCollectives, ReadsTheSharedFiles) {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::string folder = shared != nullptr ? shared : std::string(ORRERY_SOURCE_DIR) + "/../shared";
    if (!std::filesystem::exists(folder + "/validation/collectives.json")) {
        GTEST_SKIP() << folder << " has no measured collectives; set ORRERY_SHARED";
    }
    std::size_t rows = 0, translated = 0;
    for (const char* name : {"/samples/measured/nccl_collectives_measured.csv",
                             "/samples/measured/allreduce_busbw_published.csv", "/validation/collectives.json"}) {
        for (const PublishedCollective& row : read_published_collectives(folder + name)) {
            const SetupOfRow setup = setup_of(row);
            EXPECT_NE(setup.setup.has_value(), !setup.reason.empty());
            ++rows;
            translated += setup.setup ? 1 : 0;
        }
    }
    EXPECT_GT(rows, 3000U);
    EXPECT_GT(static_cast<double>(translated), 0.6 * static_cast<double>(rows));
}

}  // namespace
}  // namespace orrery::published
