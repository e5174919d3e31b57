// What a checkpoint is made of, `orrery.checkpoint/1`: which tensors, cut into which blocks, in which files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "exec/slices.h"

namespace orrery::exec {

/// What an element of the model has in a checkpoint.
enum class StateKind : std::uint8_t { parameter, adam_m, adam_v, momentum, master };
inline constexpr int kStateKinds = static_cast<int>(StateKind::master) + 1;
[[nodiscard]] std::string_view name_of(StateKind kind);

/// A block of a whole tensor, row-major without gaps at `at` bytes from its file's start.
struct StoredSlice {
    std::string tensor;
    StateKind kind{};
    DType dtype = DType::fp32;
    std::int64_t row = 0, col = 0;    // of the first element in the whole tensor
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
    std::int64_t step = 0;         // steps that were done
    std::int64_t chunk_bytes = 0;  // of what one checksum covers
    /// What of the plan the state means something under: JSON pointer -> value, as JSON.
    std::map<std::string, std::string> settings;
    std::map<std::string, TensorShape> tensors;
    std::vector<StoredFile> files;
    [[nodiscard]] std::int64_t bytes() const;  // of all files
};

/// Ends with a checksum of everything before it.
[[nodiscard]] std::string to_json_text(const Manifest& manifest);
/// Throws InputError naming `file` and the key when the text is damaged or says what cannot be: a block beyond its
/// tensor or its file, a tensor that is not listed, a name of a file that is a path.
[[nodiscard]] Manifest manifest_from_json_text(const std::string& text, const std::string& file);

/// One file's part of the manifest, for the exchange between ranks.
[[nodiscard]] std::string to_json_text(const StoredFile& stored);
[[nodiscard]] StoredFile stored_file_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::exec
