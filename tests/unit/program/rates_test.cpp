#include "sim/program/rates.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "sim/program/work_rates.h"

namespace orrery::program {
namespace {

const char* const kCatalogue = R"({
  "schema": "orrery.rates/1",
  "rates": {
    "implementation/megatron-core/computation": {"value": 1.2, "kind": "fitted", "source": "runs", "prior": 1, "sd": 0.1},
    "implementation/megatron-core/head": {"value": 1.5, "kind": "fitted", "source": "runs", "prior": 1.1, "sd": 0.4, "information": 0.9},
    "implementation/megatron-core/host_step_ms": {"value": 30, "kind": "fitted", "source": "runs", "prior": 10, "sd": 1.2},
    "device/sm_90/products": {"value": 1.3, "kind": "fitted", "source": "runs", "prior": 1.1, "sd": 0.2},
    "fabric/infiniband/fabric": {"value": 1.4, "kind": "measured", "source": "a cluster", "prior": 1.35, "sd": 0.4}
  }
})";

Rates resolved(const std::string& implementation, const std::string& cluster) {
    return resolve_rates(models::load_implementation(implementation), topologies::load_cluster(cluster, 16),
                         rates_from_json_text(kCatalogue, "rates.json"));
}

TEST(Rates, AStacksFiguresExceptHostTimeApplyToDerivedStacks) {
    const Rates own = resolved("megatron-core", "dgx-h100");
    EXPECT_EQ(own[RateKey::head], 1.5);
    EXPECT_EQ(own[RateKey::host_step_ms], 30);
    const Rates based = resolved("nemo", "dgx-h100");
    EXPECT_EQ(based[RateKey::head], 1.5);
    EXPECT_EQ(based.of(RateKey::head).name, "implementation/megatron-core/head");
    EXPECT_EQ(own[RateKey::computation], 1.2);
    EXPECT_EQ(based[RateKey::computation], 1);
    EXPECT_EQ(based[RateKey::host_step_ms], row_of(RateKey::host_step_ms).prior);
    EXPECT_EQ(based.of(RateKey::host_step_ms).name, "implementation/nemo/host_step_ms");
    EXPECT_EQ(resolved("nanotron", "dgx-h100")[RateKey::head], row_of(RateKey::head).prior);
}

TEST(Rates, AStackWithOtherSettingsHasAllRatesOfItsBase) {
    EXPECT_EQ(resolved("megatron-core-flex", "dgx-h100"), resolved("megatron-core", "dgx-h100"));
}

TEST(Rates, DevicesAreMatchedByArchitectureAndFabricsByFamily) {
    EXPECT_EQ(resolved("nemo", "dgx-h100")[RateKey::products], 1.3);
    EXPECT_EQ(resolved("nemo", "hgx-h200")[RateKey::products], 1.3);
    EXPECT_EQ(resolved("nemo", "dgx-b200")[RateKey::products], row_of(RateKey::products).prior);
    EXPECT_EQ(resolved("nemo", "dgx-b200").of(RateKey::products).name, "device/sm_100/products");
    EXPECT_EQ(resolved("nemo", "dgx-h100")[RateKey::fabric], 1.4);
    EXPECT_EQ(resolved("nemo", "aws-p5")[RateKey::fabric], row_of(RateKey::fabric).prior);
}

TEST(Rates, OfAPlanFileAreThoseOfItsCluster) {
    const Plan plan = read_plan(ORRERY_SOURCE_DIR "/examples/llama3-8b-64-h100.plan.json");
    EXPECT_EQ(plan.rates, resolve_rates(plan.implementation, plan.cluster));
    EXPECT_EQ(plan.rates.of(RateKey::products).name, "device/sm_90/products");
    EXPECT_EQ(plan.rates.of(RateKey::fabric).name, "fabric/" + plan.cluster.nic.name + "/fabric");
    EXPECT_EQ(plan_from_json_text(to_json_text(plan), "again").rates, plan.rates);
}

TEST(Rates, AreNeutralOnCpus) {
    topologies::ClusterSpec cluster = topologies::load_cluster("dgx-h100", 16);
    cluster.device.host_runs_compute = true;
    EXPECT_EQ(resolve_rates(models::load_implementation("nemo"), cluster), Rates());
    const Rates neutral;
    for (std::size_t k = 0; k < kRateKeys; ++k) {
        const auto key = static_cast<RateKey>(k);
        const std::string_view name = row_of(key).name;
        const bool adds = name.ends_with("_ms") || name.ends_with("_us") || name.starts_with("hidden_");
        EXPECT_EQ(neutral[key], adds ? 0 : 1) << row_of(key).name;
    }
}

