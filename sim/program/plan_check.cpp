// The rules that every plan must satisfy, whether it was read, generated or edited. The limits of single fields are in
// plan_fields.h. The planner checks each family of candidates, so nothing is written into strings before a rule is
// broken.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.h"
#include "sim/program/mesh.h"
#include "sim/program/pass_pairs.h"
#include "sim/program/plan.h"
#include "sim/program/plan_fields.h"
#include "sim/program/schedule.h"

namespace orrery::program {
namespace {

constexpr std::int64_t kLargestContextParallel = 1024;  // a layer has slots for the part of each cp rank
constexpr double kLargestLoad = 1e3;
constexpr double kLeastCapacity = 1e-3;
constexpr std::int64_t kBytesVocabulary = 256;  // a text file is read as bytes, each one token

/// A format that the compiler checks against its arguments, each of which stands as shown() prints it.
template <typename... Args>
using Form = fmt::format_string<decltype(shown(std::declval<const Args&>()))...>;

class PlanChecker {
  public:
    PlanChecker(const Plan& plan, const std::string& source)
        : plan_(plan), p_(plan.parallelism), t_(plan.training), model_(plan.model), source_(source) {}

    void run() const {
        models::check_model(model_, source_ + ": /model");
        check_limits("/parallelism", p_);
        check_limits("/training", t_);
        check_rank_count(p_, source_);
        check_world();
        check_placement();
        check_batch();
        check_schedule();
        check_vocabulary();
        check_stages();
        check_widths();
        check_experts();
        check_expert_overlap();
        check_order();
        check_sequence();
        check_context_parallel();
        check_data_parallel();
        check_shard_group();
        check_recompute();
        check_offload();
        check_types();
        check_compute();
        check_expert_load();
        check_dispatch();
        check_data();
        check_support(plan_, source_);
    }

  private:
    template <typename Value>
    [[noreturn]] void fail(const std::string& pointer, const Value& value, const std::string& allowed) const {
        throw InputError(source_, pointer, shown(value), allowed);
    }
    /// `allowed`: a format for `args`, in which an enum value stands as its name in quotes.
    template <typename Value, typename... Args>
    void require(bool good, const char* pointer, const Value& value, Form<Args...> allowed, const Args&... args) const {
        if (!good) fail(pointer, value, fmt::format(allowed, shown(args)...));
    }
    void range(const char* pointer, std::int64_t value, IntegerRange allowed) const {
        if (!allowed.contains(value)) fail(pointer, value, description(allowed));
    }
    template <HasFields Object>
    void check_limits(const char* pointer, const Object& object) const {
        if (const std::optional<FieldFault> fault = field_fault(object)) {
            throw InputError(source_, pointer + fault->pointer, fault->value, fault->allowed);
        }
    }

    void check_world() const {
        const topologies::ClusterSpec& cluster = plan_.cluster;
        if (cluster.nodes < 1 || cluster.devices_per_node < 1) {
            fail("/cluster/nodes", fmt::format("{} nodes of {} devices", cluster.nodes, cluster.devices_per_node),
                 "at least one device");
        }
        if (!cluster.other_devices.empty()) {
            fail("/cluster/other_devices",
                 in_quotes(cluster.device.name) + " and " + in_quotes(cluster.other_devices.front().device.name),
                 "nodes with one kind of device, because a plan has the durations of one kind");
        }
        if (cluster.ranks_may_share_devices()) return;
        const std::int64_t devices = cluster.device_count();
        const std::int64_t world = p_.world_size();
        // A single node may have idle devices. Several nodes must be used completely, because figures per device would
        // be misleading otherwise.
        if (world == devices || (cluster.nodes == 1 && world < devices)) return;
        const char* const all = p_.cp > 1 ? "dp * tp * pp * cp =" : "dp * tp * pp =";
        fail("/parallelism", degrees_text(p_),
             fmt::format("{} {}, the devices of cluster \"{}\"", cluster.nodes == 1 ? "at most" : all, devices,
                         cluster.name));
    }

