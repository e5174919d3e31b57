#include "topologies/catalogue.h"

#include <span>

#include "core/embedded.h"
#include "core/error.h"
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

}  // namespace

DeviceProfile load_device(const std::string& name) {
    static ReadOnce<DeviceProfile> devices;
    return devices.get(name, [&] { return load("device", "orrery.device/1", device_files(), name, read_device); });
}

std::vector<std::string> device_names() {
    return names_of(device_files());
}

LinkProfile load_link(const std::string& name) {
    static ReadOnce<LinkProfile> links;
    return links.get(name, [&] { return load("link", "orrery.link/1", link_files(), name, read_link); });
}

std::vector<std::string> link_names() {
    return names_of(link_files());
}

}  // namespace orrery::topologies
