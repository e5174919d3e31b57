// Rules of check_plan about the mesh of ranks and the dimensions that it divides.
#include <string>

#include "tests/unit/program/plan_rules.h"

namespace orrery::program {
namespace {

using rules::expect_rule;
using rules::problem_of;
using rules::Rule;
using rules::rule_name;
using rules::with_experts;

class ParallelismRule : public testing::TestWithParam<Rule> {};
TEST_P(ParallelismRule, AcceptsTheLegalAndRefusesTheIllegalPlan) {
    expect_rule(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Mesh, ParallelismRule,
    testing::Values(Rule{"TheDegreesFillTheCluster", [](Plan& p) { p.parallelism.cp = 4, p.parallelism.dp = 2; },
                         [](Plan& p) {
                             p.parallelism.cp = 4, p.parallelism.dp = 4;
                             p.cluster = topologies::load_cluster("dgx-h100", 8);
                         },
                         "/parallelism: got dp 4 * tp 1 * pp 1 * cp 4 = 16; allowed: at most 8"},
                    Rule{"ContextParallelDegree", [](Plan& p) { p.parallelism.cp = 1; },
                         [](Plan& p) {
                             p.parallelism.cp = 0;
                             p.cluster = topologies::load_cluster("dgx-h100", 8);
                         },
                         "/parallelism/cp: got 0; allowed: an integer from 1"},
                    Rule{"ExpertDegree", [](Plan& p) { p.parallelism.ep = 1; }, [](Plan& p) { p.parallelism.ep = 0; },
                         "/parallelism/ep: got 0; "},
                    Rule{"ExpertTensorDegree", [](Plan& p) { p.parallelism.etp = 1; },
                         [](Plan& p) { p.parallelism.etp = -2; }, "/parallelism/etp: got -2; "},
                    Rule{"TransferTimeNeedsTheTimesOfThePasses",
                         [](Plan& p) { p.parallelism.schedule_times.transfer_ms = 0; },
                         [](Plan& p) { p.parallelism.schedule_times.transfer_ms = 0.5; },
                         "/parallelism/schedule_times/transfer_ms: got 0.5; allowed: 0, because forward_ms is 0"},
                    Rule{"DurationsAreForSchedulesThatDependOnThem", [](Plan& p) { p.parallelism.schedule_times = {}; },
                         [](Plan& p) {
                             p.parallelism.schedule_times = {1, 1, 1, 0.5};
                         },
                         "/parallelism/schedule_times: got durations; allowed: none, because schedule"},
                    Rule{"PlacementNamesADeviceForEachRank",
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {7, 0};
                             p.cluster = topologies::load_cluster("dgx-h100", 8);
                         },
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {7};
                         },
                         "/parallelism/placement: got 1 devices; allowed: 2 devices"},
                    Rule{"PlacementStaysOnTheCluster",
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {1, 0};
                         },
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {1, 8};
                         },
                         "/parallelism/placement/1: got 8; allowed: an integer from 0 to 7"},
                    Rule{"OnlyRanksOfACpuShareADevice",
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {1, 1};
                             p.cluster = topologies::load_cluster("dgx-h100", 2);
                             p.cluster.device.host_runs_compute = true;
                         },
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.placement = {1, 1};
                         },
                         "/parallelism/placement/1: got 1; allowed: a device that no other rank uses"},
                    Rule{"TheOrderHasEachAxisOnce",
                         [](Plan& p) {
                             p.parallelism.dp = 2;
                             p.parallelism.order = mesh_order_named("dp,pp,ep,cp,tp");
                         },
                         [](Plan& p) { p.parallelism.order[1] = MeshAxis::tp; },
                         "/parallelism/order: got \"tp,tp,ep,dp,pp\"; allowed: tp, cp, ep, dp and pp, each once"},
                    Rule{"DenseAndExpertMeshAgreeOnStages",
                         [](Plan& p) {  // without experts there is only one mesh
                             p.parallelism.pp = 2, p.parallelism.dp = 4;
                             p.parallelism.order = mesh_order_named("tp,cp,ep,pp,dp");
                         },
                         [](Plan& p) {
                             p.model = with_experts(p.model);
                             p.parallelism.pp = 2, p.parallelism.dp = 4, p.parallelism.ep = 2;
                             p.parallelism.order = mesh_order_named("tp,cp,ep,pp,dp");
                         },
                         "/parallelism/order: got \"tp,cp,ep,pp,dp\"; "}),
    rule_name);