    void check_placement() const {
        if (p_.placement.empty()) return;
        const std::int64_t world = p_.world_size();
        if (std::ssize(p_.placement) != world) {
            fail("/parallelism/placement", fmt::format("{} devices", p_.placement.size()),
                 fmt::format("{} devices, one for each rank", world));
        }
        const IntegerRange devices{0, plan_.cluster.device_count() - 1};
        std::set<std::int64_t> taken;
        for (std::size_t rank = 0; rank < p_.placement.size(); ++rank) {
            const std::int64_t device = p_.placement[rank];
            const auto refuse = [&](const std::string& allowed) {
                fail(fmt::format("/parallelism/placement/{}", rank), device, allowed);
            };
            if (!devices.contains(device)) refuse(description(devices));
            if (!taken.insert(device).second && !plan_.cluster.ranks_may_share_devices()) {
                refuse("a device that no other rank uses");
            }
        }
    }

    void check_batch() const {
        const std::int64_t together = p_.dp * t_.micro_batch_size;
        require(t_.global_batch_size % together == 0, "/training/global_batch_size", t_.global_batch_size,
                "a multiple of {} = dp {} * micro_batch_size {}", together, p_.dp, t_.micro_batch_size);
    }

    void check_schedule() const {
        const std::string problem = schedule_problem(schedule_shape(plan_));
        require(problem.empty(), "/parallelism/schedule", p_.schedule, "a schedule that fits; {}", problem);
        const ScheduleTimes& times = p_.schedule_times;
        if (times.forward_ms == 0) {
            const auto none = [&](const char* pointer, double value) {
                require(value == 0, pointer, value, "0, because forward_ms is 0");
            };
            none("/parallelism/schedule_times/input_ms", times.input_ms);
            none("/parallelism/schedule_times/weight_ms", times.weight_ms);
            none("/parallelism/schedule_times/transfer_ms", times.transfer_ms);
            return;
        }
        const auto given = [&](const char* pointer, double value) {
            require(value > 0, pointer, value, "a number greater than 0, because forward_ms is given");
        };
        given("/parallelism/schedule_times/input_ms", times.input_ms);
        given("/parallelism/schedule_times/weight_ms", times.weight_ms);
        require(row_of(p_.schedule).depends_on_times(), "/parallelism/schedule_times", "durations",
                "none, because schedule {} does not depend on them", p_.schedule);
    }

    void check_vocabulary() const {
        if (p_.vocabulary_parallel == VocabularyParallel::none) return;
        const auto needs = [&](bool good, const char* what) {
            require(good, "/parallelism/vocabulary_parallel", p_.vocabulary_parallel, "\"none\" unless {}", what);
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
            const std::string most = fmt::format(
                "at most {}, the model's layers, unless stage_layers gives the first or the last stage none", layers);
            if (stages == p_.pp) fail("/parallelism/pp", p_.pp, most);
            fail("/parallelism/chunks", p_.chunks,
                 fmt::format("a number for which pp * chunks, now {}, is {}", stages, most));
        }
        if (std::ssize(p_.stage_layers) != stages) {
            fail("/parallelism/stage_layers", fmt::format("{} stages", p_.stage_layers.size()),
                 fmt::format("{} stages, one for each of {}", stages, stages == p_.pp ? "pp" : "pp * chunks"));
        }
        for (std::size_t i = 0; i < p_.stage_layers.size(); ++i) {
            // Only the first stage, which has the embedding, and the last, which has the head, may have no blocks.
            const bool at_an_end = i == 0 || i + 1 == p_.stage_layers.size();
            const IntegerRange blocks{at_an_end ? 0 : 1, layers};
            if (blocks.contains(p_.stage_layers[i])) continue;
            fail(fmt::format("/parallelism/stage_layers/{}", i), p_.stage_layers[i], description(blocks));
        }
        const std::int64_t sum = std::accumulate(p_.stage_layers.begin(), p_.stage_layers.end(), std::int64_t{0});
        if (sum != layers) {
            fail("/parallelism/stage_layers", fmt::format("a sum of {}", sum),
                 fmt::format("a sum of {}, the model's layers", layers));
        }
    }

    [[nodiscard]] std::int64_t largest_chunk() const {
        return *std::max_element(p_.stage_layers.begin(), p_.stage_layers.end());
    }

    void divides(const char* pointer, std::int64_t degree, const char* what, std::int64_t width) const {
        require(width % degree == 0, pointer, degree, "a divisor of the model's {}, {}", what, width);
    }

