// Private to the planner: the candidates that may still be among the best, by their bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/planner/search_node.h"

namespace orrery::sim {

class SearchQueue {
  public:
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    /// The node with the least bound; of several, the one pushed first.
    [[nodiscard]] const SearchNode& front() const { return heap_.front(); }
    /// All nodes, in no order.
    [[nodiscard]] const std::vector<SearchNode>& nodes() const { return heap_; }
    /// Those whose turn takes milliseconds and depends on nothing but their choice, in the order of their bounds.
    [[nodiscard]] const auto& long_work() const { return long_work_; }

    void push(SearchNode node) {
        node.sequence = sequence_++;
        heap_.push_back(node);
        std::push_heap(heap_.begin(), heap_.end(), Later());
        if (node.is_long_work()) long_work_.insert(node);
    }
    SearchNode pop() {
        std::pop_heap(heap_.begin(), heap_.end(), Later());
        const SearchNode node = heap_.back();
        heap_.pop_back();
        if (node.is_long_work()) long_work_.erase(node);
        return node;
    }

    /// Empties the queue. Groups the nodes by what has excluded them, if their bounds are too high.
    [[nodiscard]] std::vector<std::pair<std::string, std::vector<SearchNode>>> take_by_rung() {
        std::vector<std::pair<std::string, std::vector<SearchNode>>> groups;
        while (!empty()) {
            const SearchNode node = pop();
            const char* const name = kRungNames.at(static_cast<std::size_t>(node.rung));
            auto group = std::ranges::find(groups, name, [](const auto& one) { return one.first; });
            if (group == groups.end()) group = groups.insert(group, {name, {}});
            group->second.push_back(node);
        }
        return groups;
    }

  private:
    struct Earlier {
        bool operator()(const SearchNode& a, const SearchNode& b) const {
            return std::pair(a.least_step_s, a.sequence) < std::pair(b.least_step_s, b.sequence);
        }
    };
    struct Later {
        bool operator()(const SearchNode& a, const SearchNode& b) const { return Earlier()(b, a); }
    };

    std::vector<SearchNode> heap_;
    std::set<SearchNode, Earlier> long_work_;
    std::int64_t sequence_ = 0;
};

}  // namespace orrery::sim