INSTANTIATE_TEST_SUITE_P(
    Pipeline, ParallelismRule,
    testing::Values(
        Rule{"ChunksBelongToTheSchedule",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::interleaved;
             },
             [](Plan& p) { p.parallelism.pp = 2, p.parallelism.chunks = 2; },
             "/parallelism/schedule: got \"1f1b\"; allowed: a schedule that fits; 1f1b has 1 chunk a rank, got 2"},
        Rule{"MicroBatchesEnoughForTheSchedule",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe_v;
                 p.training.global_batch_size = 4;
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe_v;
                 p.training.global_batch_size = 3;
             },
             "/parallelism/schedule: got \"dualpipe-v\"; allowed: a schedule that fits; dualpipe-v needs at least 2*pp "
             "= 4 micro-batches, got 3"},
        Rule{"DualPipeHasAnEvenNumberOfMicroBatches",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.training.global_batch_size = 6;
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.training.global_batch_size = 5;
             },
             "/parallelism/schedule: got \"dualpipe\"; "},
        Rule{"GroupsBelongToInterleaving",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2, p.parallelism.interleave_group = 4;
                 p.parallelism.schedule = Schedule::interleaved;
             },
             [](Plan& p) { p.parallelism.pp = 2, p.parallelism.interleave_group = 4; },
             "/parallelism/schedule: got \"1f1b\"; "},
        Rule{"DualPipeKeepsGradientsWhole",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.parallelism.data_parallel = DataParallel::zero1;
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.parallelism.data_parallel = DataParallel::zero2;
             },
             "/parallelism/data_parallel: got \"zero2\"; allowed: \"ddp\", \"zero1\", because schedule"},
        Rule{"StagesAreVirtualStages",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::zb_v;
                 p.parallelism.stage_layers = {1, 1, 1, 1};
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::zb_v;
                 p.parallelism.stage_layers = {2, 2};
             },
             "/parallelism/stage_layers: got 2 stages; allowed: 4 stages, one for each of pp * chunks"},
        Rule{"DualPipeHasStagesOfOneCopy",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.parallelism.stage_layers = {1, 3};
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::dualpipe;
                 p.parallelism.stage_layers = {1, 1, 1, 1};
             },
             "/parallelism/stage_layers: got 4 stages; allowed: 2 stages, one for each of pp"},
        Rule{"OnlyTheEndsMayBeWithoutBlocks",
             [](Plan& p) {
                 p.parallelism.pp = 4;
                 p.parallelism.stage_layers = {0, 3, 1, 0};
             },
             [](Plan& p) {
                 p.parallelism.pp = 4;
                 p.parallelism.stage_layers = {1, 0, 2, 1};
             },
             "/parallelism/stage_layers/1: got 0; allowed: an integer from 1 to 4"},
        Rule{"EndsAreNotNegative",
             [](Plan& p) {
                 p.parallelism.pp = 2;
                 p.parallelism.stage_layers = {0, 4};
             },
             [](Plan& p) {
                 p.parallelism.pp = 2;
                 p.parallelism.stage_layers = {5, -1};
             },
             "/parallelism/stage_layers/1: got -1; allowed: an integer from 0 to "},
        Rule{"MoreStagesThanLayersOnlyWithEmptyEnds",
             [](Plan& p) {
                 p.parallelism.pp = 6;
                 p.parallelism.stage_layers = {0, 1, 1, 1, 1, 0};
             },
             [](Plan& p) {
                 p.parallelism.pp = 7;
                 p.parallelism.stage_layers = {0, 1, 1, 1, 1, 0, 0};
             },
             "/parallelism/pp: got 7; allowed: at most 4, the model's layers, unless stage_layers"},
        Rule{"MoreStagesThanLayersOnlyByHand",
             [](Plan& p) {
                 p.parallelism.pp = 5;
                 p.parallelism.stage_layers = {0, 1, 1, 1, 1};
             },
             [](Plan& p) { p.parallelism.pp = 5; }, "/parallelism/pp: got 5; allowed: at most 4"},
        Rule{"ChunksAreNotMoreThanLayers",
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 2;
                 p.parallelism.schedule = Schedule::interleaved;
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.chunks = 4;
                 p.parallelism.schedule = Schedule::interleaved;
             },
             "/parallelism/chunks: got 4; allowed: a number for which pp * chunks, now 8, is at most 4"}),
    rule_name);

