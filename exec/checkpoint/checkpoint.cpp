#include "exec/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "exec/checkpoint/slice_file.h"
#include "exec/elapsed.h"
#include "kernels/kernels.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;

std::string file_of_rank(int rank) {
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "rank-%05d.slices", rank);
    return name.data();
}

bool same_folder(const std::string& a, const std::string& b) {
    std::error_code ignored;
    return fs::equivalent(a, b, ignored);
}

/// Assembles blocks of tensors from the files of a checkpoint.
class CheckpointReader {
  public:
    /// `manifest` must outlive the reader.
    CheckpointReader(const Manifest& manifest, std::string path)
        : manifest_(manifest), path_(std::move(path)), readers_(manifest.files.size()) {
        for (std::size_t file = 0; file < manifest.files.size(); ++file) {
            for (const StoredSlice& slice : manifest.files[file].slices) {
                stored_[{slice.tensor, slice.kind}].push_back({file, &slice});
            }
        }
    }

    /// Throws InputError if a part of the block is missing or damaged.
    void read(const StateBlock& block, Backend& backend) {
        std::int64_t found = 0;
        backend.write(block.first, block.span_bytes(), [&](std::byte* host) {
            if (block.stride_bytes != block.row_bytes()) {
                std::memset(host, 0, static_cast<std::size_t>(block.span_bytes()));
            }
            for (const Stored& one : stored_[{block.tensor, block.kind}]) {
                if (one.slice->dtype == block.dtype) found += read_common(block, one, host);
            }
        });
        if (found != block.rows * block.cols) {
            throw InputError(path_, block.tensor + " (" + std::string(name_of(block.kind)) + ")",
                             std::to_string(found) + " elements", std::to_string(block.rows * block.cols));
        }
    }

  private:
    struct Stored {
        std::size_t file = 0;
        const StoredSlice* slice = nullptr;
    };

    SliceReader& reader_of(std::size_t file) {
        if (!readers_[file]) {
            const StoredFile& stored = manifest_.files[file];
            readers_[file] = std::make_unique<SliceReader>(path_ + "/" + stored.name, stored, manifest_.chunk_bytes);
        }
        return *readers_[file];
    }

    /// Reads the elements that are in both blocks and returns their number.
    std::int64_t read_common(const StateBlock& block, const Stored& one, std::byte* host) {
        const StoredSlice& stored = *one.slice;
        const std::int64_t row = std::max(block.row, stored.row);
        const std::int64_t rows = std::min(block.row + block.rows, stored.row + stored.rows) - row;
        const std::int64_t col = std::max(block.col, stored.col);
        const std::int64_t cols = std::min(block.col + block.cols, stored.col + stored.cols) - col;
        if (rows <= 0 || cols <= 0) return 0;
        const std::int64_t element = size_of(stored.dtype);
        std::int64_t at = stored.at + ((row - stored.row) * stored.cols + col - stored.col) * element;
        std::byte* to = host + (row - block.row) * block.stride_bytes + (col - block.col) * element;
        // Rows that are contiguous both in the file and in memory are read at once.
        const bool together = cols == stored.cols && cols * element == block.stride_bytes;
        SliceReader& reader = reader_of(one.file);
        for (std::int64_t left = together ? 1 : rows; left > 0; --left) {
            reader.read(at, (together ? rows : 1) * cols * element, to);
            at += stored.cols * element;
            to += block.stride_bytes;
        }
        return rows * cols;
    }

    const Manifest& manifest_;
    std::string path_;
    std::map<std::pair<std::string, StateKind>, std::vector<Stored>> stored_;
    std::vector<std::unique_ptr<SliceReader>> readers_;  // by file; opened when first needed
};

Manifest manifest_of(const std::string& text, const std::string& path, std::int64_t step) {
    Manifest manifest = manifest_from_json_text(text, path);
    if (manifest.step != step) {
        throw InputError(path, "/step", std::to_string(manifest.step),
                         std::to_string(step) + ", the step in the folder's name");
    }
    return manifest;
}

/// The file's text; if it cannot be read, "" and the error in `wrong`.
std::string read_manifest(const std::string& path, std::string& wrong) {
    try {
        return read_text_file(path);
    } catch (const InputError& error) {
        wrong = error.what();
        return "";
    }
}

[[noreturn]] void fail_to_resume(const std::string& folder, const std::vector<std::string>& skipped) {
    std::string why = folder + ": --resume: got no checkpoint that can be read";
    for (const std::string& one : skipped) why += "; " + one;
    throw InputError(why + "; allowed: a folder that orrery run --checkpoint wrote");
}

