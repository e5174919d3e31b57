// The rules that every plan must satisfy, whether it was read, generated or edited.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>

#include "core/error.h"
#include "sim/program/mesh.h"
#include "sim/program/plan.h"
#include "sim/program/plan_limits.h"
#include "sim/program/plan_names.h"
#include "sim/program/schedule.h"

namespace orrery::program {
namespace {

constexpr std::int64_t kLargestContextParallel = 1024;  // a layer has slots for the part of each cp rank
constexpr double kLargestLoad = 1e3;
constexpr double kLeastCapacity = 1e-3;
constexpr std::int64_t kBytesVocabulary = 256;  // a text file is read as bytes, each one token

std::string printed(double value) {
    std::array<char, 32> buffer{};
    return std::string(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

std::string quoted(std::string_view text) {
    std::string result(1, '"');
    result += text;
    return result + '"';
}

class PlanChecker {
  public:
    PlanChecker(const Plan& plan, const std::string& source)
        : plan_(plan), p_(plan.parallelism), t_(plan.training), model_(plan.model), source_(source) {}

    void run() const {
        models::check_model(model_, source_ + ": /model");
        check_degrees();
        check_world();
        check_placement();
        check_batch();
        check_schedule();
        check_vocabulary();
        check_stages();
        check_widths();
        check_experts();
        check_order();
        check_sequence();
        check_context_parallel();
        check_data_parallel();
        check_shard_group();
        check_recompute();
        check_offload();
        check_types();
        check_compute();
        check_optimizer();
        check_expert_load();
        check_settings();
        check_support(plan_, source_);
    }

  private:
    [[noreturn]] void fail(const std::string& pointer, const std::string& value, const std::string& allowed) const {
        throw InputError(source_, pointer, value, allowed);
    }
    void range(const std::string& pointer, std::int64_t value, IntegerRange allowed) const {
        if (!allowed.contains(value)) fail(pointer, std::to_string(value), description(allowed));
    }
    void number(const std::string& pointer, double value, bool good, const std::string& allowed) const {
        if (!good) fail(pointer, printed(value), allowed);
    }
    void refuse_true(const std::string& pointer, const std::string& because) const {
        fail(pointer, "true", "false, because " + because);
    }

    void check_degrees() const {
        visit_degrees(p_, [&](const char* key, std::int64_t degree, IntegerRange limits) {
            range(std::string("/parallelism/") + key, degree, limits);
        });
        range("/parallelism/chunks", p_.chunks, kDegreeLimits);
        range("/parallelism/interleave_group", p_.interleave_group, {0, kBatchLimits.high});
        range("/parallelism/dp_shard", p_.dp_shard, {0, kDegreeLimits.high});
        check_rank_count(p_, source_);
    }

    void check_world() const {
        const topologies::ClusterSpec& cluster = plan_.cluster;
        if (cluster.nodes < 1 || cluster.devices_per_node < 1) {
            fail("/cluster/nodes",
                 std::to_string(cluster.nodes) + " nodes of " + std::to_string(cluster.devices_per_node) + " devices",
                 "at least one device");
        }
        if (!cluster.other_devices.empty()) {
            fail("/cluster/other_devices",
                 quoted(cluster.device.name) + " and " + quoted(cluster.other_devices.front().device.name),
                 "nodes with one kind of device, because a plan has the durations of one kind");
        }
        if (cluster.ranks_may_share_devices()) return;
        const std::int64_t devices = cluster.device_count();
        const std::int64_t world = p_.world_size();
        // A single node may have idle devices. Several nodes must be used completely, because figures per device would
        // be misleading otherwise.
        if (world == devices || (cluster.nodes == 1 && world < devices)) return;
        const std::string all = p_.cp > 1 ? "dp * tp * pp * cp = " : "dp * tp * pp = ";
        fail("/parallelism", degrees_text(p_),
             (cluster.nodes == 1 ? "at most " : all) + std::to_string(devices) + ", the devices of cluster " +
                 quoted(cluster.name));
    }

    void check_placement() const {
        if (p_.placement.empty()) return;
        const std::string pointer = "/parallelism/placement";
        const std::int64_t world = p_.world_size();
        if (static_cast<std::int64_t>(p_.placement.size()) != world) {
            fail(pointer, std::to_string(p_.placement.size()) + " devices",
                 std::to_string(world) + " devices, one for each rank");
        }
        std::set<std::int64_t> taken;
        for (std::size_t rank = 0; rank < p_.placement.size(); ++rank) {
            const std::string here = pointer + "/" + std::to_string(rank);
            range(here, p_.placement[rank], {0, plan_.cluster.device_count() - 1});
            if (!taken.insert(p_.placement[rank]).second && !plan_.cluster.ranks_may_share_devices()) {
                fail(here, std::to_string(p_.placement[rank]), "a device that no other rank uses");
            }
        }
    }

    void check_batch() const {
        range("/training/micro_batch_size", t_.micro_batch_size, kBatchLimits);
        range("/training/global_batch_size", t_.global_batch_size, kBatchLimits);
        const std::int64_t together = p_.dp * t_.micro_batch_size;
        if (t_.global_batch_size % together != 0) {
            fail("/training/global_batch_size", std::to_string(t_.global_batch_size),
                 "a multiple of " + std::to_string(together) + " = dp " + std::to_string(p_.dp) +
                     " * micro_batch_size " + std::to_string(t_.micro_batch_size));
        }
    }

    void check_schedule() const {
        const std::string problem = schedule_problem(schedule_shape(plan_));
        if (!problem.empty()) {
            fail("/parallelism/schedule", quoted(name_of(p_.schedule)), "a schedule that fits; " + problem);
        }
        const ScheduleTimes& times = p_.schedule_times;
        const double most = std::numeric_limits<double>::max();
        const auto one = [&](const char* key, double value, bool given) {
            const bool good = given ? value > 0 && value <= most : value == 0;
            number(std::string("/parallelism/schedule_times/") + key, value, good,
                   given ? "a number greater than 0, because forward_ms is given" : "0, because forward_ms is 0");
        };
        one("forward_ms", times.forward_ms, times.forward_ms != 0);
        one("input_ms", times.input_ms, times.forward_ms != 0);
        one("weight_ms", times.weight_ms, times.forward_ms != 0);
        const bool given = times.forward_ms != 0;
        number("/parallelism/schedule_times/transfer_ms", times.transfer_ms,
               given ? times.transfer_ms >= 0 && times.transfer_ms <= most : times.transfer_ms == 0,
               given ? "a number of at least 0" : "0, because forward_ms is 0");
        if (times.forward_ms != 0 && !row_of(p_.schedule).depends_on_times()) {
            fail("/parallelism/schedule_times", "durations",
                 "none, because schedule " + quoted(name_of(p_.schedule)) + " does not depend on them");
        }
    }

    void check_vocabulary() const {
        if (p_.vocabulary_parallel == VocabularyParallel::none) return;
        const auto needs = [&](bool good, const char* what) {
            if (good) return;
            fail("/parallelism/vocabulary_parallel", quoted(name_of(p_.vocabulary_parallel)),
                 std::string("\"none\" unless ") + what);
        };
        needs(p_.pp > 1, "pp is greater than 1");
        needs(p_.schedule == Schedule::one_f_one_b, "the schedule is 1f1b");
        needs(p_.tp == 1 && p_.cp == 1, "tp and cp are 1");
        needs(p_.data_parallel == DataParallel::ddp || p_.data_parallel == DataParallel::zero1,
              "data_parallel is ddp or zero1");
        needs(std::find(p_.stage_layers.begin(), p_.stage_layers.end(), 0) == p_.stage_layers.end(),
              "every stage has a block");
        needs(model_.final_norm && !model_.head_transform, "the head is a norm and one product");
    }

    void check_stages() const {
        const std::int64_t layers = model_.layers;
        const std::int64_t stages = p_.virtual_stages();
        if (stages > layers + 2 || (stages > layers && p_.stage_layers.empty())) {
            const std::string most = "at most " + std::to_string(layers) +
                                     ", the model's layers, unless stage_layers gives the first or the last stage none";
            if (stages == p_.pp) fail("/parallelism/pp", std::to_string(p_.pp), most);
            fail("/parallelism/chunks", std::to_string(p_.chunks),
                 "a number for which pp * chunks, now " + std::to_string(stages) + ", is " + most);
        }
        const std::string pointer = "/parallelism/stage_layers";
        if (static_cast<std::int64_t>(p_.stage_layers.size()) != stages) {
            fail(pointer, std::to_string(p_.stage_layers.size()) + " stages",
                 std::to_string(stages) + " stages, one for each of " + (stages == p_.pp ? "pp" : "pp * chunks"));
        }
        for (std::size_t i = 0; i < p_.stage_layers.size(); ++i) {
            // Only the first stage, which has the embedding, and the last, which has the head, may have no blocks.
            const bool at_an_end = i == 0 || i + 1 == p_.stage_layers.size();
            range(pointer + "/" + std::to_string(i), p_.stage_layers[i], {at_an_end ? 0 : 1, layers});
        }
        const std::int64_t sum = std::accumulate(p_.stage_layers.begin(), p_.stage_layers.end(), std::int64_t{0});
        if (sum != layers) {
            fail(pointer, "a sum of " + std::to_string(sum),
                 "a sum of " + std::to_string(layers) + ", the model's layers");
        }
    }

    [[nodiscard]] std::int64_t largest_chunk() const {
        return *std::max_element(p_.stage_layers.begin(), p_.stage_layers.end());
    }

    void divides(const char* degree, std::int64_t value, const char* what, std::int64_t width) const {
        if (width % value != 0) {
            fail(std::string("/parallelism/") + degree, std::to_string(value),
                 "a divisor of the model's " + std::string(what) + ", " + std::to_string(width));
        }
    }

    void check_widths() const {
        const std::int64_t tp = p_.tp;
        divides("tp", tp, "heads", model_.heads);
        // If tp is greater than kv_heads, neighbouring tp ranks hold copies of the same key/value head.
        if (model_.kv_heads % tp != 0 && tp % model_.kv_heads != 0) {
            fail("/parallelism/tp", std::to_string(tp),
                 "a divisor or a multiple of the model's kv_heads, " + std::to_string(model_.kv_heads));
        }
        bool has_dense_blocks = false;
        for (std::int64_t layer = 0; layer < model_.layers && !has_dense_blocks; ++layer) {
            has_dense_blocks = !model_.is_expert_layer(layer);
        }
        if (has_dense_blocks) divides("tp", tp, "ffn_hidden", model_.ffn_hidden);
        if (model_.has_experts()) divides("tp", tp, "moe/shared_ffn_hidden", model_.moe.shared_ffn_hidden);
    }

    void check_experts() const {
        if (!model_.has_experts()) {
            const std::string allowed = "1, because the model has no experts";
            if (p_.ep > 1) fail("/parallelism/ep", std::to_string(p_.ep), allowed);
            if (p_.etp > 1) fail("/parallelism/etp", std::to_string(p_.etp), allowed);
            return;
        }
        divides("ep", p_.ep, "experts", model_.moe.expert_count);
        divides("etp", p_.etp, "moe/expert_ffn_hidden", model_.moe.expert_ffn_hidden);
        const std::int64_t ranks = p_.tp * p_.cp * p_.dp;
        if (ranks % (p_.ep * p_.etp) != 0) {
            const bool by_ep = p_.ep > 1;
            const std::string other = by_ep ? "etp = " + std::to_string(p_.etp) : "ep = " + std::to_string(p_.ep);
            fail(by_ep ? "/parallelism/ep" : "/parallelism/etp", std::to_string(by_ep ? p_.ep : p_.etp),
                 "a degree whose product with " + other + " divides tp * cp * dp = " + std::to_string(ranks));
        }
        // Without sequence parallelism every tp rank would route the same tokens. Megatron-LM has the same rule.
        if (p_.tp > 1 && !p_.sequence_parallel) {
            fail("/parallelism/sequence_parallel", "false", "true, because the model has experts and tp is above 1");
        }
    }

    void check_order() const {
        Parallelism asked = p_;
        // Without experts the expert mesh is unused, so its pipeline stages need not coincide with the dense ones.
        if (!model_.has_experts()) asked.pp = 1;
        const std::string problem = mesh_problem(asked);
        if (!problem.empty()) {
            fail("/parallelism/order", quoted(mesh_order_text(p_)),
                 std::string(kMeshOrderRule) + ", in an order that numbers the ranks consistently; " + problem);
        }
    }

    void sequence_multiple(std::int64_t factor, const std::string& reason) const {
        if (t_.sequence_length % factor != 0) {
            fail("/training/sequence_length", std::to_string(t_.sequence_length), "a multiple of " + reason);
        }
    }

    void check_sequence() const {
        const std::int64_t sequence = t_.sequence_length;
        range("/training/sequence_length", sequence, kSequenceLimits);
        const std::int64_t most = std::max<std::int64_t>(1, kLargestMicroBatchTokens / sequence);
        if (t_.micro_batch_size > most) {
            fail("/training/micro_batch_size", std::to_string(t_.micro_batch_size),
                 "at most " + std::to_string(most) + " sequences of " + std::to_string(sequence) + " tokens, " +
                     std::to_string(kLargestMicroBatchTokens) + " together");
        }
        if (model_.position == models::PositionKind::learned && sequence > model_.max_positions) {
            fail("/training/sequence_length", std::to_string(sequence),
                 "at most " + std::to_string(model_.max_positions) + ", the model's learned positions");
        }
        if (!p_.sequence_parallel) return;
        if (p_.tp == 1) refuse_true("/parallelism/sequence_parallel", "tp is 1");
        const std::string degrees = p_.cp == 1 ? "tp, " : "tp * cp, ";
        sequence_multiple(p_.tp * p_.cp,
                          degrees + std::to_string(p_.tp * p_.cp) + ", because sequence_parallel is true");
    }

    void check_context_parallel() const {
        const std::int64_t cp = p_.cp;
        if (cp == 1) return;
        range("/parallelism/cp", cp, {1, kLargestContextParallel});
        const std::string name = quoted(models::name_of(p_.context_parallel));
        if (p_.context_parallel != ContextParallel::ulysses && !plan_.implementation.kernels.fused_attention) {
            fail("/parallelism/context_parallel", name,
                 R"("ulysses", because the attention of implementation )" + quoted(plan_.implementation.name) +
                     " is not fused");
        }
        if (p_.context_parallel == ContextParallel::ulysses) {
            const std::int64_t heads = model_.heads / p_.tp;
            if (heads % cp != 0) {
                fail("/parallelism/cp", std::to_string(cp),
                     "a divisor of heads / tp = " + std::to_string(heads) + ", because context_parallel is " + name);
            }
        }
        const bool windowed = model_.sliding_window > 0 && model_.sliding_window < t_.sequence_length;
        if (p_.context_parallel == ContextParallel::ring && windowed) {
            fail("/parallelism/context_parallel", name,
                 R"("all_gather" or "ulysses", because the model's sliding window of )" +
                     std::to_string(model_.sliding_window) + " is shorter than the sequence");
        }
        // With a causal mask, rank i takes the parts i and 2 * cp - 1 - i of the sequence, which balances the load.
        if (p_.context_parallel != ContextParallel::ulysses && model_.causal) {
            sequence_multiple(2 * cp, "2 * cp, " + std::to_string(2 * cp) + ", because attention is causal");
        } else {
            sequence_multiple(cp, "cp, " + std::to_string(cp));
        }
    }

    void check_data_parallel() const {
        const std::string pointer = "/parallelism/data_parallel";
        const std::string value = quoted(name_of(p_.data_parallel));
        if (p_.data_parallel == DataParallel::dp) {
            const std::string others = R"("ddp", "zero1", "zero2", "zero3", because torch DataParallel )";
            if (p_.tp > 1 || p_.pp > 1 || p_.cp > 1 || p_.ep > 1) {
                fail(pointer, value, others + "has no tp, pp, cp or ep");
            }
            if (plan_.cluster.nodes > 1 && !plan_.cluster.ranks_may_share_devices()) {
                fail(pointer, value,
                     others + "is one process, and the cluster has " + std::to_string(plan_.cluster.nodes) + " nodes");
            }
        }
        // Both ranks that hold a stage accumulate its gradients until the end of the step, so these cannot be sharded.
        if (p_.model_copies() > 1 && p_.data_parallel != DataParallel::ddp && p_.data_parallel != DataParallel::zero1) {
            fail(pointer, value, R"("ddp", "zero1", because schedule is ")" + name_of(p_.schedule) + "\"");
        }
    }

    void check_shard_group() const {
        if (p_.dp_shard == 0) return;
        const std::string pointer = "/parallelism/dp_shard", value = std::to_string(p_.dp_shard);
        const std::int64_t ranks = p_.gradient_ranks();
        if (!p_.shards_optimizer()) {
            fail(pointer, value, "0, because data_parallel is " + quoted(name_of(p_.data_parallel)));
        }
        if (p_.dp_shard == 1 && ranks > 1) {
            fail(pointer, value, "0 or a divisor of dp * cp above 1; data_parallel \"ddp\" shards nothing");
        }
        if (ranks % p_.dp_shard != 0) fail(pointer, value, "0 or a divisor of dp * cp, " + std::to_string(ranks));
        if (p_.ep > 1 && p_.dp_shard != ranks) {
            fail(pointer, value, "0 or dp * cp, " + std::to_string(ranks) + ", because ep is above 1");
        }
    }

    void check_recompute() const {
        const MemorySavings& m = t_.memory;
        const std::string recompute = "recompute is " + quoted(name_of(m.recompute));
        const std::string layers = "/training/memory/recompute_layers", parts = "/training/memory/recompute_parts";
        if (m.recompute == Recompute::full) {
            range(layers, m.recompute_layers, {-1, largest_chunk()});
        } else if (m.recompute_layers != -1) {
            fail(layers, std::to_string(m.recompute_layers), "-1, because " + recompute);
        }
        if (m.recompute != Recompute::selective && !m.recompute_parts.empty()) {
            fail(parts, std::to_string(m.recompute_parts.size()) + " parts", "none, because " + recompute);
        }
        std::vector<std::string> known = names_of<models::BlockPart>();
        std::erase(known, models::name_of(models::BlockPart::none));
        std::erase(known, models::name_of(models::BlockPart::residual));
        for (std::size_t i = 0; i < m.recompute_parts.size(); ++i) {
            const auto part = std::find(known.begin(), known.end(), m.recompute_parts[i]);
            if (part == known.end()) {  // unknown, or a duplicate
                fail(parts + "/" + std::to_string(i), quoted(m.recompute_parts[i]), quoted_list(known));
            }
            known.erase(part);
        }
        if (!m.shards_checkpoints) return;
        const std::string shards = "/training/memory/shards_checkpoints";
        if (m.recompute != Recompute::full) refuse_true(shards, recompute);
        if (p_.tp == 1) refuse_true(shards, "tp is 1");
        if (p_.sequence_parallel) refuse_true(shards, "sequence_parallel already shards a block's input");
    }

    void check_offload() const {
        const MemorySavings& m = t_.memory;
        const std::string layers = "/training/memory/offload_layers", count = std::to_string(m.offload_layers);
        range(layers, m.offload_layers, {0, largest_chunk()});
        if (m.offload_layers > 0 && m.recompute == Recompute::full) {
            fail(layers, count, R"(0, because recompute is "full")");
        }
        if (m.offload_layers > 0 && row_of(p_.schedule).splits_backward()) {
            fail(layers, count,
                 "0, because schedule " + quoted(name_of(p_.schedule)) +
                     " splits the backward pass and would read them twice");
        }
        const std::string optimizer = "/training/memory/offload_optimizer";
        const std::string parameters = "/training/memory/offload_parameters";
        const std::string kind = "data_parallel is " + quoted(name_of(p_.data_parallel));
        if (m.offload_optimizer && p_.data_parallel == DataParallel::dp) refuse_true(optimizer, kind);
        if (m.offload_parameters && !p_.shards_parameters()) refuse_true(parameters, kind + " and not \"zero3\"");
        if (m.offload_parameters && !m.offload_optimizer) {
            refuse_true(parameters, "offload_optimizer is false, and parameters on the host are updated there");
        }
        const topologies::ClusterSpec& cluster = plan_.cluster;
        const topologies::LinkProfile none;
        if (cluster.host_link != none || cluster.host_memory_link != none) return;
        const std::string why =
            "cluster " + quoted(cluster.name) + " has no link between a device and its node's memory";
        if (m.offload_layers > 0) fail(layers, count, "0, because " + why);
        if (m.offload_optimizer) refuse_true(optimizer, why);
        if (m.offload_parameters) refuse_true(parameters, why);
    }

    void check_type(const std::string& key, DType dtype) const {
        if (dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16) return;
        fail("/training/precision/" + key, quoted(orrery::name_of(dtype)), "\"fp32\", \"bf16\", \"fp16\"");
    }

    void check_types() const {
        const Precision& precision = t_.precision;
        const std::string at = "/training/precision/";
        const std::string activations = "activations are " + std::string(orrery::name_of(precision.activation));
        check_type("parameter", precision.parameter);
        check_type("activation", precision.activation);
        check_type("gradient", precision.gradient);
        check_type("reduction", precision.reduction);
        if (precision.master_weights && precision.parameter == DType::fp32) {
            refuse_true(at + "master_weights", "parameters are fp32 already");
        }
        if (precision.loss_scaling && precision.activation != DType::fp16) {
            refuse_true(at + "loss_scaling", activations);
        }
        if (precision.fp8 != Fp8Scaling::none && precision.activation == DType::fp32) {
            fail(at + "fp8", quoted(models::name_of(precision.fp8)), "\"none\", because " + activations);
        }
        if (!precision.fp8_parameters) return;
        if (precision.fp8 == Fp8Scaling::none) refuse_true(at + "fp8_parameters", "fp8 is \"none\"");
        if (!p_.shards_optimizer()) {
            refuse_true(at + "fp8_parameters",
                        "data_parallel is " + quoted(name_of(p_.data_parallel)) + " and gathers no parameters");
        }
    }

    /// GEMMs are in the activation type, or in tf32 for fp32 activations, and the device must have a peak rate for it.
    void check_compute() const {
        const Precision& precision = t_.precision;
        const std::string pointer = "/training/precision/compute";
        const bool in_fp32 = precision.activation == DType::fp32;
        if (precision.compute != precision.activation && !(in_fp32 && precision.compute == DType::tf32)) {
            fail(pointer, quoted(orrery::name_of(precision.compute)),
                 quoted(orrery::name_of(precision.activation)) + (in_fp32 ? ", \"tf32\"" : "") +
                     ", because activations are " + std::string(orrery::name_of(precision.activation)));
        }
        // On CPUs the simulator accepts every type, and the executor itself refuses those that it does not support.
        if (plan_.cluster.ranks_may_share_devices()) return;
        const topologies::DeviceProfile& device = plan_.cluster.device;
        const auto needs_peak = [&](const std::string& at, std::string_view value, DType type) {
            std::vector<std::string> known;
            for (const topologies::PeakRate& peak : device.peaks) {
                if (peak.dtype == type) return;
                known.emplace_back(orrery::name_of(peak.dtype));
            }
            fail(at, quoted(value),
                 "a type for which device " + quoted(device.name) + " has a peak rate: " + quoted_list(known));
        };
        needs_peak(pointer, orrery::name_of(precision.compute), precision.compute);
        if (precision.fp8 != Fp8Scaling::none) {
            needs_peak("/training/precision/fp8", models::name_of(precision.fp8), models::operand_type(precision.fp8));
        }
    }

    void check_optimizer() const {
        // Every comparison is false for NaN, and the upper bounds exclude infinity.
        const Optimizer& o = t_.optimizer;
        const auto fraction = [this](const std::string& pointer, double value) {
            number(pointer, value, value >= 0 && value < 1, "a number of at least 0 and below 1");
        };
        const auto not_negative = [this](const std::string& pointer, double value) {
            number(pointer, value, value >= 0 && value <= std::numeric_limits<double>::max(), "a number of at least 0");
        };
        not_negative("/training/optimizer/learning_rate", o.learning_rate);
        fraction("/training/optimizer/beta1", o.beta1);
        fraction("/training/optimizer/beta2", o.beta2);
        number("/training/optimizer/epsilon", o.epsilon,
               o.epsilon > 0 && o.epsilon <= std::numeric_limits<double>::max(), "a number greater than 0");
        fraction("/training/optimizer/momentum", o.momentum);
        not_negative("/training/optimizer/weight_decay", o.weight_decay);
        not_negative("/training/optimizer/clip_norm", o.clip_norm);
    }

    void check_shares(const ExpertLoad& load) const {
        if (load.shares.empty()) return;
        const std::string pointer = "/training/expert_load/shares";
        if (static_cast<std::int64_t>(load.shares.size()) != model_.moe.expert_count) {
            fail(pointer, std::to_string(load.shares.size()) + " shares",
                 std::to_string(model_.moe.expert_count) + ", one for each expert of the model");
        }
        double sum = 0;
        for (std::size_t i = 0; i < load.shares.size(); ++i) {
            number(pointer + "/" + std::to_string(i), load.shares[i],
                   load.shares[i] >= 0 && load.shares[i] <= std::numeric_limits<double>::max(),
                   "a number of at least 0");
            sum += load.shares[i];
        }
        number(pointer, sum, sum > 0 && sum <= std::numeric_limits<double>::max(), "shares with a sum greater than 0");
        constexpr double kAgrees = 1e-9;
        const double derived = load.imbalance_over(p_.ep);
        number("/training/expert_load/imbalance", load.imbalance,
               std::abs(load.imbalance - derived) <= kAgrees * derived,
               printed(derived) + ", which the shares give over ep = " + std::to_string(p_.ep) + " ranks");
    }

    void check_expert_load() const {
        const ExpertLoad& load = t_.expert_load;
        const std::string at = "/training/expert_load/", most = printed(kLargestLoad);
        check_shares(load);
        number(at + "imbalance", load.imbalance, load.imbalance >= 1 && load.imbalance <= kLargestLoad,
               "a number from 1 to " + most);
        number(at + "capacity_factor", load.capacity_factor,
               load.capacity_factor == 0 ||
                   (load.capacity_factor >= kLeastCapacity && load.capacity_factor <= kLargestLoad),
               "0 or a number from " + printed(kLeastCapacity) + " to " + most);
        number(at + "largest", load.largest, load.largest == 0 || (load.largest >= 1 && load.largest <= kLargestLoad),
               "0 or a number from 1 to " + most);
        if (load.pads_to_capacity && load.capacity_factor == 0) {
            refuse_true(at + "pads_to_capacity", "capacity_factor is 0");
        }
    }

    void check_settings() const {
        number("/training/dropout", t_.dropout, t_.dropout >= 0 && t_.dropout < 1,
               "a number of at least 0 and below 1");
        if (t_.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            fail("/training/seed", std::to_string(t_.seed), "an integer from 0 to 9223372036854775807");
        }
        if (t_.data.empty()) fail("/training/data", "\"\"", "\"synthetic\" or the path of a text file");
        if (t_.data != "synthetic" && model_.vocab < kBytesVocabulary) {
            fail("/training/data", quoted(t_.data),
                 "\"synthetic\", because a text file is read as bytes and the model's vocabulary of " +
                     std::to_string(model_.vocab) + " is smaller than 256");
        }
    }

    const Plan& plan_;
    const Parallelism& p_;
    const Training& t_;
    const models::ModelSpec& model_;
    const std::string& source_;
};

}  // namespace

std::string degrees_text(const Parallelism& p) {
    std::string text = "dp " + std::to_string(p.dp) + " * tp " + std::to_string(p.tp) + " * pp " + std::to_string(p.pp);
    if (p.cp > 1) text += " * cp " + std::to_string(p.cp);
    const double world =
        static_cast<double>(p.dp) * static_cast<double>(p.tp) * static_cast<double>(p.pp) * static_cast<double>(p.cp);
    if (world < 0x1p62) text += " = " + std::to_string(p.world_size());
    return text;
}

void check_rank_count(const Parallelism& p, const std::string& source) {
    std::int64_t ranks = 1;
    for (const std::int64_t degree : {p.dp, p.tp, p.pp, p.cp}) {
        if (degree > kDegreeLimits.high / ranks) {
            throw InputError(source, "/parallelism", degrees_text(p),
                             "at most " + std::to_string(kDegreeLimits.high) + " ranks");
        }
        ranks *= degree;
    }
}

void check_plan(const Plan& plan, const std::string& source) {
    PlanChecker(plan, source).run();
}

}  // namespace orrery::program