INSTANTIATE_TEST_SUITE_P(
    Widths, ParallelismRule,
    testing::Values(
        Rule{"HeadsDivide", [](Plan& p) { p.parallelism.tp = 4; }, [](Plan& p) { p.parallelism.tp = 8; },
             "/parallelism/tp: got 8; allowed: a divisor of the model's heads, 4"},
        Rule{"KeyValueHeadsDivideOrAreCopied",
             [](Plan& p) {
                 p.model.heads = 12, p.model.kv_heads = 2, p.model.ffn_hidden = 192;
                 p.parallelism.tp = 4;
             },
             [](Plan& p) {
                 p.model.heads = 12, p.model.kv_heads = 4, p.model.ffn_hidden = 192;
                 p.parallelism.tp = 6;
             },
             "/parallelism/tp: got 6; allowed: a divisor or a multiple of the model's kv_heads, 4"},
        Rule{"FeedForwardDivides", [](Plan& p) { p.parallelism.tp = 4; },
             [](Plan& p) {
                 p.model.ffn_hidden = 178;
                 p.parallelism.tp = 4;
             },
             "/parallelism/tp: got 4; allowed: a divisor of the model's ffn_hidden, 178"},
        Rule{"FeedForwardOfDenseBlocksOnly",
             [](Plan& p) {  // every block has experts
                 p.model = with_experts(p.model);
                 p.model.ffn_hidden = 177;
                 p.parallelism.tp = 2, p.parallelism.etp = 2, p.parallelism.sequence_parallel = true;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.model.ffn_hidden = 177, p.model.moe.first_dense_layers = 1;
                 p.parallelism.tp = 2, p.parallelism.etp = 2, p.parallelism.sequence_parallel = true;
             },
             "/parallelism/tp: got 2; allowed: a divisor of the model's ffn_hidden, 177"},
        Rule{"SharedExpertDivides",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.model.moe.shared_ffn_hidden = 90;
                 p.parallelism.tp = 2, p.parallelism.etp = 2, p.parallelism.sequence_parallel = true;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.model.moe.shared_ffn_hidden = 91;
                 p.parallelism.tp = 2, p.parallelism.etp = 2, p.parallelism.sequence_parallel = true;
             },
             "/parallelism/tp: got 2; allowed: a divisor of the model's moe/shared_ffn_hidden, 91"},
        Rule{"LatentHeadsDivide",
             [](Plan& p) {
                 p.model.latent = {
                     .q_lora_rank = 0, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 8, .v_head_dim = 16};
                 p.model.kv_heads = 4;
                 p.parallelism.tp = 4;
             },
             [](Plan& p) {
                 p.model.latent = {
                     .q_lora_rank = 0, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 8, .v_head_dim = 16};
                 p.model.kv_heads = 4;
                 p.parallelism.tp = 8;
             },
             "/parallelism/tp: got 8; allowed: a divisor of the model's heads, 4"},
        Rule{"OnlyExpertsAreSpread",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 2, p.parallelism.ep = 2;
             },
             [](Plan& p) { p.parallelism.dp = 2, p.parallelism.ep = 2; },
             "/parallelism/ep: got 2; allowed: 1, because the model has no experts"},
        Rule{"OnlyExpertsAreCut",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 2, p.parallelism.etp = 2;
             },
             [](Plan& p) { p.parallelism.tp = 2, p.parallelism.etp = 2; },
             "/parallelism/etp: got 2; allowed: 1, because the model has no experts"},
        Rule{"ExpertsDivide",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.ep = 8;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.model.moe.expert_count = 12;
                 p.parallelism.dp = 8, p.parallelism.ep = 8;
             },
             "/parallelism/ep: got 8; allowed: a divisor of the model's experts, 12"},
        Rule{"ExpertWidthDivides",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.etp = 8;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.model.moe.expert_ffn_hidden = 92;
                 p.parallelism.dp = 8, p.parallelism.etp = 8;
             },
             "/parallelism/etp: got 8; allowed: a divisor of the model's moe/expert_ffn_hidden, 92"},
        Rule{"ExpertRanksDivideTheOthers",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.ep = 4, p.parallelism.etp = 2;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.ep = 4, p.parallelism.etp = 4;
             },
             "/parallelism/ep: got 4; allowed: a degree whose product with etp = 4 divides tp * cp * dp = 8"},
        Rule{"ExpertsWithTensorParallelNeedSequenceParallel",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.tp = 2, p.parallelism.etp = 2, p.parallelism.sequence_parallel = true;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.tp = 2, p.parallelism.etp = 2;
             },
             "/parallelism/sequence_parallel: got false; allowed: true, because the model has experts"}),
    rule_name);

