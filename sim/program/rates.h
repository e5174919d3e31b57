// Rates: how much longer work takes in a training step than hardware limits and isolated kernel timings predict. A rate
// belongs to a stack (an implementation), a device, an attention kernel or a fabric, never to a model or a single run.
// It has a log-normal prior and, if enough published runs depend on it, a value fitted to them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/index.h"
#include "models/implementation.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {

enum class RateKey : std::uint8_t {
    // Of a stack: factors on the time of work.
    computation,
    elementwise,
    head,
    recomputation,
    tp,
    tp_pieces,
    dp,
    pp,
    ep,
    hidden_dp,
    hidden_tp,
    // Of a stack: host time.
    host_layer_ms,
    host_step_ms,
    tp_layer_ms,
    tp_layer_pipelined_ms,
    tp_layer_pipelined_growth,
    // Of a device.
    products,
    fp8,
    nvlink,
    // Of an attention kernel, or of an attention kernel on a device.
    attention,
    attention_on_device,
    narrow_heads,
    // Of the network between nodes.
    fabric,
    tp_wait_across_nodes,
    // General.
    tp_wait_us,
    attention_backward,
    attention_product,
    odd_heads,
    expert_products,
};
inline constexpr std::size_t kRateKeys = static_cast<std::size_t>(RateKey::expert_products) + 1;
template <typename T>
using PerRate = EnumArray<RateKey, T, kRateKeys>;

/// What a rate belongs to: the first part of its name ("implementation/nemo/head").
enum class RateOwner : std::uint8_t { implementation, device, attention, fabric, general };

/// The meaning of a key, and its prior.
struct RateRow {
    RateKey key{};
    std::string_view name;
    RateOwner owner{};
    bool inherited = false;  // a stack without such a rate uses the one of the stack that it is based on
    double prior = 1;        // a factor, or a time if the name ends in _ms or _us
    double sd = 0;           // standard deviation of the logarithm
    std::string_view what;   // description
};
[[nodiscard]] const PerRate<RateRow>& rate_rows();
[[nodiscard]] const RateRow& row_of(RateKey key);
/// The row for a rate's full name, which ends in the key's name. Throws BugError if there is no such key.
[[nodiscard]] const RateRow& row_of_name(const std::string& name);

/// The value of a rate.
struct Rate {
    double value = 1;
    topologies::Provenance kind = topologies::Provenance::fallback;
    std::string source;
    double prior = 1, sd = 0;
    double information = 0;  // fitted: 1 - variance after the fit / variance of the prior, both of the logarithm
    bool operator==(const Rate&) const = default;
};

/// Rates by full name, such as "implementation/nemo/head", "device/sm_90/products" or "general/odd_heads"
/// (`orrery.rates/1`).
using RateCatalogue = std::map<std::string, Rate>;
/// The catalogue that is compiled in: built_in_priors() and the fitted rates.
[[nodiscard]] const RateCatalogue& built_in_rates();
/// Rates with priors of their own, for example from isolated kernel timings. The value of each is its prior.
[[nodiscard]] const RateCatalogue& built_in_priors();
[[nodiscard]] RateCatalogue rates_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const RateCatalogue& catalogue);

/// The rates of one plan.
class Rates {
  public:
    struct Resolved {
        std::string name;  // full name; empty: no rate applies, and the value is neutral
        Rate rate;
        bool operator==(const Resolved&) const = default;
    };
    /// Neutral rates: factors are 1, times and shares are 0.
    Rates();
    [[nodiscard]] double operator[](RateKey key) const { return values_[key].rate.value; }
    [[nodiscard]] const Resolved& of(RateKey key) const { return values_[key]; }
    void set(RateKey key, Resolved resolved) { values_[key] = std::move(resolved); }
    bool operator==(const Rates&) const = default;

  private:
    PerRate<Resolved> values_;
};

/// The rates of a stack on a cluster. For each key, the first of these names that the catalogue has:
///   implementation/NAME and, if the key is inherited, the stacks that NAME is based on; in place of a stack that
///     shares the rates of its base (models::Base), the base
///   device/NAME, device/sm_90 (by compute capability)
///   attention/KERNEL; attention_on_device: attention/KERNEL/sm_90
///   fabric/LINK, fabric/KIND (LinkProfile::kind)
///   general
/// If it has none of them, the key's prior under the first name (for a device: under the architecture's). If the host
/// computes, all rates are neutral, since its operators were timed inside a step. If the executor's operators were
/// timed on the device (`orrery calibrate --gpu`), the executor's rates of computation and of the host are neutral: its
/// kernels are those that were timed, and it launches them from C++ ahead of the device.
[[nodiscard]] Rates resolve_rates(const models::Implementation& implementation, const topologies::ClusterSpec& cluster,
                                  const RateCatalogue& catalogue = built_in_rates());

}  // namespace orrery::program
