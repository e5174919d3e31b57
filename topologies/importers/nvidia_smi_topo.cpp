#include "topologies/importers/nvidia_smi_topo.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMostColumns = 1024;
constexpr std::int64_t kMostNvlinks = 1024;
constexpr const char* kCodes = "X, NV# (a number of NVLinks), PIX, PXB, PHB, NODE or SYS";

/// The line without terminal escape sequences (ESC [ ... letter), such as underlining.
std::string without_terminal_codes(std::string_view line) {
    std::string plain;
    for (std::size_t at = 0; at < line.size(); ++at) {
        if (line[at] != '\x1b') {
            plain.push_back(line[at]);
            continue;
        }
        if (at + 1 >= line.size() || line[at + 1] != '[') continue;
        at += 2;
        while (at < line.size() && (line[at] < '@' || line[at] > '~')) ++at;
    }
    return plain;
}

std::optional<SmiConnection> connection_of(std::string_view code) {
    static const std::map<std::string_view, SmiPath> codes{
        {"X", SmiPath::self},    {"PIX", SmiPath::pix}, {"PXB", SmiPath::pxb}, {"PHB", SmiPath::phb},
        {"NODE", SmiPath::node}, {"SYS", SmiPath::sys}, {"SOC", SmiPath::sys}};  // before driver 384
    if (const auto found = codes.find(code); found != codes.end()) return SmiConnection{found->second, 0};
    if (!code.starts_with("NV")) return std::nullopt;
    const std::optional<std::int64_t> links = integer_of(code.substr(2));
    if (!links || *links < 1 || *links > kMostNvlinks) return std::nullopt;
    return SmiConnection{SmiPath::nvlink, *links};
}

bool is_gpu_name(std::string_view word) {
    return word.size() > 3 && word.starts_with("GPU") && integer_of(word.substr(3)).value_or(-1) >= 0;
}

/// "0-31,64-95"
bool is_cpu_list(std::string_view word) {
    return !word.empty() && word.find_first_not_of("0123456789,-") == std::string_view::npos && word.front() != '-';
}

class SmiTopoReader {
  public:
    SmiTopoReader(const std::string& text, const std::string& file) : file_(file) {
        for (const std::string_view line : lines_of(text, file)) lines_.push_back(without_terminal_codes(line));
    }

    SmiTopo read() {
        std::size_t at = find_header();
        for (++at; at < lines_.size(); ++at) {
            const std::vector<std::string_view> words = words_of(lines_[at]);
            if (words.empty()) continue;
            if (words.front().starts_with("Legend")) break;
            read_row(words, at);
        }
        read_nic_legend(at);
        check_rows();
        return std::move(topo_);
    }

  private:
    /// The first line that begins with a GPU name; a prompt or the command may precede it. Throws InputError if that
    /// line holds connection codes and therefore is a row.
    std::size_t find_header() {
        for (std::size_t at = 0; at < lines_.size(); ++at) {
            const std::vector<std::string_view> words = words_of(lines_[at]);
            if (words.empty() || !is_gpu_name(words.front())) continue;
            for (const std::string_view word : words) {
                if (word == "CPU") break;  // "CPU Affinity" and later columns are not devices
                if (connection_of(word)) throw no_header();
                add_column(word, at);
            }
            has_cpu_ = lines_[at].find("CPU Affinity") != std::string::npos;
            has_numa_ = lines_[at].find("NUMA Affinity") != std::string::npos;
            const std::size_t gpus = topo_.gpus.size(), nics = topo_.nics.size();
            topo_.gpu_to_gpu.assign(gpus, std::vector<SmiConnection>(gpus));
            topo_.gpu_to_nic.assign(gpus, std::vector<SmiConnection>(nics));
            topo_.cpu_affinity.assign(gpus, "");
            topo_.numa_affinity.assign(gpus, -1);
            has_row_.assign(columns_.size(), false);
            return at;
        }
        throw no_header();
    }

    [[nodiscard]] InputError no_header() const {
        return InputError(file_ +
                          ": no line with the columns GPU0, GPU1, ... above the rows, as nvidia-smi topo -m prints");
    }

    void add_column(std::string_view word, std::size_t line) {
        const std::string name(word);
        const bool is_gpu = is_gpu_name(word);
        auto& list = is_gpu ? topo_.gpus : topo_.nics;
        if (is_gpu && !topo_.nics.empty()) {
            throw InputError(line_place(file_, line), "columns", shown(word) + " after " + shown(topo_.nics.back()),
                             "the GPUs before the NICs");
        }
        if (columns_.size() >= kMostColumns) {
            throw InputError(line_place(file_, line), "columns", "more than " + std::to_string(kMostColumns), "fewer");
        }
        if (!index_.emplace(name, columns_.size()).second) {
            throw InputError(line_place(file_, line), "columns", shown(word) + " twice", "each device once");
        }
        columns_.push_back(name);
        list.push_back(name);
    }