INSTANTIATE_TEST_SUITE_P(
    Sequence, ParallelismRule,
    testing::Values(
        Rule{"SequenceParallelNeedsTensorParallel",
             [](Plan& p) { p.parallelism.tp = 2, p.parallelism.sequence_parallel = true; },
             [](Plan& p) { p.parallelism.sequence_parallel = true; },
             "/parallelism/sequence_parallel: got true; allowed: false, because tp is 1"},
        Rule{"SequenceParallelCutsAfterContextParallel",
             [](Plan& p) {
                 p.parallelism.tp = 4, p.parallelism.cp = 2, p.parallelism.sequence_parallel = true;
                 p.training.sequence_length = 24;
             },
             [](Plan& p) {
                 p.parallelism.tp = 4, p.parallelism.cp = 2, p.parallelism.sequence_parallel = true;
                 p.training.sequence_length = 20;
             },
             "/training/sequence_length: got 20; allowed: a multiple of tp * cp, 8, because sequence_parallel"},
        Rule{"RingHasTwoPartsARank",
             [](Plan& p) {
                 p.parallelism.cp = 4;
                 p.training.sequence_length = 24;
             },
             [](Plan& p) {
                 p.parallelism.cp = 4;
                 p.training.sequence_length = 28;
             },
             "/training/sequence_length: got 28; allowed: a multiple of 2 * cp, 8, because attention is causal"},
        Rule{"AllGatherHasTwoPartsARank",
             [](Plan& p) {
                 p.parallelism.cp = 4, p.parallelism.context_parallel = ContextParallel::all_gather;
                 p.training.sequence_length = 24;
             },
             [](Plan& p) {
                 p.parallelism.cp = 4, p.parallelism.context_parallel = ContextParallel::all_gather;
                 p.training.sequence_length = 28;
             },
             "/training/sequence_length: got 28; allowed: a multiple of 2 * cp, 8"},
        Rule{"WithoutAMaskOnePartARankIsEnough",
             [](Plan& p) {
                 p.model.causal = false;
                 p.parallelism.cp = 4;
                 p.training.sequence_length = 28;
             },
             [](Plan& p) {
                 p.model.causal = false;
                 p.parallelism.cp = 4;
                 p.training.sequence_length = 30;
             },
             "/training/sequence_length: got 30; allowed: a multiple of cp, 4"},
        Rule{"UlyssesCutsTheSequenceOnce",
             [](Plan& p) {
                 p.parallelism.cp = 4, p.parallelism.context_parallel = ContextParallel::ulysses;
                 p.training.sequence_length = 28;
             },
             [](Plan& p) {
                 p.parallelism.cp = 4, p.parallelism.context_parallel = ContextParallel::ulysses;
                 p.training.sequence_length = 30;
             },
             "/training/sequence_length: got 30; allowed: a multiple of cp, 4"},
        Rule{"UnfusedAttentionHasNoRing",
             [](Plan& p) {
                 p.parallelism.cp = 2, p.parallelism.context_parallel = ContextParallel::ulysses;
                 p.implementation.kernels.fused_attention = false;
             },
             [](Plan& p) {
                 p.parallelism.cp = 2, p.parallelism.context_parallel = ContextParallel::ring;
                 p.implementation.kernels.fused_attention = false;
             },
             "/parallelism/context_parallel: got \"ring\"; allowed: \"ulysses\", because the attention"},
        Rule{"UlyssesDividesTheHeadsOfARank",
             [](Plan& p) {
                 p.parallelism.cp = 2, p.parallelism.tp = 2;
                 p.parallelism.context_parallel = ContextParallel::ulysses;
             },
             [](Plan& p) {
                 p.parallelism.cp = 4, p.parallelism.tp = 2;
                 p.parallelism.context_parallel = ContextParallel::ulysses;
             },
             "/parallelism/cp: got 4; allowed: a divisor of heads / tp = 2, because context_parallel is \"ulysses\""},
        Rule{"RingHasNoWindow",
             [](Plan& p) {
                 p.parallelism.cp = 2;
                 p.model.sliding_window = 64;
             },
             [](Plan& p) {
                 p.parallelism.cp = 2;
                 p.model.sliding_window = 63;
             },
             "/parallelism/context_parallel: got \"ring\"; allowed: \"all_gather\" or \"ulysses\""},
        Rule{"GatheringHasAWindow",
             [](Plan& p) {
                 p.parallelism.cp = 2, p.parallelism.context_parallel = ContextParallel::all_gather;
                 p.model.sliding_window = 16;
             },
             [](Plan& p) {
                 p.parallelism.cp = 2;
                 p.model.sliding_window = 16;
             },
             "/parallelism/context_parallel: got \"ring\"; "},
        Rule{"LearnedPositionsBoundTheSequenceUnderContextParallel",
             [](Plan& p) {
                 p.model = models::load_model("tiny-gpt");
                 p.parallelism.cp = 2;
             },
             [](Plan& p) {
                 p.model = models::load_model("tiny-gpt");
                 p.parallelism.cp = 2;
                 p.training.sequence_length = 128;
             },
             "/training/sequence_length: got 128; allowed: at most 64, the model's learned positions"}),
    rule_name);

