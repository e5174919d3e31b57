#include "sim/program/rates.h"

#include <algorithm>

#include "core/embedded.h"
#include "core/error.h"
#include "sim/program/rate_fields.h"

namespace orrery {
std::span<const EmbeddedFile> rate_files();
std::span<const EmbeddedFile> rate_prior_files();
}  // namespace orrery

namespace orrery::program {
namespace {

constexpr const char* kRatesSchema = "orrery.rates/1";
constexpr RateOwner kStack = RateOwner::implementation;

constexpr PerRate<RateRow> kRows{{{
    {RateKey::computation, "computation", kStack, false, 1.0, 0.1, "factor on all computation of the stack"},
    {RateKey::elementwise, "elementwise", kStack, true, 1.22, 0.4,
     "factor on norms, activations, residuals, casts and other work limited by memory bandwidth"},
    {RateKey::head, "head", kStack, true, 1.105, 0.2, "factor on the embedding, the head and the loss"},
    {RateKey::recomputation, "recomputation", kStack, true, 1.0, 0.15, "factor on recomputation"},
    {RateKey::tp, "tp", kStack, true, 1.0, 0.4, "factor on collectives of tensor and context parallelism"},
    {RateKey::tp_pieces, "tp_pieces", kStack, true, 1.0, 0.5,
     "factor on the exchanges of a pipelined tensor-parallel GEMM, one for each piece"},
    {RateKey::dp, "dp", kStack, true, 1.0, 0.5, "factor on collectives of gradients and parameters"},
    {RateKey::pp, "pp", kStack, true, 1.22, 0.7, "factor on transfers between stages"},
    {RateKey::ep, "ep", kStack, true, 1.2, 0.5, "factor on exchanges of tokens between experts"},
    {RateKey::hidden_dp, "hidden_dp", kStack, false, 0.1, 0.8,
     "share of the device that collectives of gradients and parameters take from concurrent computation, beyond the "
     "compute units of their kernels"},
    {RateKey::hidden_tp, "hidden_tp", kStack, false, 0.1, 0.8,
     "the same for the exchanges of a pipelined tensor-parallel GEMM"},
    {RateKey::host_layer_ms, "host_layer_ms", kStack, false, 0.3, 0.8,
     "host time for a block, forward and backward together"},
    {RateKey::host_step_ms, "host_step_ms", kStack, false, 10.0, 1.2, "host time of a step outside its passes"},
    {RateKey::tp_layer_ms, "tp_layer_ms", kStack, false, 0.05, 1.0,
     "additional host time for a block with tensor parallelism, forward and backward together"},
    {RateKey::tp_layer_pipelined_ms, "tp_layer_pipelined_ms", kStack, false, 0.05, 1.0,
     "the same time with a pipeline over several nodes, at tp 2"},
    {RateKey::tp_layer_pipelined_growth, "tp_layer_pipelined_growth", kStack, false, 1.65, 0.3,
     "factor on tp_layer_pipelined_ms for each further doubling of the tensor-parallel ranks"},
    {RateKey::products, "products", RateOwner::device, false, 1.105, 0.2,
     "factor on GEMMs inside a step: power limits, real data, a shared cache"},
    {RateKey::fp8, "fp8", RateOwner::device, false, 1.0, 0.2,
     "further factor on fp8 GEMMs; scales and casts are separate work"},
    {RateKey::nvlink, "nvlink", RateOwner::device, false, 1.105, 0.2, "factor on collectives inside a node"},
    {RateKey::attention, "attention", RateOwner::attention, false, 1.22, 0.2, "factor on fused attention, by kernel"},
    {RateKey::attention_on_device, "attention_on_device", RateOwner::attention, false, 1.0, 0.3,
     "further factor on fused attention, by kernel and device"},
    {RateKey::narrow_heads, "narrow_heads", RateOwner::attention, false, 1.0, 0.2,
     "further factor for head dimensions of at most 64, by kernel: kernels are tuned for some widths"},
    {RateKey::fabric, "fabric", RateOwner::fabric, false, 1.35, 0.4, "factor on communication between nodes"},
    {RateKey::tp_wait_across_nodes, "tp_wait_across_nodes", RateOwner::fabric, false, 2.0, 0.5,
     "factor on tp_wait_us for ranks on several nodes, whose hosts and networks vary more"},
    {RateKey::tp_wait_us, "tp_wait_us", RateOwner::general, false, 100.0, 0.6,
     "wait at each reduction over tensor-parallel ranks, which reach it at different times"},
    {RateKey::attention_backward, "attention_backward", RateOwner::general, false, 1.0, 0.3,
     "further factor on the backward of fused attention"},
    {RateKey::attention_product, "attention_product", RateOwner::general, false, 1.0, 0.4,
     "factor on the batched GEMMs of unfused attention"},
    {RateKey::odd_heads, "odd_heads", RateOwner::general, false, 5.0, 0.5,
     "further factor for head dimensions that are no multiple of 8: no tensor cores, unaligned loads"},
    {RateKey::expert_products, "expert_products", RateOwner::general, false, 1.2, 0.4,
     "factor on grouped GEMMs of experts"},
}}};

static_assert(std::ranges::equal(kRows, enum_values<RateKey, kRateKeys>(), {}, &RateRow::key));

/// The row of the key in which the name ends; nullptr if there is none.
const RateRow* find_row(const std::string& name) {
    const auto row = std::ranges::find(kRows, name.substr(name.rfind('/') + 1), &RateRow::name);
    return row != kRows.end() ? &*row : nullptr;
}

/// What a key's rate may belong to, in order of precedence: a rate's full name without its key.
std::vector<std::string> owners_of(const RateRow& row, const models::Implementation& implementation,
                                   const topologies::ClusterSpec& cluster) {
    const std::int64_t capability = cluster.device.compute_capability;
    const std::string architecture = capability == 0 ? cluster.device.name : "sm_" + std::to_string(capability);
    switch (row.owner) {
        case RateOwner::implementation: {
            std::vector<std::string> owners{"implementation/" + implementation.name};
            for (const models::Base& base : models::bases_of(implementation.name)) {
                if (!base.shares_rates && !row.inherited) break;
                if (!base.shares_rates) owners.emplace_back();
                owners.back() = "implementation/" + base.name;
            }
            return owners;
        }
        case RateOwner::device:
            return {"device/" + cluster.device.name, "device/" + architecture};
        case RateOwner::attention: {
            const std::string kernel = "attention/" + implementation.kernels.attention_kernel;
            return {row.key == RateKey::attention_on_device ? kernel + "/" + architecture : kernel};
        }
        case RateOwner::fabric:
            return {"fabric/" + cluster.nic.name, "fabric/" + topologies::name_of(cluster.nic.kind)};
        case RateOwner::general:
            return {"general"};
    }
    return {};
}

Rate prior_of(const RateRow& row) {
    return {
        .value = row.prior, .source = "what is assumed before any run is looked at", .prior = row.prior, .sd = row.sd};
}

/// Whether the rate is one of communication. All others are of computation and of the host.
bool is_of_communication(RateKey key) {
    switch (key) {
        case RateKey::tp:
        case RateKey::tp_pieces:
        case RateKey::dp:
        case RateKey::pp:
        case RateKey::ep:
        case RateKey::hidden_dp:
        case RateKey::hidden_tp:
        case RateKey::nvlink:
        case RateKey::fabric:
        case RateKey::tp_wait_across_nodes:
        case RateKey::tp_wait_us:
            return true;
        default:
            return false;
    }
}

/// The catalogue with the rates of the files, which replace those of the same name.
RateCatalogue with_files(RateCatalogue catalogue, std::span<const EmbeddedFile> files) {
    for (const EmbeddedFile& file : files) {
        for (const auto& [name, rate] :
             rates_from_json_text(std::string(file.content), "rates " + std::string(file.name))) {
            catalogue[name] = rate;
        }
    }
    return catalogue;
}

}  // namespace

const PerRate<RateRow>& rate_rows() {
    return kRows;
}

const RateRow& row_of(RateKey key) {
    return kRows[key];
}

const RateRow& row_of_name(const std::string& name) {
    const RateRow* const row = find_row(name);
    ORRERY_CHECK(row != nullptr, "no rate has the name '" + name + "'");
    return *row;
}

RateCatalogue rates_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kRatesSchema);
    RateCatalogue catalogue;
    const JsonReader rates = reader.object("rates");
    for (const std::string& name : rates.keys()) {
        if (find_row(name) == nullptr) rates.fail(name, "a name that ends in the key of a rate");
        read_field(rates, name, catalogue[name]);
    }
    rates.finish();
    reader.finish();
    return catalogue;
}

