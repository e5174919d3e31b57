// The JSON that exec writes conforms to docs/schema.
#include <gtest/gtest.h>

#include "core/file.h"
#include "exec/calibrate.h"
#include "exec/gradients.h"
#include "tests/house/json_schema.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::exec {
namespace {

TEST(Documents, Measurements) {
    Measurements measurements{.ranks = 2, .cores = 2, .context_bytes = 1e7, .launch_s = 1e-6};
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(to_json_text(measurements)), "") << "measurements without samples";
    measurements.matmuls.push_back({.op = "linear_forward", .m = 4, .n = 5, .k = 6, .seconds = 1e-6, .bias = true});
    measurements.operators.push_back({.op = "any",
                                      .bytes = 64,
                                      .flops = 20,
                                      .seconds = 1e-7,
                                      .n = 1,
                                      .k = 2,
                                      .heads = 3,
                                      .kv_heads = 4,
                                      .elements = 5});
    measurements.transfers.push_back({"all_reduce", 2, 64, 1e-5});
    const std::string text = to_json_text(measurements);
    EXPECT_EQ(schemas.check(text), "");
    EXPECT_EQ(to_json_text(measurements_from_json_text(text, "again")), text);
    measurements.matmuls.front().seconds = 0;
    EXPECT_NE(schemas.check(to_json_text(measurements)), "");
}

TEST(Documents, GradientsHeader) {
    const TestFolder folder;
    const std::string path = folder.file("gradients");
    write_tensors(path, {{"head.norm.weight", {2, 1, {0.5F, -1.0F}}}, {"a", {1, 1, {3.0F}}}});
    const std::string content = read_text_file(path);
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(content.substr(0, content.find('\n'))), "");
    EXPECT_EQ(content.size() - content.find('\n') - 1, 3 * sizeof(float));
}

}  // namespace
}  // namespace orrery::exec
