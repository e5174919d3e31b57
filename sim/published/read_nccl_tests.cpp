// Reads the output of nccl-tests (all_reduce_perf and the others): a line per message size, out of place and in place.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "core/error.h"
#include "sim/published/nccl_tests.h"

namespace orrery::published {
namespace {

/// Names of nccl-tests' programs without _perf, and our names of their operations.
struct Tool {
    std::string_view name;
    std::string_view op;
};
constexpr std::array<Tool, 10> kTools{{{"all_reduce", "all_reduce"},
                                       {"reduce_scatter", "reduce_scatter"},
                                       {"all_gather", "all_gather"},
                                       {"alltoall", "alltoall"},
                                       {"broadcast", "broadcast"},
                                       {"sendrecv", "sendrecv"},
                                       {"hypercube", "hypercube"},
                                       {"gather", "gather"},
                                       {"scatter", "scatter"},
                                       {"reduce", "reduce"}}};  // names that contain a shorter one come before it

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(std::move(word));
    return words;
}

/// Removes the rank that launchers put before each line: "[1,0]<stdout>: ", "0: ".
std::string without_prefix(const std::string& line) {
    static constexpr std::array<std::string_view, 3> kStreams{"<stdout>:", "<stderr>:", "<stdout> "};
    for (const std::string_view stream : kStreams) {
        const std::size_t at = line.find(stream);
        if (at != std::string::npos && at < 24) return line.substr(at + stream.size());
    }
    const std::size_t digits = line.find_first_not_of("0123456789");
    if (digits != std::string::npos && digits > 0 && line.compare(digits, 2, ": ") == 0) return line.substr(digits + 2);
    return line;
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

class Reader {
  public:
    explicit Reader(const std::string& file) : file_(file) {}

    std::vector<PublishedCollective> read(const std::string& text) {
        std::istringstream stream(text);
        std::size_t number = 0;
        for (std::string raw; std::getline(stream, raw);) {
            ++number;
            if (!raw.empty() && raw.back() == '\r') raw.pop_back();
            const std::string line = without_prefix(raw);
            if (contains(line, "NCCL INFO") || contains(line, "NCCL version")) {
                read_info(line);
            } else if (contains(line, "#")) {
                read_header(line.substr(line.find('#') + 1));
            } else {
                read_row(words_of(line), number);
            }
        }
        if (rows_.empty())
            throw InputError(file_, "its rows", "none", "lines of size, count, type, redop, root and times");
        for (PublishedCollective& row : rows_) complete(row);
        return rows_;
    }

  private:
    void read_info(const std::string& line) {
        if (const std::size_t at = line.find("NCCL version "); at != std::string::npos) {
            const std::string version = words_of(line.substr(at + 13)).front();
            version_ = version.substr(0, version.find('+'));
        }
        // "NET/IB : Using [0]mlx5_0:1/IB", ".../RoCE"; "NET/OFI Selected provider is efa".
        if (contains(line, "NET/IB") && contains(line, "/RoCE")) network_ = "RoCE";
        if (contains(line, "NET/IB") && contains(line, "/IB ")) network_ = "InfiniBand";
        if (contains(line, "NET/OFI") && contains(line, "efa")) network_ = "EFA";
        if (contains(line, "NCCL_NVLS_ENABLE set by environment to 0")) nvls_off_ = true;
    }

    void read_header(const std::string& line) {
        const std::vector<std::string> words = words_of(line);
        if (contains(line, "nccl-library=")) {  // 22807 is 2.28.7
            const std::string digits = line.substr(line.find("nccl-library=") + 13);
            std::int64_t code = 0;
            std::from_chars(digits.data(), digits.data() + digits.size(), code);
            if (code >= 20'000) {
                version_ = std::to_string(code / 10'000) + "." + std::to_string(code / 100 % 100) + "." +
                           std::to_string(code % 100);
            }
        }
        if (contains(line, "Collective test starting:")) program_ = words.back();
        // "Rank  0 Group  0 Pid 123 on host device  0 [0x1b] NVIDIA H100 80GB HBM3"
        if (words.size() >= 10 && words[0] == "Rank") {
            const auto on = std::find(words.begin(), words.end(), "on");
            const auto bus =
                std::find_if(words.begin(), words.end(), [](const auto& word) { return word.front() == '['; });
            if (on == words.end() || on + 1 == words.end() || bus == words.end()) return;
            ++ranks_;
            hosts_.insert(*(on + 1));
            hardware_.clear();
            for (auto word = bus + 1; word != words.end(); ++word) hardware_ += (hardware_.empty() ? "" : " ") + *word;
        }
    }

    [[noreturn]] void fail(std::size_t line, const std::string& what, const std::string& value,
                           const std::string& allowed) const {
        throw InputError(file_, "line " + std::to_string(line) + ", " + what, "'" + value + "'", allowed);
    }
    [[nodiscard]] double time_of(const std::string& word, std::size_t line, const char* column) const {
        double us = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), us);
        if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(us) || us <= 0) {
            fail(line, column, word, "microseconds greater than 0");
        }
        return us;
    }