std::string to_json_text(const RateCatalogue& catalogue) {
    std::string text = "{\n  \"schema\": \"" + std::string(kRatesSchema) + "\",\n  \"rates\": {";
    const char* separator = "\n";
    for (const auto& [name, rate] : catalogue) {
        text += separator + ("    " + JsonValue(name).text()) + ": " + orrery::field_json(rate).text();
        separator = ",\n";
    }
    return text + "\n  }\n}\n";
}

const RateCatalogue& built_in_priors() {
    static const RateCatalogue catalogue = with_files({}, rate_prior_files());
    return catalogue;
}

const RateCatalogue& built_in_rates() {
    static const RateCatalogue catalogue = with_files(built_in_priors(), rate_files());
    return catalogue;
}

Rates::Rates() {
    for (const RateRow& row : kRows) {
        const bool is_time = row.name.ends_with("_ms") || row.name.ends_with("_us");
        const bool is_share = row.key == RateKey::hidden_dp || row.key == RateKey::hidden_tp;
        values_[row.key].rate.value = is_time || is_share ? 0.0 : 1.0;
    }
}

Rates resolve_rates(const models::Implementation& implementation, const topologies::ClusterSpec& cluster,
                    const RateCatalogue& catalogue) {
    Rates rates;
    if (cluster.device.host_runs_compute) return rates;
    const bool is_timed = implementation.executable && !cluster.device.operator_samples.empty();
    for (const RateRow& row : kRows) {
        if (is_timed && !is_of_communication(row.key)) continue;
        std::vector<std::string> names = owners_of(row, implementation, cluster);
        for (std::string& name : names) name.append("/").append(row.name);
        const auto found =
            std::ranges::find_if(names, [&](const std::string& name) { return catalogue.contains(name); });
        // A device without a rate of its own shares that of its architecture.
        const std::string& own = row.owner == RateOwner::device ? names.back() : names.front();
        rates.set(row.key, found == names.end() ? Rates::Resolved{own, prior_of(row)}
                                                : Rates::Resolved{*found, catalogue.at(*found)});
    }
    return rates;
}

}  // namespace orrery::program