std::string joined(const std::vector<std::int64_t>& steps) {
    std::string text;
    for (const std::int64_t step : steps) text += std::to_string(step) + " ";
    return text;
}
std::vector<std::int64_t> split(const std::string& text) {
    std::vector<std::int64_t> steps;
    std::istringstream words(text);
    for (std::int64_t step = 0; words >> step;) steps.push_back(step);
    return steps;
}

/// Appends `elements` elements of the block, converted to the type of the checkpoint.
void append(SliceWriter& writer, const StateBlock& block, const std::byte* values, std::int64_t elements) {
    if (block.held == block.dtype) return writer.append(values, elements * size_of(block.held));
    ORRERY_CHECK(block.held == DType::fp32 && block.dtype == DType::bf16, "only fp32 is rounded, and only to bf16");
    std::vector<std::uint16_t> rounded(static_cast<std::size_t>(elements));
    kernels::cast_to_bf16(elements, reinterpret_cast<const float*>(values), rounded.data());
    writer.append(reinterpret_cast<const std::byte*>(rounded.data()), elements * size_of(block.dtype));
}

}  // namespace

void check_checkpoints(const program::Program& program, const CheckpointOptions& options) {
    if (!options.folder.empty()) {
        std::error_code ignored;
        fs::path path = fs::absolute(options.folder, ignored).lexically_normal();
        if (!path.has_filename()) path = path.parent_path();  // "c/"
        if (!fs::is_directory(fs::exists(path, ignored) ? path : path.parent_path(), ignored)) {
            throw InputError(options.folder, "--checkpoint", "a path that cannot be a folder",
                             "a folder, or a name in an existing folder");
        }
        const std::vector<std::int64_t> there = checkpoint_steps(options.folder);
        if (!there.empty() && !same_folder(options.folder, options.resume_folder)) {
            throw InputError(options.folder, "--checkpoint",
                             "a folder with a checkpoint of another run, " + checkpoint_name(there.back()),
                             "a folder without checkpoints, or --resume with the same folder");
        }
    }
    if (options.resume_folder.empty()) return;
    std::vector<std::int64_t> steps = checkpoint_steps(options.resume_folder);
    std::vector<std::string> skipped;
    for (; !steps.empty(); steps.pop_back()) {
        const std::string path = options.resume_folder + "/" + checkpoint_name(steps.back());
        const std::string manifest_path = path + "/" + kManifestName;
        std::optional<Manifest> manifest;
        try {
            manifest = manifest_of(read_text_file(manifest_path), manifest_path, steps.back());
        } catch (const InputError& error) {
            skipped.emplace_back(error.what());
            continue;
        }
        return check_settings(program, options.plan_path, *manifest, path);
    }
    fail_to_resume(options.resume_folder, skipped);
}

Resumed resume(const Interpreter& interpreter, Transport& transport, const CheckpointOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    const program::Program& program = interpreter.program();
    const TrainingState state(program, transport.rank(), interpreter.shards(), interpreter.arena());
    const std::vector<StateBlock> needed = state.needed();
    const bool speaks = transport.rank() == 0;
    // All ranks use rank 0's list, because another process may be writing to the folder.
    std::vector<std::int64_t> steps =
        split(transport.broadcast(speaks ? joined(checkpoint_steps(options.resume_folder)) : ""));
    Resumed resumed;
    for (; !steps.empty(); steps.pop_back()) {
        const std::string path = options.resume_folder + "/" + checkpoint_name(steps.back());
        const std::string manifest_path = path + "/" + kManifestName;
        std::string wrong;
        const std::string text = transport.broadcast(speaks ? read_manifest(manifest_path, wrong) : "");
        std::optional<Manifest> manifest;
        try {
            if (wrong.empty()) manifest = manifest_of(text, manifest_path, steps.back());
        } catch (const InputError& error) {
            wrong = error.what();
        }
        wrong = transport.first_of(wrong);
        if (wrong.empty()) {
            check_settings(program, options.plan_path, *manifest, path);
            try {
                CheckpointReader reader(*manifest, path);
                for (const StateBlock& block : needed) reader.read(block, interpreter.backend());
            } catch (const InputError& error) {
                wrong = error.what();
            }
            wrong = transport.first_of(wrong);
        }
        if (wrong.empty()) {
            resumed.step = manifest->step;
            resumed.path = path;
            resumed.seconds = seconds_since(begin);
            return resumed;
        }
        if (speaks) std::fprintf(stderr, "orrery: %s; skipped\n", wrong.c_str());
        resumed.skipped.push_back(wrong);
    }
    fail_to_resume(options.resume_folder, {});  // the reasons have been printed above
}

