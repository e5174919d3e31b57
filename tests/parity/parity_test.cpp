// All plans train the same model. Each is run for real and compared with a run on one rank, which is compared with
// PyTorch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/file.h"
#include "tests/parity/job.h"
#include "tests/parity/pairwise.h"
#include "tests/parity/plans.h"
#include "tests/parity/record_checks.h"
#include "tests/unit/models/unfused.h"
#include "topologies/cluster_spec.h"

namespace orrery::parity {
namespace {

constexpr double kEpsilon = 0x1p-23;  // spacing of fp32 at 1

/// Allowed deviation from one rank in fp32, by type.
struct Tolerance {
    double loss = 1e-6;  // relative
    double epsilon = kEpsilon;
};
Tolerance tolerance_of(const program::Plan& plan) {
    if (plan.training.precision.activation == DType::bf16) return {.loss = 5e-3, .epsilon = 0x1p-7};
    // Gradients that differ in their last bit may be rounded to other moments.
    if (plan.training.precision.moments == DType::bf16) return {.loss = 1e-5};
    return {};
}

double norm(const exec::GlobalTensor& tensor) {
    double sum = 0;
    for (const float value : tensor.values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}
double distance(const exec::GlobalTensor& a, const exec::GlobalTensor& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) {
        const double difference = static_cast<double>(a.values[i]) - static_cast<double>(b.values[i]);
        sum += difference * difference;
    }
    return std::sqrt(sum);
}
double norm_of_all(const exec::GlobalTensors& tensors) {
    double sum = 0;
    for (const auto& [name, tensor] : tensors) sum += std::pow(norm(tensor), 2);
    return std::sqrt(sum);
}

/// The depth of a tensor: 0 for the embedding, 1 to `layers` for the blocks, layers + 1 for the head.
std::int64_t depth_of(const std::string& tensor, std::int64_t layers) {
    if (tensor.starts_with("layers.")) return std::stoll(tensor.substr(7)) + 1;
    return tensor.starts_with("head.") ? layers + 1 : 0;
}

void expect_losses(const std::vector<double>& losses, const std::vector<double>& reference,
                   const Tolerance& tolerance = {}) {
    ASSERT_EQ(losses.size(), reference.size());
    for (std::size_t step = 0; step < losses.size(); ++step) {
        EXPECT_LE(std::abs(losses[step] - reference[step]), tolerance.loss * reference[step])
            << "step " << step << ": " << losses[step] << " against " << reference[step];
    }
}

/// The Frobenius norm of the difference is at most 4 * 1.03^(L + 1 - l) * epsilon times that of a tensor of depth l,
/// plus half an epsilon of the whole gradient. The latter is for gradients that are small differences of large numbers,
/// above all those of the key bias, which are zero except for rounding.
void expect_gradients(const exec::GlobalTensors& gradients, const exec::GlobalTensors& reference, std::int64_t layers,
                      const Tolerance& tolerance) {
    ASSERT_EQ(gradients.size(), reference.size());
    const double rounding = 0.5 * tolerance.epsilon * norm_of_all(reference);
    for (const auto& [name, expected] : reference) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(gradients.contains(name));
        const exec::GlobalTensor& tensor = gradients.at(name);
        ASSERT_EQ(tensor.rows, expected.rows);
        ASSERT_EQ(tensor.cols, expected.cols);
        const auto height = static_cast<double>(layers + 1 - depth_of(name, layers));
        EXPECT_LE(distance(tensor, expected),
                  4 * std::pow(1.03, height) * tolerance.epsilon * norm(expected) + rounding);
    }
}

std::string word(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

class OneRank : public testing::TestWithParam<const char*> {};

TEST_P(OneRank, HasAReference) {
    ASSERT_NO_THROW(store_reference(GetParam()));
    const Reference& reference = reference_of(GetParam());
    EXPECT_EQ(reference.losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_LT(reference.losses.back(), reference.losses.front());  // the model learns
}
INSTANTIATE_TEST_SUITE_P(Models, OneRank, testing::ValuesIn(model_names()),
                         [](const auto& one) { return word(one.param); });

/// The number of parts that are entirely zero, of a tensor of `parts` equal consecutive parts.
std::int64_t zero_parts(const exec::GlobalTensor& tensor, std::int64_t parts) {
    const auto size = static_cast<std::ptrdiff_t>(tensor.values.size()) / parts;
    std::int64_t count = 0;
    for (auto part = tensor.values.begin(); part != tensor.values.end(); part += size) {
        count += std::all_of(part, part + size, [](float value) { return value == 0; }) ? 1 : 0;
    }
    return count;
}

TEST(IdleExperts, HaveNoGradient) {
    const std::int64_t experts = model_named("tiny-mixtral-idle").moe.expert_count;
    const exec::GlobalTensor& down =
        reference_of("tiny-mixtral-idle").first_gradients.at("layers.0.experts.down.weight");
    EXPECT_GT(zero_parts(down, experts), 0);
    EXPECT_LT(zero_parts(down, experts), experts);
}

class PyTorch : public testing::TestWithParam<const char*> {};

TEST_P(PyTorch, AgreesWithOneRank) {
    const std::string path = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/torch_" + word(GetParam()) + ".json";
    const nlohmann::json golden = nlohmann::json::parse(read_text_file(path));
    const Reference& reference = reference_of(GetParam());
    expect_losses(reference.losses, golden.at("losses").get<std::vector<double>>());
    const auto norms = golden.at("gradient_norms").get<std::map<std::string, double>>();
    ASSERT_EQ(norms.size(), reference.first_gradients.size());
    const double rounding = kEpsilon * norm_of_all(reference.first_gradients);
    for (const auto& [name, tensor] : reference.first_gradients) {
        ASSERT_TRUE(norms.contains(name)) << name;
        EXPECT_NEAR(norm(tensor), norms.at(name), 1e-6 * norms.at(name) + rounding) << name;
    }
}
INSTANTIATE_TEST_SUITE_P(Models, PyTorch, testing::Values("tiny-gpt", "tiny-llama", "tiny-latent"),
                         [](const auto& one) { return word(one.param); });

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
    return word(info.param.model) + "_" + info.param.shape.name;
}

class EveryPlan : public testing::TestWithParam<Case> {};

TEST_P(EveryPlan, TrainsLikeOneRank) {
    const Reference& reference = reference_of(GetParam().model);
    Job job(make_plan(GetParam()));
    job.run(kSteps);
    const program::RunRecord record = job.record();
    const Tolerance tolerance = tolerance_of(*job.program().plan);
    expect_losses(record.losses, reference.losses, tolerance);
    expect_bytes_of_program(job.program(), record);
    expect_order_of_program(job.program(), record);
    // Only the first step's gradients are compared, because rounding has already changed the weights of later steps.
    job.run(1);
    EXPECT_EQ(job.record().losses.at(0), record.losses.at(0));
    expect_gradients(job.gradients(), reference.first_gradients, job.program().plan->model.layers, tolerance);
}
const Pruned& pruned() {
    static const Pruned cases = pruned_pairwise(all_cases());
    return cases;
}
INSTANTIATE_TEST_SUITE_P(Plans, EveryPlan, testing::ValuesIn(pruned().kept), name_of_case);
INSTANTIATE_TEST_SUITE_P(MorePlans, EveryPlan, testing::ValuesIn(pruned().others), name_of_case);

/// Moments in bf16 change the training, but little: no rounding of a moment is above 2^-9 of it.
TEST(Moments, InBf16TrainLikeThoseInFp32) {
    const Reference &wide = reference_of("tiny-gpt"), &narrow = reference_of("tiny-gpt-moments");
    EXPECT_EQ(narrow.losses.front(), wide.losses.front());  // no moment has been stored yet
    EXPECT_NE(narrow.losses.back(), wide.losses.back());
    expect_losses(narrow.losses, wide.losses, {.loss = 1e-3});
}

/// On CPU cores the parts of a fused operator run one after the other. Only tensor-parallel ranks with an online
/// softmax add the parts of the vocabulary up in another way than without.
TEST(FusedOperators, ChangeNoBitOnCpuRanks) {
    const std::set<std::string> names{"tiny-gpt tp2_sp", "tiny-gpt bf16_dp2", "tiny-llama dp2",
                                      "tiny-llama bf16_tp4_sp"};
    int found = 0;
    for (const Case& one : all_cases()) {
        if (!names.contains(one.model + " " + one.shape.name)) continue;
        ++found;
        program::Plan plan = make_plan(one);
        plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
        Job fused(plan);
        plan.implementation = models::samples::unfused(plan.implementation);
        plan.implementation.kernels.online_softmax = plan.parallelism.tp > 1;
        Job apart(plan);
        fused.run(3, {"--on-cpu"});
        apart.run(3, {"--on-cpu"});
        EXPECT_EQ(fused.record().losses, apart.record().losses) << one;
    }
    EXPECT_EQ(found, std::ssize(names));
}

class Again : public testing::TestWithParam<Case> {};

TEST_P(Again, GivesBitwiseEqualResults) {
    Job job(make_plan(GetParam()));
    job.run(kSteps);
    const std::vector<double> losses = job.record().losses;
    const exec::GlobalTensors gradients = job.gradients();
    job.run(kSteps);
    EXPECT_EQ(job.record().losses, losses);
    const exec::GlobalTensors repeated = job.gradients();
    for (const auto& [name, tensor] : gradients) EXPECT_EQ(repeated.at(name).values, tensor.values) << name;
}
INSTANTIATE_TEST_SUITE_P(Plans, Again, testing::ValuesIn(repeated_cases()), name_of_case);

}  // namespace
}  // namespace orrery::parity
