#include "topologies/catalogue.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "core/embedded.h"
#include "core/error.h"
#include "topologies/device_words.h"
#include "topologies/names.h"
#include "topologies/profile_fields.h"
#include "topologies/read_once.h"

namespace orrery {
std::span<const EmbeddedFile> device_files();
std::span<const EmbeddedFile> link_files();
}  // namespace orrery

namespace orrery::topologies {
namespace {

std::vector<std::string> file_names(std::span<const EmbeddedFile> files) {
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
    throw InputError("no " + key + " is called '" + name + "'" + hint_and_names(name, file_names(files)));
}

/// The rate in a link's name that no file describes: "roce-25", "infiniband-56".
struct StatedRate {
    double gbit_per_s = 0;
    LinkMedium medium{};
};
std::optional<StatedRate> stated_rate(const std::string& name) {
    const std::vector<std::string> known = link_names();
    if (std::find(known.begin(), known.end(), name) != known.end()) return {};
    for (const LinkMedium medium : {LinkMedium::roce, LinkMedium::infiniband}) {
        const std::string before = name_of(medium) + "-";
        if (!name.starts_with(before) || name.size() > before.size() + 4) continue;
        const std::string digits = name.substr(before.size());
        if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) continue;
        constexpr double kSlowest = 10;
        if (const double rate = std::stod(digits); rate >= kSlowest) return StatedRate{rate, medium};
    }
    return {};
}

/// The link of the same kind nearest in rate, with the rate from the name.
LinkProfile link_of_rate(const std::string& name, const StatedRate& rate) {
    const double gigabytes = rate.gbit_per_s / 8;
    std::vector<LinkProfile> known;
    for (const std::string& one : link_names()) {
        if (LinkProfile link = load_link(one); link.kind == rate.medium) known.push_back(std::move(link));
    }
    const auto far = [&](const LinkProfile& link) {
        return std::abs(std::log(link.bandwidth_gb_per_s_per_direction.value / gigabytes));
    };
    LinkProfile nearest =
        *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) { return far(a) < far(b); });
    nearest.bandwidth_gb_per_s_per_direction = {gigabytes, Provenance::fallback,
                                                "derived: the rate that the name says; all else as " + nearest.name};
    nearest.name = name;
    return nearest;
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
    return file_names(device_files());
}

LinkProfile load_link(const std::string& name) {
    static ReadOnce<LinkProfile> links;
    if (const auto rate = stated_rate(name)) return link_of_rate(name, *rate);
    return links.get(name, [&] { return load("link", "orrery.link/1", link_files(), name, read_link); });
}

std::vector<std::string> link_names() {
    return file_names(link_files());
}

std::vector<std::string> nic_names() {
    std::vector<std::string> names = link_names();
    std::erase_if(names, [](const std::string& name) { return !joins_nodes(load_link(name).kind); });
    return names;
}

LinkProfile load_nic(const std::string& name) {
    LinkProfile link = load_link(name);
    if (!joins_nodes(link.kind)) throw InputError("link", "the NICs' name", "'" + name + "'", join_names(nic_names()));
    return link;
}

}  // namespace orrery::topologies