    /// Columns are size, count, type, redop, root; then time, algbw, busbw, #wrong out of place, and the same in place.
    /// Lines that do not start with two numbers come from other programs.
    void read_row(const std::vector<std::string>& words, std::size_t line) {
        constexpr std::size_t kOut = 5, kColumns = 4;
        if (words.size() < kOut + kColumns - 1) return;
        std::int64_t size = 0, count = 0;
        const auto is_number = [](const std::string& word, std::int64_t& number) {
            const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
            return error == std::errc{} && end == word.data() + word.size();
        };
        if (!is_number(words[0], size) || !is_number(words[1], count)) return;
        if (size < 0 || size > kMostCollectiveBytes) fail(line, "size", words[0], "bytes from 0 to 2^50");
        if (size == 0) return;
        PublishedCollective row;
        row.dtype = words[2];
        row.bytes = size;
        row.op = op_of_row(words);
        row.id = std::to_string(line);
        row.measured_us = time_of(words[kOut], line, "time out of place");
        rows_.push_back(row);
        const std::size_t in = kOut + kColumns;
        if (words.size() < in + kColumns - 1 || words[in] == "N/A") return;
        row.id += " in place";
        row.measured_us = time_of(words[in], line, "time in place");
        rows_.push_back(row);
    }

    /// Releases before 2.17 do not name the program. The operation follows from redop, root and the ratio of bus to
    /// algorithm bandwidth (2 (n-1) / n for all-reduce, (n-1) / n for reduce-scatter); "" if it does not.
    [[nodiscard]] std::string op_of_row(const std::vector<std::string>& words) const {
        const bool reduces = words[3] != "none";
        const bool rooted = words[4] != "-1";
        if (rooted) return reduces ? "reduce" : "broadcast";
        if (!reduces || ranks_ < 3) return "";
        double algorithm = 0, bus = 0;
        std::from_chars(words[6].data(), words[6].data() + words[6].size(), algorithm);
        std::from_chars(words[7].data(), words[7].data() + words[7].size(), bus);
        if (algorithm < 1) return "";  // printed with two decimals
        return bus / algorithm > 1.05 ? "all_reduce" : "reduce_scatter";
    }

    [[nodiscard]] std::string named_op() const {
        for (const std::string& where : {program_, file_.substr(file_.rfind('/') + 1)}) {
            for (const Tool& tool : kTools) {
                if (contains(where, tool.name)) return std::string(tool.op);
            }
        }
        for (const PublishedCollective& row : rows_) {
            if (!row.op.empty()) return row.op;
        }
        throw InputError(file_, "the collective", "no name",
                         "a line '# Collective test starting: all_reduce_perf' (nccl-tests 2.17 and later), or a "
                         "file name that contains the program's name");
    }

    void complete(PublishedCollective& row) const {
        if (ranks_ == 0) {
            throw InputError(file_, "the ranks", "none", "lines '# Rank 0 ... on HOST device 0 [0x1b] NVIDIA H100'");
        }
        row.op = named_op();
        row.source = file_;
        row.tool = "nccl-tests";
        row.hardware = hardware_;
        if (hosts_.size() > 1 && !network_.empty()) row.hardware += " (" + network_ + ")";
        row.setting = nvls_off_ ? "NCCL_NVLS_ENABLE=0" : "";
        row.nccl_version = version_;
        row.ranks = ranks_;
        row.nodes = static_cast<std::int64_t>(hosts_.size());
    }

    const std::string& file_;
    std::string program_, hardware_, version_, network_;
    std::set<std::string> hosts_;
    std::int64_t ranks_ = 0;
    bool nvls_off_ = false;
    std::vector<PublishedCollective> rows_;
};

}  // namespace

bool is_nccl_tests_log(const std::string& text) {
    return contains(text, "out-of-place") && contains(text, "redop");
}

std::vector<PublishedCollective> collectives_of_nccl_tests(const std::string& text, const std::string& file) {
    return Reader(file).read(text);
}

}  // namespace orrery::published