INSTANTIATE_TEST_SUITE_P(
    DataParallel, ParallelismRule,
    testing::Values(
        Rule{"TorchDataParallelStandsAlone",
             [](Plan& p) { p.parallelism.dp = 4, p.parallelism.data_parallel = DataParallel::dp; },
             [](Plan& p) {
                 p.parallelism.dp = 4, p.parallelism.data_parallel = DataParallel::dp;
                 p.parallelism.tp = 2;
             },
             "/parallelism/data_parallel: got \"dp\"; allowed: \"ddp\", \"zero1\", \"zero2\", \"zero3\", because"},
        Rule{"TorchDataParallelHasNoContextParallel",
             [](Plan& p) { p.parallelism.dp = 8, p.parallelism.data_parallel = DataParallel::dp; },
             [](Plan& p) {
                 p.parallelism.dp = 4, p.parallelism.data_parallel = DataParallel::dp;
                 p.parallelism.cp = 2;
             },
             "/parallelism/data_parallel: got \"dp\"; "},
        Rule{"TorchDataParallelHasOneNode",
             [](Plan& p) { p.parallelism.dp = 8, p.parallelism.data_parallel = DataParallel::dp; },
             [](Plan& p) { p.parallelism.dp = 16, p.parallelism.data_parallel = DataParallel::dp; },
             "/parallelism/data_parallel: got \"dp\"; "},
        Rule{"OnlyShardsHaveAGroup",
             [](Plan& p) {
                 p.parallelism.dp = 8, p.parallelism.data_parallel = DataParallel::zero1, p.parallelism.dp_shard = 4;
             },
             [](Plan& p) { p.parallelism.dp = 8, p.parallelism.dp_shard = 4; },
             "/parallelism/dp_shard: got 4; allowed: 0, because data_parallel is \"ddp\""},
        Rule{"ShardGroupsDivide",
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.cp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.parallelism.dp_shard = 4;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.cp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.parallelism.dp_shard = 3;
             },
             "/parallelism/dp_shard: got 3; allowed: 0 or a divisor of dp * cp, 4"},
        Rule{"AShardOfOneRankIsNone",
             [](Plan& p) {
                 p.parallelism.dp = 4, p.parallelism.data_parallel = DataParallel::zero2, p.parallelism.dp_shard = 2;
             },
             [](Plan& p) {
                 p.parallelism.dp = 4, p.parallelism.data_parallel = DataParallel::zero2, p.parallelism.dp_shard = 1;
             },
             "/parallelism/dp_shard: got 1; allowed: 0 or a divisor of dp * cp above 1"},
        Rule{"ExpertsHaveOneShardGroup",
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.ep = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.parallelism.dp_shard = 8;
             },
             [](Plan& p) {
                 p.model = with_experts(p.model);
                 p.parallelism.dp = 8, p.parallelism.ep = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.parallelism.dp_shard = 4;
             },
             "/parallelism/dp_shard: got 4; allowed: 0 or dp * cp, 8, because ep is above 1"}),
    rule_name);