    void check_widths() const {
        divides("/parallelism/tp", p_.tp, "heads", model_.heads);
        // If tp is greater than kv_heads, neighbouring tp ranks hold copies of the same key/value head.
        require(model_.kv_heads % p_.tp == 0 || p_.tp % model_.kv_heads == 0, "/parallelism/tp", p_.tp,
                "a divisor or a multiple of the model's kv_heads, {}", model_.kv_heads);
        bool has_dense_blocks = false;
        for (std::int64_t layer = 0; layer < model_.layers && !has_dense_blocks; ++layer) {
            has_dense_blocks = !model_.is_expert_layer(layer);
        }
        if (has_dense_blocks) divides("/parallelism/tp", p_.tp, "ffn_hidden", model_.ffn_hidden);
        if (model_.has_experts()) {
            divides("/parallelism/tp", p_.tp, "moe/shared_ffn_hidden", model_.moe.shared_ffn_hidden);
        }
    }

    void check_experts() const {
        const char* const ep = "/parallelism/ep";
        const char* const etp = "/parallelism/etp";
        if (!model_.has_experts()) {
            require(p_.ep == 1, ep, p_.ep, "1, because the model has no experts");
            require(p_.etp == 1, etp, p_.etp, "1, because the model has no experts");
            return;
        }
        divides(ep, p_.ep, "experts", model_.moe.expert_count);
        divides(etp, p_.etp, "moe/expert_ffn_hidden", model_.moe.expert_ffn_hidden);
        const std::int64_t ranks = p_.tp * p_.cp * p_.dp;
        const bool fits = ranks % (p_.ep * p_.etp) == 0;
        constexpr const char* allowed = "a degree whose product with {} = {} divides tp * cp * dp = {}";
        if (p_.ep > 1) require(fits, ep, p_.ep, allowed, "etp", p_.etp, ranks);
        require(fits, etp, p_.etp, allowed, "ep", p_.ep, ranks);
        // Without sequence parallelism every tp rank would route the same tokens. Megatron-LM has the same rule.
        require(p_.tp == 1 || p_.sequence_parallel, "/parallelism/sequence_parallel", false,
                "true, because the model has experts and tp is above 1");
    }

    void check_expert_overlap() const {
        if (!p_.overlaps_experts) return;
        const auto needs = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good, "/parallelism/overlaps_experts", true, allowed, args...);
        };
        needs(p_.ep > 1, "false, because ep is 1 and no tokens travel");
        needs(has_pairs_on(p_.schedule, p_.pp),
              R"(false, because schedule {} has no pairs of a forward and an independent backward with pp {}; )"
              R"("interleaved-1f1b", "dualpipe" and "dualpipe-v" have them, and "1f1b" if pp is 1)",
              p_.schedule, p_.pp);
        // Two passes are under way at once, and there is only one window.
        needs(!p_.shards_parameters(),
              R"(false, because data_parallel is {} and gathers the units of one pass at a time)", p_.data_parallel);
        needs(t_.memory.offload_layers == 0,
              "false, because offload_layers is {}, and the window of offloaded activations serves one pass at a time",
              t_.memory.offload_layers);
    }

    void check_order() const {
        Parallelism asked = p_;
        // Without experts the expert mesh is unused, so its pipeline stages need not coincide with the dense ones.
        if (!model_.has_experts()) asked.pp = 1;
        const std::string problem = mesh_problem(asked);
        if (problem.empty()) return;
        fail("/parallelism/order", in_quotes(mesh_order_text(p_)),
             fmt::format("{}, in an order that numbers the ranks consistently; {}", kMeshOrderRule, problem));
    }

    void sequence_multiple(const char* what, std::int64_t factor, const char* because = "") const {
        require(t_.sequence_length % factor == 0, "/training/sequence_length", t_.sequence_length,
                "a multiple of {}, {}{}", what, factor, because);
    }

    void check_sequence() const {
        const std::int64_t sequence = t_.sequence_length;
        const std::int64_t most = std::max<std::int64_t>(1, kLargestMicroBatchTokens / sequence);
        require(t_.micro_batch_size <= most, "/training/micro_batch_size", t_.micro_batch_size,
                "at most {} sequences of {} tokens, {} together", most, sequence, kLargestMicroBatchTokens);
        require(model_.position != models::PositionKind::learned || sequence <= model_.max_positions,
                "/training/sequence_length", sequence, "at most {}, the model's learned positions",
                model_.max_positions);
        if (!p_.sequence_parallel) return;
        require(p_.tp > 1, "/parallelism/sequence_parallel", true, "false, because tp is 1");
        sequence_multiple(p_.cp == 1 ? "tp" : "tp * cp", p_.tp * p_.cp, ", because sequence_parallel is true");
    }

