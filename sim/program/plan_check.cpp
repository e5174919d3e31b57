// The rules that a plan keeps, whoever wrote it.
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <string_view>

#include "core/error.h"
#include "sim/program/plan.h"

namespace orrery::program {
namespace {

// Far above any job, and low enough that no product of them overflows.
constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kLongestSequence = 1 << 24;
constexpr std::int64_t kLargestBatch = 1 << 20;
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
    PlanChecker(const Plan& plan, const std::string& source) : plan_(plan), source_(source) {}

    void run() const {
        models::check_model(plan_.model, source_ + ": /model");
        check_degrees();
        check_world();
        check_stages();
        check_batch();
        check_widths();
        check_sequence();
        check_settings();
    }

  private:
    [[noreturn]] void fail(const std::string& pointer, const std::string& value, const std::string& allowed) const {
        throw InputError(source_, pointer, value, allowed);
    }
    void range(const std::string& pointer, std::int64_t value, std::int64_t low, std::int64_t high) const {
        if (value < low || value > high) {
            fail(pointer, std::to_string(value),
                 "an integer from " + std::to_string(low) + " to " + std::to_string(high));
        }
    }
    void number(const std::string& pointer, double value, bool good, const std::string& allowed) const {
        if (!good) fail(pointer, printed(value), allowed);
    }

    void check_degrees() const {
        const Parallelism& p = plan_.parallelism;
        range("/parallelism/dp", p.dp, 1, kMostRanks);
        range("/parallelism/tp", p.tp, 1, kMostRanks);
        range("/parallelism/pp", p.pp, 1, kMostRanks);
        if (p.world_size() > kMostRanks) {
            fail("/parallelism", degrees(), "at most " + std::to_string(kMostRanks) + " ranks");
        }
    }

    void check_world() const {
        const topologies::ClusterSpec& cluster = plan_.cluster;
        if (cluster.nodes < 1 || cluster.devices_per_node < 1) {
            fail("/cluster/nodes",
                 std::to_string(cluster.nodes) + " nodes of " + std::to_string(cluster.devices_per_node) + " devices",
                 "at least one device");
        }
        if (cluster.ranks_may_share_devices()) return;
        const std::int64_t devices = cluster.device_count();
        const std::int64_t world = plan_.parallelism.world_size();
        // Part of one node may stay idle; of several nodes all devices are taken, or rates a device would mislead.
        if (world == devices || (cluster.nodes == 1 && world < devices)) return;
        fail("/parallelism", degrees(),
             (cluster.nodes == 1 ? "at most " : "dp * tp * pp = ") + std::to_string(devices) +
                 ", the devices of cluster \"" + cluster.name + "\"");
    }

    void check_stages() const {
        const Parallelism& p = plan_.parallelism;
        const std::int64_t layers = plan_.model.layers;
        if (p.pp > layers) {
            fail("/parallelism/pp", std::to_string(p.pp), "at most " + std::to_string(layers) + ", the model's layers");
        }
        const std::string pointer = "/parallelism/stage_layers";
        if (static_cast<std::int64_t>(p.stage_layers.size()) != p.pp) {
            fail(pointer, std::to_string(p.stage_layers.size()) + " stages",
                 std::to_string(p.pp) + " stages, one for each of pp");
        }
        for (std::size_t i = 0; i < p.stage_layers.size(); ++i) {
            range(pointer + "/" + std::to_string(i), p.stage_layers[i], 1, layers);
        }
        const std::int64_t sum = std::accumulate(p.stage_layers.begin(), p.stage_layers.end(), std::int64_t{0});
        if (sum != layers) {
            fail(pointer, "a sum of " + std::to_string(sum),
                 "a sum of " + std::to_string(layers) + ", the model's layers");
        }
    }

    void check_batch() const {
        const Training& t = plan_.training;
        range("/training/micro_batch_size", t.micro_batch_size, 1, kLargestBatch);
        range("/training/global_batch_size", t.global_batch_size, 1, kLargestBatch);
        const std::int64_t together = plan_.parallelism.dp * t.micro_batch_size;
        if (t.global_batch_size % together != 0) {
            fail("/training/global_batch_size", std::to_string(t.global_batch_size),
                 "a multiple of " + std::to_string(together) + " = dp " + std::to_string(plan_.parallelism.dp) +
                     " * micro_batch_size " + std::to_string(t.micro_batch_size));
        }
    }