    void read_row(const std::vector<std::string_view>& words, std::size_t line) {
        const std::string place = line_place(file_, line);
        const auto found = index_.find(std::string(words.front()));
        if (found == index_.end()) {
            throw InputError(place, "row", shown(words.front()), "a device that has a column");
        }
        const std::size_t row = found->second;
        if (has_row_[row]) throw InputError(place, "row", shown(words.front()) + " twice", "one row per device");
        has_row_[row] = true;
        if (words.size() < columns_.size() + 1) {
            throw InputError(place, "row " + columns_[row], std::to_string(words.size() - 1) + " values",
                             std::to_string(columns_.size()) + ", one per column");
        }
        for (std::size_t column = 0; column < columns_.size(); ++column) {
            const std::optional<SmiConnection> value = connection_of(words[column + 1]);
            if (!value || (value->path == SmiPath::self) != (row == column)) {
                throw InputError(place, "row " + columns_[row] + ", column " + columns_[column],
                                 shown(words[column + 1]), std::string(kCodes) + "; X on the diagonal only");
            }
            enter(row, column, *value, place);
        }
        if (row < topo_.gpus.size()) read_affinity(words, row);
    }

    /// Stores a value; the mirrored cell, if read before, must agree.
    void enter(std::size_t row, std::size_t column, const SmiConnection& value, const std::string& place) {
        if (has_row_[column] && row != column) {
            const auto mirror = mirror_.find({column, row});
            if (mirror != mirror_.end() && mirror->second != value) {
                throw InputError(place, "row " + columns_[row] + ", column " + columns_[column], name_of(value.path),
                                 name_of(mirror->second.path) + ", as row " + columns_[column] + " says");
            }
        }
        mirror_[{row, column}] = value;
        const std::size_t gpus = topo_.gpus.size();
        if (row >= gpus) return;
        (column < gpus ? topo_.gpu_to_gpu[row][column] : topo_.gpu_to_nic[row][column - gpus]) = value;
    }

    void read_affinity(const std::vector<std::string_view>& words, std::size_t gpu) {
        std::size_t at = columns_.size() + 1;
        if (has_cpu_ && at < words.size() && is_cpu_list(words[at])) topo_.cpu_affinity[gpu] = words[at++];
        if (has_numa_ && at < words.size()) topo_.numa_affinity[gpu] = integer_of(words[at]).value_or(-1);
        if (topo_.numa_affinity[gpu] < 0) topo_.numa_affinity[gpu] = -1;
    }

    /// "NIC Legend:", then lines like "NIC0: mlx5_0".
    void read_nic_legend(std::size_t at) {
        bool inside = false;
        for (; at < lines_.size(); ++at) {
            const std::string_view line = trimmed(lines_[at]);
            if (line.starts_with("NIC Legend")) inside = true;
            const std::size_t colon = line.find(':');
            if (!inside || colon == std::string_view::npos) continue;
            const auto nic = std::find(topo_.nics.begin(), topo_.nics.end(), line.substr(0, colon));
            const std::string_view name = trimmed(line.substr(colon + 1));
            if (nic != topo_.nics.end() && !name.empty()) *nic = std::string(name);
        }
    }

    void check_rows() {
        for (std::size_t column = 0; column < columns_.size(); ++column) {
            if (has_row_[column]) continue;
            if (column < topo_.gpus.size()) throw InputError(file_ + ": row " + columns_[column] + ": missing");
            topo_.notes.add("row " + columns_[column] + ": missing; its column is read");
        }
    }

    const std::string& file_;
    std::vector<std::string> lines_;
    std::vector<std::string> columns_;  // GPUs, then NICs
    std::map<std::string, std::size_t> index_;
    std::map<std::pair<std::size_t, std::size_t>, SmiConnection> mirror_;
    std::vector<bool> has_row_;
    bool has_cpu_ = false, has_numa_ = false;
    SmiTopo topo_;
};

}  // namespace

std::string name_of(SmiPath path) {
    static constexpr auto kNames = name_table<SmiPath::sys>({"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS"});
    return std::string(kNames[path]);
}

SmiTopo smi_topo_from_text(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    return SmiTopoReader(text, file).read();
}

}  // namespace orrery::topologies