    void check_context_parallel() const {
        const std::int64_t cp = p_.cp;
        if (cp == 1) return;
        const char* const pointer = "/parallelism/context_parallel";
        const ContextParallel kind = p_.context_parallel;
        const bool is_ulysses = kind == ContextParallel::ulysses;
        range("/parallelism/cp", cp, {1, kLargestContextParallel});
        require(is_ulysses || plan_.implementation.kernels.fused_attention, pointer, kind,
                R"("ulysses", because the attention of implementation "{}" is not fused)", plan_.implementation.name);
        const std::int64_t heads = model_.heads / p_.tp;
        require(!is_ulysses || heads % cp == 0, "/parallelism/cp", cp,
                "a divisor of heads / tp = {}, because context_parallel is {}", heads, kind);
        const bool windowed = model_.sliding_window > 0 && model_.sliding_window < t_.sequence_length;
        require(kind != ContextParallel::ring || !windowed, pointer, kind,
                R"("all_gather" or "ulysses", because the model's sliding window of {} is shorter than the sequence)",
                model_.sliding_window);
        // With a causal mask, rank i takes the parts i and 2 * cp - 1 - i of the sequence, which balances the load.
        if (!is_ulysses && model_.causal) {
            sequence_multiple("2 * cp", 2 * cp, ", because attention is causal");
        } else {
            sequence_multiple("cp", cp);
        }
    }

