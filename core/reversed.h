#pragma once

#include <iterator>

namespace orrery {

/// A range from its last element to its first, for loops. Stands in for std::views::reverse, whose header clang 14 does
/// not compile with GCC 12's library.
template <typename Range>
class Reversed {
  public:
    explicit Reversed(Range& range) : range_(range) {}
    [[nodiscard]] auto begin() const { return std::rbegin(range_); }
    [[nodiscard]] auto end() const { return std::rend(range_); }

  private:
    Range& range_;
};
/// The range must outlive the result.
template <typename Range>
[[nodiscard]] Reversed<Range> reversed(Range& range) {
    return Reversed<Range>(range);
}

}  // namespace orrery