CheckpointWriter::CheckpointWriter(const Interpreter& interpreter, Transport& transport,
                                   const CheckpointOptions& options, std::int64_t resumed_step)
    : backend_(interpreter.backend()),
      transport_(transport),
      keep_(options.keep),
      owned_(
          TrainingState(interpreter.program(), transport.rank(), interpreter.shards(), interpreter.arena()).owned()) {
    if (transport.rank() != 0) return;
    folder_.emplace(options.folder, resumed_step);
    manifest_ = {.chunk_bytes = kChunkBytes,
                 .settings = bound_settings(*interpreter.program().plan),
                 .tensors = whole_tensors(interpreter.program())};
}

template <typename Action>
void CheckpointWriter::all_or_none(std::int64_t step, const Action& action) {
    std::string wrong;
    try {
        action();
    } catch (const std::runtime_error& error) {  // also InputError: at this point it is a failure of the job
        wrong = error.what();
    }
    wrong = transport_.first_of(wrong);
    if (wrong.empty()) return;
    if (folder_) folder_->abandon(step);
    transport_.barrier();  // let rank 0 clean up: a rank that exits may end the whole job
    throw JobError(wrong);
}

void CheckpointWriter::write(std::int64_t step) {
    transport_.barrier();
    const auto begin = std::chrono::steady_clock::now();
    std::string temporary;
    all_or_none(step, [&] {
        if (folder_) temporary = folder_->begin(step);
    });
    temporary = transport_.broadcast(temporary);
    StoredFile mine;
    all_or_none(step, [&] { mine = write_own_file(temporary + "/" + file_of_rank(transport_.rank())); });
    const std::vector<std::string> files = transport_.gather(to_json_text(mine));
    all_or_none(step, [&] {
        if (!folder_) return;
        write_manifest(temporary, step, files);
        folder_->commit(step, keep_);
    });
    seconds_.push_back(seconds_since(begin));
}

StoredFile CheckpointWriter::write_own_file(const std::string& path) const {
    StoredFile stored{.name = file_of_rank(transport_.rank())};
    if (owned_.empty()) return stored;  // without a file
    SliceWriter writer(path, kChunkBytes);
    for (const StateBlock& block : owned_) {
        stored.slices.push_back(
            {block.tensor, block.kind, block.dtype, block.row, block.col, block.rows, block.cols, writer.bytes()});
        backend_.read(block.first, block.span_bytes(), [&](const std::byte* host) {
            const bool together = block.stride_bytes == block.row_bytes();
            for (std::int64_t row = 0; row < (together ? 1 : block.rows); ++row) {
                append(writer, block, host + row * block.stride_bytes, (together ? block.rows : 1) * block.cols);
            }
        });
    }
    stored.bytes = writer.bytes();
    stored.checksums = writer.finish();
    return stored;
}

void CheckpointWriter::write_manifest(const std::string& temporary, std::int64_t step,
                                      const std::vector<std::string>& files) {
    manifest_.step = step;
    manifest_.files.clear();
    for (const std::string& one : files) {
        StoredFile stored = stored_file_from_json_text(one, temporary);
        if (!stored.slices.empty()) manifest_.files.push_back(std::move(stored));
    }
    write_file_atomically(temporary + "/" + kManifestName, to_json_text(manifest_));
}

TrainingCheckpoints::TrainingCheckpoints(Interpreter& interpreter, Transport& transport,
                                         const CheckpointOptions& options)
    : interpreter_(interpreter), every_(options.every) {
    if (!options.resume_folder.empty()) resumed_ = resume(interpreter, transport, options);
    if (options.folder.empty()) return;
    writer_.emplace(interpreter, transport, options, resumed_ ? resumed_->step : -1);
}

bool TrainingCheckpoints::is_due(std::int64_t step) const {
    return writer_ && every_ > 0 && (first_step() + step + 1) % every_ == 0;
}

void TrainingCheckpoints::write(std::int64_t steps_done) {
    if (!writer_ || steps_done == written_) return;
    interpreter_.finish_transfers();
    writer_->write(first_step() + steps_done);
    written_ = steps_done;
}

void TrainingCheckpoints::report(program::RunRecord& record) const {
    record.first_step = first_step();
    if (resumed_) {
        for (const std::string& one : resumed_->skipped) record.notes.push_back("skipped a checkpoint: " + one);
        record.notes.push_back("went on from " + resumed_->path + ", which was read in " +
                               std::to_string(resumed_->seconds) + " s");
    }
    if (!writer_) return;
    record.checkpoint_bytes = writer_->bytes();
    record.checkpoint_seconds = writer_->seconds();
}

}  // namespace orrery::exec
