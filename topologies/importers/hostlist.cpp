#include "topologies/importers/hostlist.h"

#include <algorithm>

#include "core/error.h"
#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMostDigits = 9;
constexpr std::size_t kMostNameBytes = 255;
constexpr std::size_t kMostBrackets = 8;  // Slurm's own systems use up to 5 dimensions

struct Range {
    std::int64_t low = 0, high = 0;
    std::size_t width = 0;  // numbers are zero-padded to this width
};

/// A piece of a name: either text, or a bracket with its ranges.
struct Part {
    std::string text;
    std::vector<Range> ranges;
    std::int64_t count = 1;
};

class Expander {
  public:
    Expander(std::string_view list, const std::string& place, std::int64_t most)
        : list_(list), place_(place), most_(most) {}

    std::vector<std::string> run() {
        for (std::size_t at = 0; at <= list_.size();) {
            const std::size_t end = end_of_name(at);
            add(trimmed(list_.substr(at, end - at)));
            at = end + 1;
        }
        return std::move(names_);
    }

  private:
    [[noreturn]] void fail(const std::string& allowed) const {
        throw InputError(place_ + ": got " + shown(list_) + "; allowed: " + allowed);
    }

    /// Position of the comma that ends the name starting at `at`; commas in brackets do not count.
    [[nodiscard]] std::size_t end_of_name(std::size_t at) const {
        bool inside = false;
        for (; at < list_.size(); ++at) {
            const char c = list_[at];
            if (c == '[') {
                if (inside) fail("brackets that do not nest");
                inside = true;
            } else if (c == ']') {
                if (!inside) fail("a ']' only after its '['");
                inside = false;
            } else if (c == ',' && !inside) {
                return at;
            }
        }
        if (inside) fail("a ']' for each '['");
        return at;
    }

    [[nodiscard]] std::int64_t number(std::string_view digits) const {
        const bool plain = !digits.empty() && digits.size() <= kMostDigits &&
                           digits.find_first_not_of("0123456789") == std::string_view::npos;
        if (!plain) fail("numbers of 1 to " + std::to_string(kMostDigits) + " digits in brackets, as in n[0-3,12]");
        return *integer_of(digits);
    }

    [[nodiscard]] Part bracket(std::string_view inside) const {
        Part part;
        part.count = 0;
        for (std::size_t at = 0; at <= inside.size();) {
            const std::size_t end = std::min(inside.find(',', at), inside.size());
            const std::string_view item = inside.substr(at, end - at);
            const std::size_t dash = item.find('-');
            Range range;
            range.low = number(item.substr(0, dash));
            range.high = dash == std::string_view::npos ? range.low : number(item.substr(dash + 1));
            if (range.high < range.low) fail("ranges from the lower to the higher number");
            range.width = dash == std::string_view::npos ? item.size() : dash;
            part.count += range.high - range.low + 1;
            part.ranges.push_back(range);
            at = end + 1;
        }
        return part;
    }

    [[nodiscard]] std::vector<Part> parts_of(std::string_view name) const {
        std::vector<Part> parts;
        std::size_t brackets = 0;
        while (!name.empty()) {
            const std::size_t open = name.find('[');
            if (open != 0) {
                Part text;
                text.text = std::string(name.substr(0, open));
                parts.push_back(std::move(text));
                name.remove_prefix(std::min(open, name.size()));
                continue;
            }
            const std::size_t close = name.find(']');
            if (++brackets > kMostBrackets) fail("at most " + std::to_string(kMostBrackets) + " brackets in a name");
            parts.push_back(bracket(name.substr(1, close - 1)));
            name.remove_prefix(close + 1);
        }
        return parts;
    }

    void add(std::string_view name) {
        if (name.empty()) fail("names between the commas");
        for (const char c : name) {
            if (c <= ' ' || c > '~' || c == '=') fail("names of printable characters without blanks and '='");
        }
        const std::vector<Part> parts = parts_of(name);
        std::int64_t count = 1;
        for (const Part& part : parts) {
            if (__builtin_mul_overflow(count, part.count, &count) || count > most_) too_many();
        }
        if (count > most_ - static_cast<std::int64_t>(names_.size())) too_many();
        expand(parts, 0, "");
    }

    [[noreturn]] void too_many() const { fail("at most " + std::to_string(most_) + " names"); }

    void expand(const std::vector<Part>& parts, std::size_t next, const std::string& prefix) {
        if (prefix.size() > kMostNameBytes) fail("names of at most " + std::to_string(kMostNameBytes) + " bytes");
        if (next == parts.size()) {
            names_.push_back(prefix);
            return;
        }
        const Part& part = parts[next];
        if (part.ranges.empty()) return expand(parts, next + 1, prefix + part.text);
        for (const Range& range : part.ranges) {
            for (std::int64_t value = range.low; value <= range.high; ++value) {
                std::string digits = std::to_string(value);
                if (digits.size() < range.width) digits.insert(0, range.width - digits.size(), '0');
                expand(parts, next + 1, prefix + digits);
            }
        }
    }

    std::string_view list_;
    const std::string& place_;
    std::int64_t most_;
    std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list, const std::string& place, std::int64_t most) {
    return Expander(list, place, most).run();
}

}  // namespace orrery::topologies
