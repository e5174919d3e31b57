#include "sim/capacity/catalogue.h"

#include <algorithm>
#include <span>
#include <vector>

#include "core/csv.h"
#include "core/embedded.h"
#include "core/error.h"
#include "sim/program/scaling_fields.h"
#include "topologies/catalogue.h"
#include "topologies/device_words.h"

namespace orrery {
std::span<const EmbeddedFile> cost_files();
}

namespace orrery::sim {
namespace {

constexpr const char* kCatalogueSchema = "orrery.catalogue/1";
constexpr std::int64_t kMostAccelerators = 1024;

using topologies::DeviceWords;

/// The known device that a price list's name means: "H100", "A100-80GB", "B200". For a name without a form, the SXM
/// module; nullopt: none.
std::optional<std::string> device_named_in_list(const std::string& name) {
    const std::optional<DeviceWords> words = topologies::read_device_words(name);
    if (!words) return {};
    std::optional<std::string> found;
    for (const std::string& known : topologies::device_names()) {
        const std::optional<DeviceWords> of_known = topologies::read_device_words(known);
        if (!of_known || of_known->model != words->model) continue;
        if (!words->form.empty() && of_known->form != words->form) continue;
        if (words->memory_gb && of_known->memory_gb && *words->memory_gb != *of_known->memory_gb) continue;
        if (!found || known.find("-sxm") != std::string::npos) found = known;
    }
    return found;
}

}  // namespace

const Catalogue& built_in_catalogue() {
    static const Catalogue built_in =
        catalogue_from_json_text(std::string(cost_files().front().content), "built-in catalogue");
    return built_in;
}

Catalogue catalogue_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kCatalogueSchema);
    Catalogue catalogue;
    if (reader.has("devices")) {
        const JsonReader devices = reader.object("devices");
        for (const std::string& name : devices.keys()) {
            (void)topologies::load_device(name);  // refuses unknown names
            const JsonReader device = devices.object(name);
            read_field(device, "usd_per_device_hour", catalogue.usd_per_device_hour[name]);
            device.finish();
        }
        devices.finish();
    }
    if (reader.has("faults")) read_field(reader, "faults", catalogue.faults);
    const std::optional<program::DatedFigure>& replaced = catalogue.faults.replaced_share;
    if (replaced && replaced->value > 1) {
        throw InputError(file, "/faults/replaced_share/value", shortest(replaced->value), "at most 1");
    }
    reader.finish();
    return catalogue;
}

Catalogue merged(Catalogue under, const Catalogue& over) {
    for (const auto& [device, price] : over.usd_per_device_hour) under.usd_per_device_hour[device] = price;
    std::vector<const std::optional<program::DatedFigure>*> figures;
    program::visit_fields(over.faults, [&](const char*, const auto& figure) { figures.push_back(&figure); });
    std::size_t i = 0;
    program::visit_fields(under.faults, [&](const char*, auto& figure) {
        if (*figures[i]) figure = *figures[i];
        ++i;
    });
    return under;
}

Catalogue catalogue_from_price_csv(const std::string& text, const std::string& file, const std::string& as_of,
                                   bool spot) {
    const CsvTable table(text, file);
    const char* const price_column = spot ? "SpotPrice" : "Price";
    for (const char* column : {"AcceleratorName", "AcceleratorCount", "Region", price_column}) {
        if (!table.has(column)) {
            throw InputError(
                file, "the first line", table.first_line(),
                std::string("CSV columns with AcceleratorName, AcceleratorCount, Region and ") + price_column);
        }
    }
    Catalogue catalogue;
    for (const CsvRow& row : table.rows()) {
        if (row.optional_text("AcceleratorName").empty() || row.optional_text(price_column).empty()) continue;
        const std::optional<std::string> device = device_named_in_list(row.text("AcceleratorName"));
        if (!device) continue;
        // SkyPilot writes counts as "8.0".
        const double count = row.positive("AcceleratorCount");
        if (count > static_cast<double>(kMostAccelerators)) (void)row.integer("AcceleratorCount", 1, kMostAccelerators);
        const double usd = row.positive(price_column) / count;
        const auto [price, fresh] = catalogue.usd_per_device_hour.try_emplace(*device);
        if (!fresh && price->second.value <= usd) continue;
        price->second = {.value = usd,
                         .as_of = as_of,
                         .source = file + ", row " + std::to_string(row.number()) + ": " + row.text("AcceleratorName") +
                                   (spot ? " spot" : "") + " in " + row.text("Region")};
    }
    if (catalogue.usd_per_device_hour.empty()) {
        throw InputError(file, "the table", "no row", "at least one row with a known accelerator and its price");
    }
    return catalogue;
}

program::CostFigures cost_figures(const Catalogue& catalogue, const topologies::DeviceProfile& device) {
    program::CostFigures figures;
    const std::optional<DeviceWords> words = topologies::read_device_words(device.name);
    for (const auto& [name, price] : catalogue.usd_per_device_hour) {
        if (name == device.name) {
            figures.usd_per_device_hour = price;
            break;
        }
        const std::optional<DeviceWords> listed = topologies::read_device_words(name);
        if (words && listed && words->model == listed->model && words->form == listed->form) {
            figures.usd_per_device_hour = price;
            figures.usd_per_device_hour->source += "; that of " + name;
        }
    }
    if (device.power_limit_w.value > 0) {
        figures.watts = {.value = device.power_limit_w.value, .as_of = "", .source = device.power_limit_w.source};
    }
    return figures;
}

}  // namespace orrery::sim