    void check_widths() const {
        const std::int64_t tp = plan_.parallelism.tp;
        const auto divisible = [&](const char* what, std::int64_t width) {
            if (width % tp != 0) {
                fail("/parallelism/tp", std::to_string(tp),
                     "a divisor of the model's " + std::string(what) + ", " + std::to_string(width));
            }
        };
        divisible("heads", plan_.model.heads);
        divisible("kv_heads", plan_.model.kv_heads);
        divisible("ffn_hidden", plan_.model.ffn_hidden);
    }

    void check_sequence() const {
        const std::int64_t sequence = plan_.training.sequence_length;
        const std::int64_t tp = plan_.parallelism.tp;
        range("/training/sequence_length", sequence, 1, kLongestSequence);
        if (plan_.model.position == models::PositionKind::learned && sequence > plan_.model.max_positions) {
            fail("/training/sequence_length", std::to_string(sequence),
                 "at most " + std::to_string(plan_.model.max_positions) + ", the model's learned positions");
        }
        if (!plan_.parallelism.sequence_parallel) return;
        if (tp == 1) fail("/parallelism/sequence_parallel", "true", "false, because tp is 1");
        if (sequence % tp != 0) {
            fail("/training/sequence_length", std::to_string(sequence),
                 "a multiple of tp, " + std::to_string(tp) + ", because sequence_parallel is true");
        }
    }

    void check_settings() const {
        const Training& t = plan_.training;
        const Optimizer& o = t.optimizer;
        check_dtype("parameter", t.precision.parameter);
        check_dtype("activation", t.precision.activation);
        check_dtype("gradient", t.precision.gradient);
        if (t.precision.master_weights && t.precision.parameter == DType::fp32) {
            fail("/training/precision/master_weights", "true", "false, because parameters are fp32 already");
        }
        // Each comparison is false for a NaN, and the upper bounds keep infinities out.
        const double most = std::numeric_limits<double>::max();
        number("/training/dropout", t.dropout, t.dropout >= 0 && t.dropout < 1, "a number of at least 0 and below 1");
        number("/training/optimizer/learning_rate", o.learning_rate, o.learning_rate >= 0 && o.learning_rate <= most,
               "a number of at least 0");
        number("/training/optimizer/beta1", o.beta1, o.beta1 >= 0 && o.beta1 < 1, "a number of at least 0 and below 1");
        number("/training/optimizer/beta2", o.beta2, o.beta2 >= 0 && o.beta2 < 1, "a number of at least 0 and below 1");
        number("/training/optimizer/epsilon", o.epsilon, o.epsilon > 0 && o.epsilon <= most, "a number greater than 0");
        number("/training/optimizer/weight_decay", o.weight_decay, o.weight_decay >= 0 && o.weight_decay <= most,
               "a number of at least 0");
        if (t.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            fail("/training/seed", std::to_string(t.seed), "an integer from 0 to 9223372036854775807");
        }
        if (t.data.empty()) fail("/training/data", "\"\"", "\"synthetic\" or the path of a text file");
        if (t.data != "synthetic" && plan_.model.vocab < kBytesVocabulary) {
            fail("/training/data", quoted(t.data),
                 "\"synthetic\", because a text file is read as bytes and the model's vocabulary of " +
                     std::to_string(plan_.model.vocab) + " has no room for 256");
        }
    }

    void check_dtype(const std::string& key, DType dtype) const {
        if (dtype == DType::fp32 || dtype == DType::bf16 || dtype == DType::fp16) return;
        fail("/training/precision/" + key, quoted(orrery::name_of(dtype)), "\"fp32\", \"bf16\", \"fp16\"");
    }
    [[nodiscard]] std::string degrees() const {
        const Parallelism& p = plan_.parallelism;
        return "dp " + std::to_string(p.dp) + " * tp " + std::to_string(p.tp) + " * pp " + std::to_string(p.pp) +
               " = " + std::to_string(p.world_size());
    }

    const Plan& plan_;
    const std::string& source_;
};

}  // namespace

void check_plan(const Plan& plan, const std::string& source) {
    PlanChecker(plan, source).run();
}

}  // namespace orrery::program