TEST(Rates, OfComputationAreNeutralForTheExecutorOnADeviceThatItTimed) {
    topologies::ClusterSpec cluster = topologies::load_cluster("dgx-h100", 16);
    const models::Implementation own = models::load_implementation("orrery");
    EXPECT_NE(resolve_rates(own, cluster)[RateKey::host_step_ms], 0);
    cluster.device.operator_samples.push_back({.op = "gelu_forward", .bytes = 1e6, .seconds = 1e-6});
    const Rates timed = resolve_rates(own, cluster), neutral;
    for (const RateKey key : {RateKey::computation, RateKey::elementwise, RateKey::head, RateKey::host_layer_ms,
                              RateKey::host_step_ms, RateKey::products, RateKey::attention}) {
        EXPECT_EQ(timed.of(key), neutral.of(key)) << row_of(key).name;
    }
    for (const RateKey key : {RateKey::pp, RateKey::hidden_dp, RateKey::nvlink, RateKey::fabric}) {
        EXPECT_NE(timed[key], neutral[key]) << row_of(key).name;
    }
    EXPECT_NE(resolve_rates(models::load_implementation("nemo"), cluster)[RateKey::host_step_ms], 0);
}

TEST(Rates, ACatalogueRoundTripsThroughAFile) {
    const RateCatalogue catalogue = rates_from_json_text(kCatalogue, "rates.json");
    ASSERT_EQ(catalogue.size(), 5U);
    EXPECT_EQ(rates_from_json_text(to_json_text(catalogue), "again"), catalogue);
    EXPECT_EQ(catalogue.at("device/sm_90/products").kind, topologies::Provenance::fitted);
    EXPECT_FALSE(catalogue.contains("device/sm_90/nvlink"));
    EXPECT_EQ(to_json_text(rates_from_json_text(to_json_text(built_in_rates()), "built in")),
              to_json_text(built_in_rates()));
}

/// Priors from kernels timed alone apply until a figure is fitted; the value is the prior, and there is a source.
TEST(Rates, PriorsOfSingleFiguresApplyIfNothingIsFitted) {
    for (const auto& [name, rate] : built_in_priors()) {
        EXPECT_EQ(rate.value, rate.prior) << name;
        EXPECT_NE(rate.kind, topologies::Provenance::fitted) << name;
        EXPECT_FALSE(rate.source.empty()) << name;
        ASSERT_TRUE(built_in_rates().contains(name)) << name;
        EXPECT_EQ(built_in_rates().at(name).prior, rate.prior) << name;
    }
    const Rates rates = resolve_rates(models::load_implementation("aa-scaling"),
                                      topologies::load_cluster("dgx-h100", 16), built_in_priors());
    EXPECT_EQ(rates.of(RateKey::attention_on_device).name, "attention/flash-2/sm_90/attention_on_device");
    EXPECT_EQ(rates[RateKey::attention_on_device], 1.5);
}

