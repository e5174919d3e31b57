// The manifest of a checkpoint, `orrery.checkpoint/1`: its tensors, the blocks they are split into, and the files of
// the blocks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "exec/slices.h"

namespace orrery::exec {

/// The values that a checkpoint may hold for each element of the model.
enum class StateKind : std::uint8_t { parameter, adam_m, adam_v, momentum, master };
inline constexpr int kStateKinds = static_cast<int>(StateKind::master) + 1;
[[nodiscard]] std::string_view name_of(StateKind kind);

/// A block of a global tensor, stored row-major without gaps, `at` bytes from the start of its file.
struct StoredSlice {
    std::string tensor;
    StateKind kind{};
    DType dtype = DType::fp32;
    std::int64_t row = 0, col = 0;    // of the first element in the global tensor
    std::int64_t rows = 0, cols = 0;  // at least 1
    std::int64_t at = 0;
    [[nodiscard]] std::int64_t bytes() const { return rows * cols * size_of(dtype); }
};

struct StoredFile {
    std::string name;  // in the checkpoint's folder
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> checksums;  // CRC-32C of each chunk; the last chunk may be shorter
    std::vector<StoredSlice> slices;
};

struct Manifest {
    std::int64_t step = 0;         // steps done
    std::int64_t chunk_bytes = 0;  // bytes per checksum
    /// The settings of the plan that a resuming plan must share (bound_settings): JSON pointer -> value, as JSON.
    std::map<std::string, std::string> settings;
    std::map<std::string, TensorShape> tensors;
    std::vector<StoredFile> files;
    [[nodiscard]] std::int64_t bytes() const;  // of all files
};

/// The text ends with a checksum of everything before it.
[[nodiscard]] std::string to_json_text(const Manifest& manifest);
/// Throws InputError naming `file` and the key if the text is damaged or inconsistent: a block outside its tensor or
/// its file, a tensor that is not listed, a file name that is a path.
[[nodiscard]] Manifest manifest_from_json_text(const std::string& text, const std::string& file);

/// The entry of one file in the manifest, exchanged between ranks.
[[nodiscard]] std::string to_json_text(const StoredFile& stored);
[[nodiscard]] StoredFile stored_file_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::exec