TEST(CheckPlanRules, VocabularyParallelismNeeds1f1b) {
    const auto spread = [](Plan& plan) {
        plan.parallelism.pp = 2;
        plan.parallelism.vocabulary_parallel = VocabularyParallel::two_barriers;
    };
    EXPECT_EQ(problem_of(spread), "");
    const auto refused = [&](const rules::Change& change) {
        return problem_of([&](Plan& plan) {
                   spread(plan);
                   change(plan);
               })
            .starts_with("test: /parallelism/vocabulary_parallel: got \"vocab-1\"");
    };
    EXPECT_TRUE(refused([](Plan& plan) { plan.parallelism.pp = 1; }));
    EXPECT_TRUE(refused([](Plan& plan) { plan.parallelism.schedule = Schedule::gpipe; }));
    EXPECT_TRUE(refused([](Plan& plan) { plan.parallelism.tp = 2; }));
    EXPECT_TRUE(refused([](Plan& plan) { plan.parallelism.cp = 2; }));
    EXPECT_TRUE(refused([](Plan& plan) {
        plan.parallelism.dp = 2;
        plan.parallelism.data_parallel = DataParallel::zero3;
    }));
    EXPECT_TRUE(refused([](Plan& plan) { plan.parallelism.stage_layers = {0, 4}; }));
    EXPECT_TRUE(refused([](Plan& plan) { plan.model.final_norm = false; }));
}

TEST(CheckPlanRules, DegreesWhoseProductOverflowsAreRefused) {
    const std::int64_t most = 1 << 20;
    const auto all = [most](Plan& p) {
        p.parallelism.dp = p.parallelism.tp = p.parallelism.pp = p.parallelism.cp = most;
        p.parallelism.stage_layers = {4};
        p.cluster = topologies::load_cluster("dgx-h100", 8);
    };
    EXPECT_EQ(problem_of(all),
              "test: /parallelism: got dp 1048576 * tp 1048576 * pp 1048576 * cp 1048576; allowed: at most 1048576 "
              "ranks");
}

