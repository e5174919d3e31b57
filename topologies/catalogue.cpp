#include "topologies/catalogue.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/embedded.h"
#include "core/error.h"
#include "topologies/device_words.h"
#include "topologies/names.h"
#include "topologies/profile_json.h"
#include "topologies/read_once.h"

namespace orrery {
std::span<const EmbeddedFile> device_files();
std::span<const EmbeddedFile> link_files();
}  // namespace orrery

namespace orrery::topologies {
namespace {

std::vector<std::string> names_of(std::span<const EmbeddedFile> files) {
    std::vector<std::string> names;  // sorted, as the files are
    for (const EmbeddedFile& file : files) names.emplace_back(file.name);
    return names;
}

/// The object under `key` of the file called `name`.
template <typename Read>
auto load(const std::string& key, const char* schema, std::span<const EmbeddedFile> files, const std::string& name,
          Read read) {
    for (const EmbeddedFile& file : files) {
        if (file.name != name) continue;
        const JsonReader reader = JsonReader::parse(std::string(file.content), key + " " + name);
        reader.expect_schema(schema);
        auto profile = read(reader.object(key));
        reader.finish();
        ORRERY_CHECK(profile.name == name, "the " + key + " file " + name + " holds " + profile.name);
        return profile;
    }
    throw InputError("no " + key + " is called '" + name + "'" + hint_and_names(name, names_of(files)));
}

/// "roce-25" and "infiniband-56": Gb/s of a link that no file describes.
struct StatedRate {
    double gb_per_s = 0;  // Gb/s
    std::vector<std::string> family;
};
std::optional<StatedRate> stated_rate(const std::string& name) {
    const std::vector<std::string> known = link_names();
    if (std::find(known.begin(), known.end(), name) != known.end()) return {};
    for (const auto& [prefix, family] :
         {std::pair<std::string, std::vector<std::string>>{"roce-", {"roce-100", "roce-200", "roce-400"}},
          {"infiniband-", {"infiniband-edr", "infiniband-hdr", "infiniband-ndr", "infiniband-xdr"}}}) {
        if (!name.starts_with(prefix) || name.size() > prefix.size() + 4) continue;
        const std::string digits = name.substr(prefix.size());
        if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) continue;
        constexpr double kSlowest = 10;
        if (const double rate = std::stod(digits); rate >= kSlowest) return StatedRate{rate, family};
    }
    return {};
}

/// The nearest of the family with the rate that the name says.
LinkProfile link_of_rate(const std::string& name, const StatedRate& rate) {
    const double gigabytes = rate.gb_per_s / 8;
    LinkProfile nearest = load_link(rate.family.front());
    for (const std::string& one : rate.family) {
        LinkProfile link = load_link(one);
        const auto far = [&](const LinkProfile& l) {
            return std::abs(std::log(l.bandwidth_gb_per_s_per_direction.value / gigabytes));
        };
        if (far(link) < far(nearest)) nearest = std::move(link);
    }
    nearest.bandwidth_gb_per_s_per_direction = {gigabytes, Provenance::fallback,
                                                "derived: the rate that the name says; all else as " + nearest.name};
    nearest.name = name;
    return nearest;
}

/// Inside a node.
bool joins_devices(const std::string& link) {
    return link.starts_with("nvlink") || link.starts_with("pcie") || link.starts_with("infinity-fabric");
}

}  // namespace

DeviceProfile load_device(const std::string& name) {
    static ReadOnce<DeviceProfile> devices;
    const std::vector<std::string> known = device_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
        std::vector<DeviceProfile> profiles;
        for (const std::string& one : known) profiles.push_back(load_device(one));
        if (std::optional<DeviceProfile> variant = device_variant(name, profiles)) return *variant;
    }
    return devices.get(name, [&] { return load("device", "orrery.device/1", device_files(), name, read_device); });
}

std::vector<std::string> device_names() {
    return names_of(device_files());
}

LinkProfile load_link(const std::string& name) {
    static ReadOnce<LinkProfile> links;
    if (const auto rate = stated_rate(name)) return link_of_rate(name, *rate);
    return links.get(name, [&] { return load("link", "orrery.link/1", link_files(), name, read_link); });
}

std::vector<std::string> link_names() {
    return names_of(link_files());
}

std::vector<std::string> nic_names() {
    std::vector<std::string> names = link_names();
    std::erase_if(names, joins_devices);
    return names;
}

LinkProfile load_nic(const std::string& name) {
    if (joins_devices(name)) throw InputError("link", "the NICs' name", "'" + name + "'", join_names(nic_names()));
    return load_link(name);
}

}  // namespace orrery::topologies