TEST(Rates, ErrorsInACatalogueNameFileAndKey) {
    const auto refused = [](const std::string& rates) {
        try {
            (void)rates_from_json_text(R"({"schema": "orrery.rates/1", "rates": {)" + rates + "}}", "rates.json");
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("taken");
    };
    const std::string rest = R"("kind": "fitted", "source": "x", "prior": 1, "sd": 1})";
    EXPECT_NE(refused(R"("device/sm_90/speed": {"value": 1, )" + rest).find("sm_90~1speed"), std::string::npos);
    EXPECT_NE(refused(R"("device/sm_90/products": {"value": -1, )" + rest).find("value"), std::string::npos);
    EXPECT_NE(refused(R"("device/sm_90/products": {"value": 1, "prior": 1, "sd": 1, "source": "x", "kind": "guess"})")
                  .find("kind"),
              std::string::npos);
}

TEST(WorkRates, TheFactorIsTheProductOfAllThatApply) {
    Rates rates;
    rates.set(RateKey::computation, {"a", {.value = 2}});
    rates.set(RateKey::products, {"b", {.value = 3}});
    rates.set(RateKey::head, {"c", {.value = 5}});
    rates.set(RateKey::fp8, {"d", {.value = 7}});
    rates.set(RateKey::fabric, {"e", {.value = 11}});
    rates.set(RateKey::dp, {"f", {.value = 13}});
    EXPECT_EQ(factor_of({.work = models::WorkClass::product}, rates), 6);
    EXPECT_EQ(factor_of({.work = models::WorkClass::product, .at_end = true}, rates), 30);
    EXPECT_EQ(factor_of({.work = models::WorkClass::product, .math = DType::fp8}, rates), 42);
    EXPECT_EQ(factor_of({.work = models::WorkClass::optimizer}, rates), 2);
    EXPECT_EQ(factor_of(cell_of(CommKind::all_reduce, GroupAxis::dp, true), rates), 143);
    EXPECT_EQ(factor_of(cell_of(CommKind::all_reduce, GroupAxis::dp, false), rates), 13);
}

TEST(WorkRates, SumsOverTensorParallelRanksWaitForTheLast) {
    Rates rates;
    rates.set(RateKey::tp_wait_us, {"a", {.value = 200}});
    EXPECT_DOUBLE_EQ(wait_s(cell_of(CommKind::all_reduce, GroupAxis::tp, false), rates), 200e-6);
    rates.set(RateKey::tp_wait_across_nodes, {"b", {.value = 4}});
    EXPECT_DOUBLE_EQ(wait_s(cell_of(CommKind::all_reduce, GroupAxis::tp, false), rates), 200e-6);
    EXPECT_DOUBLE_EQ(wait_s(cell_of(CommKind::reduce_scatter, GroupAxis::tp, true), rates), 800e-6);
    EXPECT_EQ(wait_s(cell_of(CommKind::all_gather, GroupAxis::tp, false), rates), 0);
    EXPECT_EQ(wait_s(cell_of(CommKind::exchange, GroupAxis::tp, false), rates), 0);
    EXPECT_EQ(wait_s(cell_of(CommKind::all_reduce, GroupAxis::dp, true), rates), 0);
    EXPECT_EQ(wait_s(cell_of(CommKind::all_reduce, GroupAxis::tp, false), Rates()), 0);
}

TEST(WorkRates, HiddenCommunicationHasASharePerKind) {
    const WorkCell gradients = cell_of(CommKind::reduce_scatter, GroupAxis::dp, true);
    const WorkCell pieces = cell_of(CommKind::exchange, GroupAxis::tp, false);
    const auto hidden_rate = [](const WorkCell& cell) {
        const RateUses uses = rates_of(hidden_cell(cell).value());
        EXPECT_EQ(uses.count, 1U);
        return uses.begin()->key;
    };
    EXPECT_EQ(hidden_rate(gradients), RateKey::hidden_dp);
    EXPECT_EQ(hidden_rate(pieces), RateKey::hidden_tp);
    EXPECT_EQ(hidden_cell(cell_of(CommKind::all_reduce, GroupAxis::tp, false)), std::nullopt);
    EXPECT_EQ(name_of(*hidden_cell(pieces)), "hidden tp");
}

TEST(WorkRates, BackwardOfFusedAttentionHasItsOwnRate) {
    Rates rates;
    rates.set(RateKey::attention, {"a", {.value = 2}});
    rates.set(RateKey::attention_backward, {"b", {.value = 3}});
    EXPECT_EQ(factor_of({.work = models::WorkClass::attention, .pass = WorkPass::forward}, rates), 2);
    EXPECT_EQ(factor_of({.work = models::WorkClass::attention, .pass = WorkPass::recomputation}, rates), 2);
    EXPECT_EQ(factor_of({.work = models::WorkClass::attention, .pass = WorkPass::backward}, rates), 6);
}

TEST(WorkRates, NarrowHeadsHaveAFactorPerKernel) {
    Rates rates;
    rates.set(RateKey::attention, {"a", {.value = 2}});
    rates.set(RateKey::narrow_heads, {"b", {.value = 3}});
    const auto factor = [&](models::OpKind kind, std::int64_t head_dim) {
        models::Operator op;
        op.kind = kind;
        op.head_dim = head_dim;
        return factor_of(cell_of(op, Phase::forward), rates);
    };
    EXPECT_EQ(factor(models::OpKind::attention_forward, 64), 6);
    EXPECT_EQ(factor(models::OpKind::attention_forward, 96), 2);
    EXPECT_EQ(factor(models::OpKind::scores_forward, 64), 1);  // unfused

    RateCatalogue catalogue;
    catalogue["attention/flash-1/narrow_heads"] = {.value = 0.9, .source = "a"};
    models::Implementation implementation = models::load_implementation("llm-foundry");
    const topologies::ClusterSpec cluster = topologies::load_cluster("dgx-h100", 8);
    implementation.kernels.attention_kernel = "flash-1";
    EXPECT_EQ(resolve_rates(implementation, cluster, catalogue)[RateKey::narrow_heads], 0.9);
    implementation.kernels.attention_kernel = "flash-2";
    EXPECT_EQ(resolve_rates(implementation, cluster, catalogue)[RateKey::narrow_heads], 1);
}

TEST(WorkRates, TensorParallelHostTimeGrowsPerDoubling) {
    Plan plan;
    plan.cluster = topologies::load_cluster("dgx-h100", 64);
    plan.parallelism = {.dp = 4, .tp = 16};
    plan.rates.set(RateKey::tp_layer_ms, {"a", {.value = 4}});
    EXPECT_DOUBLE_EQ(host_time(plan).tp_layer_s, 4e-3 / 2);
    plan.parallelism.tp = 1;
    EXPECT_EQ(host_time(plan).tp_layer_s, 0);
    plan.parallelism = {.tp = 8, .pp = 8};
    plan.rates.set(RateKey::tp_layer_pipelined_ms, {"c", {.value = 3}});
    plan.rates.set(RateKey::tp_layer_pipelined_growth, {"d", {.value = 2}});
    EXPECT_DOUBLE_EQ(host_time(plan).tp_layer_s, 3e-3 * 4 / 2);
}

}  // namespace
}  // namespace orrery::program
