#include "sim/program/stage_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/error.h"
#include "core/index.h"

namespace orrery::program {

namespace {

/// Longer layouts are refused: no model has as many blocks.
constexpr std::size_t kMostItems = 100'000, kMostCharacters = 10'000;

/// Parses the notation into its items, one letter each.
class LayoutParser {
  public:
    LayoutParser(const std::string& text, const std::string& source, const std::string& key)
        : text_(text), source_(source), key_(key) {}

    /// One E first, one L last.
    std::string items() {
        if (text_.size() > kMostCharacters) {
            throw InputError(source_, key_, fmt::format("{} characters", text_.size()),
                             fmt::format("at most {}", kMostCharacters));
        }
        std::string items = sequence();
        if (next_ < text_.size()) refuse("\")\" only after \"(\"");
        if (items.find_last_of('E') != 0) refuse("one E, the embedding, before everything else");
        if (items.find('L') != items.size() - 1) refuse("one L, the head, after everything else");
        return items;
    }

  private:
    std::string sequence() {
        std::string items;
        while (next_ < text_.size() && text_[next_] != ')') {
            std::string one = item();
            const std::size_t times = repetitions();
            if (one.size() * times + items.size() > kMostItems) {
                refuse(fmt::format("at most {} stages and blocks", kMostItems));
            }
            for (std::size_t i = 0; i < times; ++i) items += one;
        }
        return items;
    }
    std::string item() {
        const char c = text_[next_++];
        if (c == ',') return {};  // separates for the eye alone
        if (c == '(') {
            std::string inner = sequence();
            if (next_ == text_.size()) refuse("\")\" after \"(\"");
            ++next_;
            return inner;
        }
        if (c != 'E' && c != 't' && c != 'L' && c != '|') {
            refuse(fmt::format("E, t, L, |, parentheses and *n, but not '{}'", c));
        }
        return {c};
    }
    /// n of "*n"; 1 if there is none.
    std::size_t repetitions() {
        if (next_ == text_.size() || text_[next_] != '*') return 1;
        ++next_;
        std::size_t times = 0;
        const std::size_t first = next_;
        for (; next_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[next_])) != 0; ++next_) {
            times = std::min(10 * times + static_cast<std::size_t>(text_[next_] - '0'), kMostItems + 1);
        }
        if (next_ == first || times == 0) refuse("a positive number after *");
        return times;
    }
    [[noreturn]] void refuse(const std::string& allowed) const { throw InputError(source_, key_, text_, allowed); }

    const std::string& text_;
    const std::string &source_, &key_;
    std::size_t next_ = 0;
};

std::string stage_text(std::int64_t blocks) {
    if (blocks == 0) return "";
    return blocks == 1 ? "t" : fmt::format("t*{}", blocks);
}

}  // namespace

std::vector<std::int64_t> balanced_stages(std::int64_t layers, const ScheduleShape& shape, EndWeights ends) {
    const std::int64_t stages = virtual_stages(shape);
    if (stages < 1 || stages - 2 > layers) return {};
    if (stages == 1) return {layers};
    const std::int64_t copies = row_of(shape.schedule).model_copies();
    std::vector<std::int64_t> blocks(at(stages), 0), stage_load(at(stages), 0), rank_load(at(shape.ranks), 0);
    std::vector<std::vector<std::size_t>> holders(at(stages));
    for (std::int64_t stage = 0; stage < stages; ++stage) {
        for (std::int32_t copy = 0; copy < copies; ++copy) {
            holders[at(stage)].push_back(at(stage_holder(shape, stage, copy).rank));
        }
    }
    const auto add = [&](std::size_t stage, std::int64_t load) {
        stage_load[stage] += load;
        for (const std::size_t rank : holders[stage]) rank_load[rank] += load;
    };
    add(0, ends.embedding);
    add(at(stages) - 1, ends.head);
    for (std::size_t stage = 1; stage + 1 < blocks.size(); ++stage) {
        blocks[stage] = 1;
        add(stage, 1);
    }
    const auto load_of = [&](std::size_t stage) {
        std::int64_t most = 0;
        for (const std::size_t rank : holders[stage]) most = std::max(most, rank_load[rank]);
        return std::pair(most, stage_load[stage]);
    };
    // Each further block goes to the stage that is loaded least: its rank first, then the stage itself.
    for (std::int64_t left = layers - (stages - 2); left > 0; --left) {
        std::size_t least = blocks.size() - 1;
        for (std::size_t stage = least; stage-- > 0;) {
            if (load_of(stage) < load_of(least)) least = stage;
        }
        ++blocks[least];
        add(least, 1);
    }
    return blocks;
}

std::string stage_layout_text(const std::vector<std::int64_t>& stage_layers) {
    if (stage_layers.size() < 2)
        return fmt::format("E{}L", stage_layers.empty() ? "" : stage_text(stage_layers.front()));
    std::string text = "E" + stage_text(stage_layers.front()) + "|";
    for (std::size_t first = 1; first + 1 < stage_layers.size();) {
        std::size_t last = first;
        while (last + 1 < stage_layers.size() && stage_layers[last] == stage_layers[first]) ++last;
        const std::string stage = stage_text(stage_layers[first]) + "|";
        text += last - first == 1 ? stage : fmt::format("({})*{}", stage, last - first);
        first = last;
    }
    return text + stage_text(stage_layers.back()) + "L";
}

std::vector<std::int64_t> stage_layout_named(const std::string& text, const std::string& source,
                                             const std::string& key) {
    const std::string items = LayoutParser(text, source, key).items();
    std::vector<std::int64_t> blocks(1, 0);
    for (const char item : items) {
        if (item == '|') blocks.push_back(0);
        if (item == 't') ++blocks.back();
    }
    return blocks;
}

}  // namespace orrery::program
