// A strict reader of JSON objects. Every accessor checks kind, range and finiteness; on an error it throws an
// InputError that names the file, the key (a JSON pointer), the value and what is allowed. finish() refuses keys that
// were never asked for, naming the nearest known one. No type of a JSON library appears here.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery {

struct IntegerRange {
    std::int64_t low = std::numeric_limits<std::int64_t>::min();
    std::int64_t high = std::numeric_limits<std::int64_t>::max();
    [[nodiscard]] constexpr bool contains(std::integral auto value) const {
        return std::cmp_greater_equal(value, low) && std::cmp_less_equal(value, high);
    }
};
struct NumberRange {
    double low = -std::numeric_limits<double>::max();
    double high = std::numeric_limits<double>::max();
    bool low_open = false;   // true: the value must be greater than `low`
    bool high_open = false;  // true: the value must be less than `high`
    /// Written so that a NaN is refused.
    [[nodiscard]] constexpr bool contains(double value) const {
        return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
    }
};
/// "an integer from 1 to 8", "a number greater than 0, below 1e+06".
[[nodiscard]] std::string description(IntegerRange range);
[[nodiscard]] std::string description(NumberRange range);
/// The number with as few digits as give it back.
[[nodiscard]] std::string shortest(double value);
inline constexpr IntegerRange kPositiveInteger{1, std::int64_t{1} << 40};
inline constexpr IntegerRange kCount{0, std::int64_t{1} << 40};
/// Limits beyond any quantity in any unit that files use, and far enough from the limits of a double that products and
/// quotients of a few values cannot overflow.
inline constexpr double kSmallestNumber = 1e-24, kLargestNumber = 1e24;
inline constexpr NumberRange kPositive{kSmallestNumber, kLargestNumber};
inline constexpr NumberRange kNotNegative{0.0, kLargestNumber};
/// For values that are only compared, never computed with.
inline constexpr NumberRange kAnyNumber{};
inline constexpr NumberRange kFraction{0.0, 1.0, false};
inline constexpr NumberRange kBelowOne{0.0, 1.0, false, true};

/// strict: finish() refuses unknown keys. lenient (foreign files): unread_keys() lists them.
enum class JsonPolicy { strict, lenient };
enum class JsonKind { null, boolean, integer, number, string, array, object };

class JsonReader {
  public:
    /// Parses a document whose top level is an object. Duplicate keys, trailing text and more than 64 levels of nesting
    /// are errors under both policies.
    [[nodiscard]] static JsonReader open_file(const std::string& path, JsonPolicy policy = JsonPolicy::strict);
    [[nodiscard]] static JsonReader parse(const std::string& text, const std::string& file_name,
                                          JsonPolicy policy = JsonPolicy::strict);

    [[nodiscard]] const std::string& file() const;
    /// JSON pointer of this object; "" at the top level.
    [[nodiscard]] const std::string& pointer() const;

    /// True if the key is present, even if it is null. Marks the key as known.
    [[nodiscard]] bool has(const std::string& key) const;
    [[nodiscard]] bool is_null(const std::string& key) const;
    /// The kind of a present key; throws the missing-key error otherwise.
    [[nodiscard]] JsonKind kind(const std::string& key) const;

    [[nodiscard]] std::int64_t integer(const std::string& key, IntegerRange range) const;
    [[nodiscard]] std::int64_t integer_or(const std::string& key, IntegerRange range, std::int64_t fallback) const;
    [[nodiscard]] double number(const std::string& key, NumberRange range) const;
    [[nodiscard]] double number_or(const std::string& key, NumberRange range, double fallback) const;
    [[nodiscard]] bool boolean(const std::string& key) const;
    [[nodiscard]] bool boolean_or(const std::string& key, bool fallback) const;
    [[nodiscard]] std::string string(const std::string& key) const;
    [[nodiscard]] std::string string_or(const std::string& key, const std::string& fallback) const;
    /// A string that must be one of `allowed`; the error lists them all.
    [[nodiscard]] std::string choice(const std::string& key, const std::vector<std::string>& allowed) const;
    [[nodiscard]] JsonReader object(const std::string& key) const;
    [[nodiscard]] std::vector<JsonReader> objects(const std::string& key) const;
    [[nodiscard]] std::vector<std::int64_t> integers(const std::string& key, IntegerRange range) const;
    [[nodiscard]] std::vector<double> numbers(const std::string& key, NumberRange range) const;
    [[nodiscard]] std::vector<std::string> strings(const std::string& key) const;
    /// Number of values in the list.
    [[nodiscard]] std::size_t size(const std::string& key) const;
    /// All keys of this object in the file's order, for maps whose keys are data. Does not mark them as known.
    [[nodiscard]] std::vector<std::string> keys() const;

    /// Checks `"schema": "orrery.<kind>/<version>"`.
    void expect_schema(const std::string& schema) const;
    /// Marks a key as known without reading it.
    void skip(const std::string& key) const;
    /// Strict: throws on the first unknown key, with the nearest known one. Lenient: does nothing.
    void finish() const;
    [[nodiscard]] std::vector<std::string> unread_keys() const;
    /// The value of a present key as it is printed in messages.
    [[nodiscard]] std::string shown(const std::string& key) const;

    /// Throws an InputError for a key of this object, with the value as it is in the file.
    [[noreturn]] void fail(const std::string& key, const std::string& allowed) const;

  private:
    struct Node;
    explicit JsonReader(std::shared_ptr<const Node> node);
    std::shared_ptr<const Node> node_;
};

}  // namespace orrery
