#include "exec/gradients.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "exec/slices.h"
#include "kernels/kernels.h"

namespace orrery::exec {

GlobalTensors gather_gradients(const Interpreter& interpreter, Transport& transport) {
    const program::Program& program = interpreter.program();
    // Unsharded gradients are equal on all data-parallel ranks, so only the first sends them. With experts every rank
    // sends, because experts may be placed differently on the data-parallel ranks.
    const bool everyone = program.plan->model.has_experts();
    const auto speaks = [&](std::int64_t rank) {
        const program::RankClass& its_class = program.classes[program.class_of(rank)];
        return everyone || its_class.shard_elements > 0 || program.coordinates(rank).dp == 0;
    };
    const DType dtype = program.plan->training.precision.gradient;
    std::string mine;
    if (speaks(transport.rank())) {
        for (const ShardPiece& piece : interpreter.shards().pieces()) {
            const auto append = [&](const std::byte* values) {
                const std::size_t begin = mine.size();
                mine.resize(begin + static_cast<std::size_t>(piece.elements) * sizeof(float));
                auto* to = reinterpret_cast<float*>(mine.data() + begin);
                if (dtype == DType::bf16) {
                    kernels::cast_from_bf16(piece.elements, reinterpret_cast<const std::uint16_t*>(values), to);
                } else {
                    std::memcpy(to, values, mine.size() - begin);
                }
            };
            interpreter.backend().read(interpreter.arena().gradients_at_rest(piece, size_of(dtype)),
                                       piece.elements * size_of(dtype), append);
        }
    }
    const std::vector<std::string> all = transport.gather(mine);
    GlobalTensors tensors;
    for (std::size_t r = 0; r < all.size(); ++r) {
        const auto rank = static_cast<std::int64_t>(r);
        if (!speaks(rank)) continue;
        const Shards shards(program, rank);
        const std::vector<ShardPiece>& pieces = shards.pieces();  // in the flat order
        std::vector<std::size_t> sent_at;                         // offset of each piece in the message
        std::size_t next = 0;
        for (const ShardPiece& piece : pieces) {
            sent_at.push_back(next);
            next += static_cast<std::size_t>(piece.elements) * sizeof(float);
        }
        ORRERY_CHECK(next == all[r].size(), "a rank sent gradients of another size");
        for (const TensorSlice& slice : slices_of(program, rank, pieces)) {
            GlobalTensor& tensor = tensors[slice.tensor];
            if (tensor.values.empty()) {
                tensor.rows = slice.shape.rows;
                tensor.cols = slice.shape.cols;
                tensor.values.resize(static_cast<std::size_t>(tensor.rows * tensor.cols));
            }
            const std::int64_t in_piece = slice.flat - pieces[slice.piece].flat;
            for (std::int64_t row = 0; row < slice.rows; ++row) {
                std::memcpy(tensor.values.data() + (slice.row + row) * tensor.cols + slice.col,
                            all[r].data() + sent_at[slice.piece] +
                                static_cast<std::size_t>(in_piece + row * slice.flat_stride) * sizeof(float),
                            static_cast<std::size_t>(slice.cols) * sizeof(float));
            }
        }
    }
    return tensors;
}

void write_tensors(const std::string& path, const GlobalTensors& tensors) {
    nlohmann::ordered_json header;
    header["schema"] = "orrery.gradients/1";
    header["tensors"] = nlohmann::ordered_json::array();
    std::string values;
    for (const auto& [name, tensor] : tensors) {
        header["tensors"].push_back({{"name", name}, {"rows", tensor.rows}, {"cols", tensor.cols}});
        values.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
    }
    write_file_atomically(path, header.dump() + "\n" + values);
}

GlobalTensors read_tensors(const std::string& path) {
    const std::string content = read_text_file(path);
    const std::size_t end = content.find('\n');
    if (end == std::string::npos)
        throw InputError(path, "", "no header line", "a file that orrery run --gradients wrote");
    const JsonReader header = JsonReader::parse(content.substr(0, end), path);
    header.expect_schema("orrery.gradients/1");
    GlobalTensors tensors;
    std::size_t offset = end + 1;
    for (const JsonReader& entry : header.objects("tensors")) {
        GlobalTensor tensor;
        tensor.rows = entry.integer("rows", kPositiveInteger);
        tensor.cols = entry.integer("cols", kPositiveInteger);
        const std::string name = entry.string("name");
        entry.finish();
        std::int64_t elements = 0;
        const auto remaining = static_cast<std::int64_t>((content.size() - offset) / sizeof(float));
        if (__builtin_mul_overflow(tensor.rows, tensor.cols, &elements) || elements > remaining) {
            throw InputError(path, name, std::to_string(content.size()) + " bytes", "a file that is not truncated");
        }
        tensor.values.resize(static_cast<std::size_t>(elements));
        std::memcpy(tensor.values.data(), content.data() + offset, tensor.values.size() * sizeof(float));
        offset += tensor.values.size() * sizeof(float);
        tensors.emplace(name, std::move(tensor));
    }
    header.finish();
    if (offset != content.size()) throw InputError(path, "", "trailing bytes", "exactly the tensors of the header");
    return tensors;
}

}  // namespace orrery::exec