TEST(CheckPlanRules, AllSchedulesButDualPipeAllowAllSharding) {
    for (int i = 0; i < kScheduleCount; ++i) {
        const auto schedule = static_cast<Schedule>(i);
        const bool two = schedule == Schedule::interleaved || schedule == Schedule::zb_v ||
                         schedule == Schedule::dualpipe || schedule == Schedule::dualpipe_v;
        for (const DataParallel kind :
             {DataParallel::ddp, DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
            const std::string problem = problem_of([&](Plan& p) {
                p.parallelism.pp = 2, p.parallelism.dp = 2;
                p.parallelism.chunks = two ? 2 : 1;
                p.parallelism.schedule = schedule;
                p.parallelism.data_parallel = kind;
            });
            const bool whole = schedule == Schedule::dualpipe && kind >= DataParallel::zero2;
            EXPECT_EQ(problem.empty(), !whole) << name_of(schedule) << " " << name_of(kind) << ": " << problem;
        }
    }
}

TEST(CheckPlanRules, EncodersAndAlibiAllowContextParallelism) {
    for (const char* name : {"bert-large", "bloom-176b"}) {
        for (const ContextParallel kind :
             {ContextParallel::ring, ContextParallel::all_gather, ContextParallel::ulysses}) {
            EXPECT_EQ(problem_of([&](Plan& p) {
                          p.model = models::load_model(name);
                          p.parallelism.cp = 4, p.parallelism.context_parallel = kind;
                      }),
                      "")
                << name;
        }
    }
}

/// dualpipe-v on two pipeline ranks, with experts on two ranks of each stage.
void overlap_experts(Plan& p) {
    p.model = with_experts(p.model);
    p.parallelism.dp = p.parallelism.pp = p.parallelism.ep = p.parallelism.chunks = 2;
    p.parallelism.schedule = Schedule::dualpipe_v;
    p.parallelism.overlaps_experts = true;
}
constexpr const char* kNoPairs = "/parallelism/overlaps_experts: got true; allowed: false, because schedule ";

INSTANTIATE_TEST_SUITE_P(
    ExpertOverlap, ParallelismRule,
    testing::Values(Rule{"TokensTravel", overlap_experts,
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.ep = 1;
                         },
                         "/parallelism/overlaps_experts: got true; allowed: false, because ep is 1"},
                    Rule{"PassesStandInPairs",
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.schedule = Schedule::interleaved;
                         },
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.schedule = Schedule::zb_v;
                         },
                         kNoPairs},
                    Rule{"OneStageHasPairs",
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.pp = p.parallelism.chunks = 1;
                             p.parallelism.schedule = Schedule::one_f_one_b;
                         },
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.chunks = 1;
                             p.parallelism.schedule = Schedule::one_f_one_b;
                         },
                         kNoPairs},
                    Rule{"UnitsAreGatheredForOnePass",
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.data_parallel = DataParallel::zero2;
                         },
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.data_parallel = DataParallel::zero3;
                         },
                         "/parallelism/overlaps_experts: got true; allowed: false, because data_parallel is \"zero3\""},
                    Rule{"OffloadedActivationsReturnForOnePass", overlap_experts,
                         [](Plan& p) {
                             overlap_experts(p);
                             p.parallelism.schedule = Schedule::interleaved;
                             p.training.memory.offload_layers = 1;
                         },
                         "/parallelism/overlaps_experts: got true; allowed: false, because offload_layers is 1"},
                    Rule{"TheImplementationHasIt",
                         [](Plan& p) {
                             overlap_experts(p);
                             p.implementation = models::load_implementation("megatron-core");
                             p.parallelism.schedule = Schedule::interleaved;
                         },
                         [](Plan& p) {
                             overlap_experts(p);
                             p.implementation = models::load_implementation("torchtitan");
                             p.parallelism.schedule = Schedule::interleaved;
                         },
                         "/parallelism/overlaps_experts: got true; allowed: false, because implementation"}),
    rule_name);

}  // namespace
}  // namespace orrery::program
