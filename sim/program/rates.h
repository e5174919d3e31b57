// Rates: how much longer work takes in a training step than physics and kernels timed alone say. Each is one named
// figure of a stack, a device, an attention kernel or a fabric, with what was believed of it before any run was looked
// at (a log-normal prior) and, where published runs tell more, what was fitted to them. None belongs to a model or a
// row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/implementation.h"
#include "topologies/cluster_spec.h"

namespace orrery {
class JsonReader;
}

namespace orrery::program {

enum class RateKey : std::uint8_t {
    // Factors on the time of work, by the stack that runs it.
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
    // Host time of the stack.
    host_layer_ms,
    host_step_ms,
    tp_layer_ms,
    tp_layer_pipelined_ms,
    tp_layer_pipelined_growth,
    // Factors by the device.
    products,
    fp8,
    nvlink,
    // By the attention kernel, and by its form for a device.
    attention,
    attention_on_device,
    narrow_heads,
    // By the network between nodes.
    fabric,
    tp_wait_across_nodes,
    // Of everybody.
    tp_wait_us,
    attention_backward,
    attention_product,
    odd_heads,
    expert_products,
};
inline constexpr std::size_t kRateKeys = static_cast<std::size_t>(RateKey::expert_products) + 1;

/// Whose figure a rate is: the first part of its name ("implementation/nemo/head").
enum class RateOwner : std::uint8_t { implementation, device, attention, fabric, general };

/// What a key stands for, and what is believed of it where nothing is known: the mean and the standard deviation of its
/// logarithm.
struct RateRow {
    RateKey key{};
    std::string_view name;
    RateOwner owner{};
    bool inherited = false;  // a stack based on another one has the other's figure where it has none of its own
    double prior = 1;        // a factor, or milliseconds where the name says so
    double sd = 0;           // of the logarithm
    std::string_view what;
};
[[nodiscard]] const std::array<RateRow, kRateKeys>& rate_rows();
[[nodiscard]] const RateRow& row_of(RateKey key);
/// By a figure's full name, whose last part is the key's; a BugError when no key has it.
[[nodiscard]] const RateRow& row_of_name(const std::string& name);

/// A figure of a catalogue.
struct Rate {
    double value = 1;
    topologies::Provenance kind = topologies::Provenance::fallback;
    std::string source;
    double prior = 1, sd = 0;
    double information = 0;  // of a fitted one: 1 - variance after the fit / before, of the logarithm
    bool operator==(const Rate&) const = default;
};

/// `orrery.rates/1`: figures by their full names, ascending.
struct RateCatalogue {
    struct Entry {
        std::string name;  // "implementation/nemo/head", "device/sm_90/products", "general/odd_heads"
        Rate rate;
        bool operator==(const Entry&) const = default;
    };
    std::vector<Entry> entries;
    [[nodiscard]] const Rate* find(std::string_view name) const;
    void set(const std::string& name, const Rate& rate);
};
/// The one that is compiled in.
[[nodiscard]] const RateCatalogue& built_in_rates();
/// What is believed before any run is looked at, where more is known than its key's prior: kernels timed alone. Each
/// figure's value is its prior.
[[nodiscard]] const RateCatalogue& built_in_priors();
[[nodiscard]] RateCatalogue rates_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] RateCatalogue read_rates(const std::string& path);
[[nodiscard]] std::string to_json_text(const RateCatalogue& catalogue);

/// What holds for one plan.
class Rates {
  public:
    struct Resolved {
        std::string name;  // of the figure; empty: none applies, the value is neutral
        Rate rate;
        bool operator==(const Resolved&) const = default;
    };
    /// Every factor 1, every time 0.
    Rates();
    [[nodiscard]] double operator[](RateKey key) const { return values_[static_cast<std::size_t>(key)].rate.value; }
    [[nodiscard]] const Resolved& of(RateKey key) const { return values_[static_cast<std::size_t>(key)]; }
    void set(RateKey key, Resolved resolved) { values_[static_cast<std::size_t>(key)] = std::move(resolved); }
    bool operator==(const Rates&) const = default;

  private:
    std::array<Resolved, kRateKeys> values_;
};

/// Of a plan: an object with a figure for each key, which names where it is from. What is not there is neutral.
[[nodiscard]] Rates rates_from_json(const JsonReader& reader);
[[nodiscard]] std::string to_json_text(const Rates& rates);

/// The figures for such a stack on such a cluster: of each key the first that the catalogue has of
///   implementation/NAME, and of what NAME is based on where the key is inherited
///   device/NAME, device/sm_90 (by compute capability)
///   attention/KERNEL; attention/KERNEL/sm_90 (for the device)
///   fabric/LINK, fabric/KIND (LinkProfile::kind)
///   general
/// and otherwise the prior, under the first of these names (of a device: the architecture's). Neutral where the host
/// computes: its operators were timed in a step.
[[nodiscard]] Rates resolve_rates(const models::Implementation& implementation, const topologies::ClusterSpec& cluster,
                                  const RateCatalogue& catalogue = built_in_rates());

}  // namespace orrery::program