    void check_data_parallel() const {
        const auto needs = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good, "/parallelism/data_parallel", p_.data_parallel, allowed, args...);
        };
        if (p_.data_parallel == DataParallel::dp) {
            needs(p_.tp == 1 && p_.pp == 1 && p_.cp == 1 && p_.ep == 1,
                  R"("ddp", "zero1", "zero2", "zero3", because torch DataParallel has no tp, pp, cp or ep)");
            needs(plan_.cluster.nodes == 1 || plan_.cluster.ranks_may_share_devices(),
                  R"("ddp", "zero1", "zero2", "zero3", because torch DataParallel is one process, and the cluster has )"
                  "{} nodes",
                  plan_.cluster.nodes);
        }
        // Both ranks that hold a stage accumulate its gradients until the end of the step, so these cannot be sharded.
        needs(
            p_.model_copies() == 1 || p_.data_parallel == DataParallel::ddp || p_.data_parallel == DataParallel::zero1,
            R"("ddp", "zero1", because schedule is {})", p_.schedule);
    }

    void check_shard_group() const {
        if (p_.dp_shard == 0) return;
        const auto needs = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good, "/parallelism/dp_shard", p_.dp_shard, allowed, args...);
        };
        const std::int64_t ranks = p_.gradient_ranks();
        needs(p_.shards_optimizer(), "0, because data_parallel is {}", p_.data_parallel);
        needs(p_.dp_shard > 1 || ranks == 1, "0 or a divisor of dp * cp above 1; data_parallel \"ddp\" shards nothing");
        needs(ranks % p_.dp_shard == 0, "0 or a divisor of dp * cp, {}", ranks);
        needs(p_.ep == 1 || p_.dp_shard == ranks, "0 or dp * cp, {}, because ep is above 1", ranks);
    }

    void check_recompute() const {
        const MemorySavings& m = t_.memory;
        const bool full = m.recompute == Recompute::full;
        const char* const layers = "/training/memory/recompute_layers";
        if (full) range(layers, m.recompute_layers, {-1, largest_chunk()});
        require(full || m.recompute_layers == -1, layers, m.recompute_layers, "-1, because recompute is {}",
                m.recompute);
        if (!m.recompute_parts.empty()) check_parts();
        if (!m.shards_checkpoints) return;
        const char* const shards = "/training/memory/shards_checkpoints";
        require(full, shards, true, "false, because recompute is {}", m.recompute);
        require(p_.tp > 1, shards, true, "false, because tp is 1");
        require(!p_.sequence_parallel, shards, true, "false, because sequence_parallel already shards a block's input");
    }

    void check_parts() const {
        const std::vector<std::string>& parts = t_.memory.recompute_parts;
        if (t_.memory.recompute != Recompute::selective) {
            fail("/training/memory/recompute_parts", fmt::format("{} parts", parts.size()),
                 "none, because recompute is " + shown(t_.memory.recompute));
        }
        std::vector<std::string> known = recomputable_parts();
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const auto part = std::find(known.begin(), known.end(), parts[i]);
            if (part == known.end()) {  // unknown, or a duplicate
                fail(fmt::format("/training/memory/recompute_parts/{}", i), in_quotes(parts[i]), quoted_list(known));
            }
            known.erase(part);
        }
    }

    void check_offload() const {
        const MemorySavings& m = t_.memory;
        const auto layers = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good || m.offload_layers == 0, "/training/memory/offload_layers", m.offload_layers, allowed,
                    args...);
        };
        const auto optimizer = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good || !m.offload_optimizer, "/training/memory/offload_optimizer", true, allowed, args...);
        };
        const auto parameters = [&]<typename... Args>(bool good, Form<Args...> allowed, const Args&... args) {
            require(good || !m.offload_parameters, "/training/memory/offload_parameters", true, allowed, args...);
        };
        range("/training/memory/offload_layers", m.offload_layers, {0, largest_chunk()});
        layers(m.recompute != Recompute::full, "0, because recompute is \"full\"");
        layers(!row_of(p_.schedule).splits_backward(),
               "0, because schedule {} splits the backward pass and would read them twice", p_.schedule);
        optimizer(p_.data_parallel != DataParallel::dp, "false, because data_parallel is {}", p_.data_parallel);
        parameters(p_.shards_parameters(), "false, because data_parallel is {} and not \"zero3\"", p_.data_parallel);
        parameters(m.offload_optimizer,
                   "false, because offload_optimizer is false, and parameters on the host are updated there");
        const topologies::ClusterSpec& cluster = plan_.cluster;
        const topologies::LinkProfile none;
        const bool linked = cluster.host_link != none || cluster.host_memory_link != none;
        constexpr const char* needs_link =
            "{}, because cluster \"{}\" has no link between a device and its node's memory";
        layers(linked, needs_link, 0, cluster.name);
        optimizer(linked, needs_link, false, cluster.name);  // also if parameters are offloaded
    }

    void check_types() const {
        const Precision& precision = t_.precision;
        const std::string_view activation = orrery::name_of(precision.activation);
        require(!precision.master_weights || precision.parameter != DType::fp32, "/training/precision/master_weights",
                true, "false, because parameters are fp32 already");
        require(precision.moments == DType::fp32 || t_.optimizer.kind != OptimizerKind::sgd_momentum,
                "/training/precision/moments", precision.moments, "\"fp32\", because the optimizer is {}",
                t_.optimizer.kind);
        require(!precision.loss_scaling || precision.activation == DType::fp16, "/training/precision/loss_scaling",
                true, "false, because activations are {}", activation);
        require(precision.fp8 == Fp8Scaling::none || precision.activation != DType::fp32, "/training/precision/fp8",
                precision.fp8, "\"none\", because activations are {}", activation);
        if (!precision.fp8_parameters) return;
        const char* const parameters = "/training/precision/fp8_parameters";
        require(precision.fp8 != Fp8Scaling::none, parameters, true, "false, because fp8 is \"none\"");
        require(p_.shards_optimizer(), parameters, true, "false, because data_parallel is {} and gathers no parameters",
                p_.data_parallel);
    }

    /// GEMMs are in the activation type, or in tf32 for fp32 activations, and the device must have a peak rate for it.
    void check_compute() const {
        const Precision& precision = t_.precision;
        const char* const pointer = "/training/precision/compute";
        const bool in_fp32 = precision.activation == DType::fp32;
        require(precision.compute == precision.activation || (in_fp32 && precision.compute == DType::tf32), pointer,
                precision.compute, "{}{}, because activations are {}", precision.activation,
                in_fp32 ? ", \"tf32\"" : "", orrery::name_of(precision.activation));
        // On CPUs the simulator accepts every type, and the executor itself refuses those that it does not support.
        if (plan_.cluster.ranks_may_share_devices()) return;
        check_peak(pointer, precision.compute, precision.compute);
        if (precision.fp8 == Fp8Scaling::none) return;
        check_peak("/training/precision/fp8", precision.fp8, models::operand_type(precision.fp8));
    }
    template <typename Value>
    void check_peak(const char* pointer, Value value, DType type) const {
        const topologies::DeviceProfile& device = plan_.cluster.device;
        const auto is_of_type = [&](const topologies::PeakRate& peak) { return peak.dtype == type; };
        if (std::any_of(device.peaks.begin(), device.peaks.end(), is_of_type)) return;
        std::vector<std::string> known;
        for (const topologies::PeakRate& peak : device.peaks) known.emplace_back(orrery::name_of(peak.dtype));
        fail(pointer, value,
             fmt::format("a type for which device \"{}\" has a peak rate: {}", device.name, quoted_list(known)));
    }

    void check_shares(const ExpertLoad& load) const {
        if (load.shares.empty()) return;
        const char* const pointer = "/training/expert_load/shares";
        if (std::ssize(load.shares) != model_.moe.expert_count) {
            fail(pointer, fmt::format("{} shares", load.shares.size()),
                 fmt::format("{}, one for each expert of the model", model_.moe.expert_count));
        }
        const double sum = std::accumulate(load.shares.begin(), load.shares.end(), 0.0);
        require(sum > 0, pointer, sum, "shares with a sum greater than 0");
        constexpr double kAgrees = 1e-9;
        const double derived = load.imbalance_over(p_.ep);
        require(std::abs(load.imbalance - derived) <= kAgrees * derived, "/training/expert_load/imbalance",
                load.imbalance, "{}, which the shares give over ep = {} ranks", derived, p_.ep);
    }

    void check_expert_load() const {
        const ExpertLoad& load = t_.expert_load;
        check_shares(load);
        const auto within = [&](const char* pointer, double value, double least, const char* or_zero) {
            require(value >= least && value <= kLargestLoad, pointer, value, "{}a number from {} to {}", or_zero, least,
                    kLargestLoad);
        };
        const double capacity = load.capacity_factor;
        within("/training/expert_load/imbalance", load.imbalance, 1, "");
        if (capacity != 0) within("/training/expert_load/capacity_factor", capacity, kLeastCapacity, "0 or ");
        if (load.largest != 0) within("/training/expert_load/largest", load.largest, 1, "0 or ");
        require(!load.pads_to_capacity || capacity != 0, "/training/expert_load/pads_to_capacity", true,
                "false, because capacity_factor is 0");
    }

    void check_dispatch() const {
        const char* const pointer = "/implementation/experts/sends_tokens_once";
        if (!plan_.implementation.experts.sends_tokens_once) return;
        require(!plan_.implementation.executable, pointer, true,
                "false, because the executor sends a copy of each token for each of its experts");
        require(!plan_.cluster.ranks_may_share_devices(), pointer, true,
                "false, because CPU ranks send a copy of each token for each of its experts");
        require(!plan_.cluster.over_pcie(), pointer, true,
                "false, because cluster \"{}\" has no NVLink over which tokens could be forwarded", plan_.cluster.name);
        require(!t_.expert_load.pads_to_capacity, "/training/expert_load/pads_to_capacity", true,
                "false, because {} of implementation \"{}\" sends no padding", pointer, plan_.implementation.name);
    }

    void check_data() const {
        require(!t_.data.empty(), "/training/data", "\"\"", "\"synthetic\" or the path of a text file");
        if (t_.data == "synthetic" || model_.vocab >= kBytesVocabulary) return;
        fail("/training/data", in_quotes(t_.data),
             fmt::format("\"synthetic\", because a text file is read as bytes and the model's vocabulary of {} is "
                         "smaller than {}",
                         model_.vocab, kBytesVocabulary));
    }

    const Plan& plan_;
    const Parallelism& p_;
    const Training& t_;
    const models::ModelSpec& model_;
    const std::string& source_;
};

}  // namespace

std::string degrees_text(const Parallelism& p) {
    std::string text = fmt::format("dp {} * tp {} * pp {}", p.dp, p.tp, p.pp);
    if (p.cp > 1) text += fmt::format(" * cp {}", p.cp);
    const double world =
        static_cast<double>(p.dp) * static_cast<double>(p.tp) * static_cast<double>(p.pp) * static_cast<double>(p.cp);
    if (world < 0x1p62) text += fmt::format(" = {}", p.world_size());
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
