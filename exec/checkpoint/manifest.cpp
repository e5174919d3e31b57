#include "exec/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/index.h"
#include "core/json_reader.h"

namespace orrery::exec {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "orrery.checkpoint/1";
constexpr std::string_view kChecksumKey = ",\"crc32c\":\"";
// Limited because a reader keeps a chunk in memory.
constexpr IntegerRange kAllowedChunkBytes{1, std::int64_t{1} << 26};
constexpr IntegerRange kChecksum{0, 0xFFFFFFFF};
constexpr EnumArray<StateKind, std::string_view, kStateKinds> kKindNames{
    {"parameter", "adam_m", "adam_v", "momentum", "master"}};

std::string hexadecimal(std::uint32_t value) {
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08x", value);
    return text.data();
}

Json file_json(const StoredFile& stored) {
    Json json{{"name", stored.name}, {"bytes", stored.bytes}, {"crc32c", stored.checksums}, {"slices", Json::array()}};
    for (const StoredSlice& slice : stored.slices) {
        json["slices"].push_back({{"tensor", slice.tensor},
                                  {"kind", name_of(slice.kind)},
                                  {"dtype", orrery::name_of(slice.dtype)},
                                  {"offset", {slice.row, slice.col}},
                                  {"extent", {slice.rows, slice.cols}},
                                  {"at", slice.at}});
    }
    return json;
}

std::vector<std::int64_t> pair_of(const JsonReader& json, const std::string& key, const IntegerRange& range) {
    std::vector<std::int64_t> values = json.integers(key, range);
    if (values.size() != 2) json.fail(key, "two integers: rows and columns");
    return values;
}

StateKind read_kind(const JsonReader& json) {
    const std::string name = json.choice("kind", {kKindNames.begin(), kKindNames.end()});
    return static_cast<StateKind>(std::find(kKindNames.begin(), kKindNames.end(), name) - kKindNames.begin());
}

StoredSlice read_slice(const JsonReader& json, std::int64_t file_bytes) {
    StoredSlice slice;
    slice.tensor = json.string("tensor");
    slice.kind = read_kind(json);
    slice.dtype = *dtype_named(json.choice("dtype", {"fp32", "bf16", "fp16"}));
    const auto offset = pair_of(json, "offset", kCount);
    const auto extent = pair_of(json, "extent", kPositiveInteger);
    slice.row = offset[0];
    slice.col = offset[1];
    slice.rows = extent[0];
    slice.cols = extent[1];
    slice.at = json.integer("at", kCount);
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(slice.rows, slice.cols, &bytes) ||
        __builtin_mul_overflow(bytes, size_of(slice.dtype), &bytes) || slice.at > file_bytes ||
        bytes > file_bytes - slice.at) {
        json.fail("extent", "a block inside its file of " + std::to_string(file_bytes) + " bytes");
    }
    json.finish();
    return slice;
}

StoredFile read_file(const JsonReader& json) {
    StoredFile stored;
    stored.name = json.string("name");
    if (stored.name.empty() || stored.name.front() == '.' || stored.name.find('/') != std::string::npos) {
        json.fail("name", "the name of a file in the checkpoint's folder");
    }
    stored.bytes = json.integer("bytes", kCount);
    for (const std::int64_t checksum : json.integers("crc32c", kChecksum)) {
        stored.checksums.push_back(static_cast<std::uint32_t>(checksum));
    }
    for (const JsonReader& slice : json.objects("slices")) stored.slices.push_back(read_slice(slice, stored.bytes));
    json.finish();
    return stored;
}

/// Throws InputError unless the text ends with the checksum of what precedes it.
void check_checksum(const std::string& text, const std::string& file) {
    const std::size_t end = text.rfind(kChecksumKey);
    const std::string expected = end == std::string::npos ? "" : hexadecimal(crc32c(text.data(), end));
    if (end == std::string::npos || text.substr(end + kChecksumKey.size()) != expected + "\"}\n") {
        throw InputError(file, "/crc32c", "a checksum that does not match the text",
                         "an undamaged " + std::string(kSchema));
    }
}

void check_blocks(const JsonReader& json, const Manifest& manifest, const StoredFile& stored) {
    const auto chunks = static_cast<std::size_t>((stored.bytes + manifest.chunk_bytes - 1) / manifest.chunk_bytes);
    if (stored.checksums.size() != chunks) json.fail("crc32c", std::to_string(chunks) + " checksums, one per chunk");
    for (const StoredSlice& slice : stored.slices) {
        const auto tensor = manifest.tensors.find(slice.tensor);
        if (tensor == manifest.tensors.end()) {
            json.fail("slices", "blocks of tensors in /tensors, which does not list " + slice.tensor);
        }
        if (slice.row + slice.rows > tensor->second.rows || slice.col + slice.cols > tensor->second.cols) {
            json.fail("slices", "blocks inside their tensors, unlike one of " + slice.tensor);
        }
    }
}

}  // namespace

std::string_view name_of(StateKind kind) {
    return kKindNames[kind];
}

std::int64_t Manifest::bytes() const {
    std::int64_t sum = 0;
    for (const StoredFile& stored : files) sum += stored.bytes;
    return sum;
}

std::string to_json_text(const Manifest& manifest) {
    Json json{{"schema", kSchema},          {"step", manifest.step},    {"chunk_bytes", manifest.chunk_bytes},
              {"settings", Json::object()}, {"tensors", Json::array()}, {"files", Json::array()}};
    for (const auto& [pointer, value] : manifest.settings) json["settings"][pointer] = value;
    for (const auto& [name, shape] : manifest.tensors) {
        json["tensors"].push_back({{"name", name}, {"shape", {shape.rows, shape.cols}}});
    }
    for (const StoredFile& stored : manifest.files) json["files"].push_back(file_json(stored));
    std::string text = json.dump();
    text.pop_back();
    const std::string checksum = hexadecimal(crc32c(text.data(), text.size()));
    return text.append(kChecksumKey).append(checksum).append("\"}\n");
}

Manifest manifest_from_json_text(const std::string& text, const std::string& file) {
    check_checksum(text, file);
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema(kSchema);
    json.skip("crc32c");
    Manifest manifest;
    manifest.step = json.integer("step", kCount);
    manifest.chunk_bytes = json.integer("chunk_bytes", kAllowedChunkBytes);
    const JsonReader settings = json.object("settings");
    for (const std::string& pointer : settings.keys()) manifest.settings[pointer] = settings.string(pointer);
    for (const JsonReader& tensor : json.objects("tensors")) {
        const auto shape = pair_of(tensor, "shape", kPositiveInteger);
        if (!manifest.tensors.emplace(tensor.string("name"), TensorShape{shape[0], shape[1]}).second) {
            tensor.fail("name", "a name that is not used by another tensor");
        }
        tensor.finish();
    }
    for (const JsonReader& stored : json.objects("files")) {
        manifest.files.push_back(read_file(stored));
        check_blocks(stored, manifest, manifest.files.back());
    }
    json.finish();
    return manifest;
}

std::string to_json_text(const StoredFile& stored) {
    return file_json(stored).dump();
}

StoredFile stored_file_from_json_text(const std::string& text, const std::string& file) {
    return read_file(JsonReader::parse(text, file));
}

}  // namespace orrery::exec
