#include "core/json_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/unit/core/test_folder.h"

namespace orrery {
namespace {

JsonReader read(const std::string& text, JsonPolicy policy = JsonPolicy::strict) {
    return JsonReader::parse(text, "f.json", policy);
}

template <typename Action>
std::string error_of(const std::string& text, Action action) {
    return message_of<InputError>([&] { (void)action(read(text)); });
}
std::string parse_error_of(const std::string& text) {
    return message_of<InputError>([&] { (void)read(text); });
}

constexpr IntegerRange kAnyInteger{};

TEST(JsonReader, ReadsEveryKind) {
    const JsonReader reader = read(
        R"({"i": -3, "n": 1.5, "b": true, "s": "x/y", "o": {"k": 1}, "l": [1, 2], "d": [1, 2.5], "t": ["a"],
            "c": "red", "z": null, "m": [{"k": 7}]})");
    EXPECT_EQ(reader.integer("i", kAnyInteger), -3);
    EXPECT_EQ(reader.number("n", kAnyNumber), 1.5);
    EXPECT_EQ(reader.number("i", kAnyNumber), -3.0);
    EXPECT_TRUE(reader.boolean("b"));
    EXPECT_EQ(reader.string("s"), "x/y");
    EXPECT_EQ(reader.object("o").integer("k", kAnyInteger), 1);
    EXPECT_EQ(reader.object("o").pointer(), "/o");
    EXPECT_EQ(reader.integers("l", kAnyInteger), (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(reader.numbers("d", kAnyNumber), (std::vector<double>{1, 2.5}));
    EXPECT_EQ(reader.strings("t"), (std::vector<std::string>{"a"}));
    EXPECT_EQ(reader.choice("c", {"blue", "red"}), "red");
    EXPECT_TRUE(reader.is_null("z"));
    EXPECT_TRUE(reader.has("z"));
    EXPECT_EQ(reader.kind("n"), JsonKind::number);
    ASSERT_EQ(reader.objects("m").size(), 1U);
    EXPECT_EQ(reader.objects("m")[0].integer("k", kAnyInteger), 7);
    EXPECT_EQ(reader.keys().front(), "i");
    EXPECT_NO_THROW(reader.finish());
}

TEST(JsonReader, FallsBackOnlyWhenAbsent) {
    const JsonReader reader = read(R"({"i": 3, "z": null})");
    EXPECT_EQ(reader.integer_or("i", {}, 9), 3);
    EXPECT_EQ(reader.integer_or("j", {}, 9), 9);
    EXPECT_EQ(reader.number_or("j", {}, 0.5), 0.5);
    EXPECT_TRUE(reader.boolean_or("j", true));
    EXPECT_EQ(reader.string_or("j", "d"), "d");
    EXPECT_THROW((void)reader.integer_or("z", {}, 9), InputError);
}

TEST(JsonReader, RefusesTheWrongKindNamingKeyAndValue) {
    const auto integer = [](const JsonReader& r) { return r.integer("k", kPositiveInteger); };
    EXPECT_EQ(error_of(R"({"k": 1.9})", integer), "f.json: /k: got 1.9; allowed: an integer from 1 to 1099511627776");
    for (const char* value : {"true", "\"12\"", "null", "[1]", "{}", "1.0", "1e3", "0", "-1", "1099511627777",
                              "9223372036854775808", "123456789012345678901234567890"}) {
        const std::string message = error_of(std::string(R"({"k": )") + value + "}", integer);
        EXPECT_NE(message.find("f.json: /k: got "), std::string::npos) << message;
    }
    EXPECT_EQ(error_of(R"({"k": "1e3"})", [](const JsonReader& r) { return r.number("k", kAnyNumber); }),
              "f.json: /k: got \"1e3\"; allowed: a number");
    EXPECT_EQ(error_of(R"({"k": true})", [](const JsonReader& r) { return r.number("k", kAnyNumber); }),
              "f.json: /k: got true; allowed: a number");
    EXPECT_EQ(error_of(R"({"k": 1})", [](const JsonReader& r) { return r.boolean("k"); }),
              "f.json: /k: got 1; allowed: true or false");
    EXPECT_EQ(error_of(R"({"k": 1})", [](const JsonReader& r) { return r.string("k"); }),
              "f.json: /k: got 1; allowed: a string");
    EXPECT_EQ(error_of(R"({"k": "a\nb"})", [](const JsonReader& r) { return r.string("k"); }),
              "f.json: /k: got \"a\\nb\"; allowed: a string without control characters");
    EXPECT_EQ(error_of(R"({"k": ["a", "\u001b[2J"]})", [](const JsonReader& r) { return r.strings("k").front(); }),
              "f.json: /k/1: got \"\\u001b[2J\"; allowed: a string without control characters");
    EXPECT_EQ(error_of(R"({"k": [1]})", [](const JsonReader& r) { return r.object("k"); }),
              "f.json: /k: got [1]; allowed: an object");
    EXPECT_EQ(error_of(R"({"k": {"a": 1}})", [](const JsonReader& r) { return r.integers("k", kAnyInteger); }),
              "f.json: /k: got an object with 1 keys; allowed: a list, each an integer");
}

TEST(JsonReader, KeepsTheWholeRangeOfIntegers) {
    const JsonReader reader = read(R"({"low": -9223372036854775808, "high": 9223372036854775807})");
    EXPECT_EQ(reader.integer("low", kAnyInteger), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(reader.integer("high", kAnyInteger), std::numeric_limits<std::int64_t>::max());
}

TEST(JsonReader, ChecksTheRangeOfNumbers) {
    const auto positive = [](const JsonReader& r) { return r.number("k", kPositive); };
    EXPECT_EQ(error_of(R"({"k": 0})", positive),
              "f.json: /k: got 0; allowed: a number greater than 0 (at least 1e-24), at most 1e+24");
    EXPECT_EQ(read(R"({"k": 0})").number("k", kNotNegative), 0.0);
    const auto fraction = [](const JsonReader& r) { return r.number("k", kFraction); };
    EXPECT_EQ(error_of(R"({"k": 1.25})", fraction), "f.json: /k: got 1.25; allowed: a number of at least 0, at most 1");
    EXPECT_EQ(error_of(R"({"k": [0.5, 2]})", [](const JsonReader& r) { return r.numbers("k", kFraction); }),
              "f.json: /k/1: got 2; allowed: a number of at least 0, at most 1");
}

TEST(JsonReader, DescribesOpenEndsOfRanges) {
    constexpr NumberRange kOpen{0, 1e6, true, true};
    EXPECT_FALSE(kOpen.contains(0));
    EXPECT_FALSE(kOpen.contains(1e6));
    EXPECT_FALSE(kOpen.contains(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_TRUE(kOpen.contains(1));
    EXPECT_EQ(description(kOpen), "a number greater than 0, below 1e+06");
    EXPECT_EQ(description(NumberRange{.high = 2, .high_open = true}), "a number below 2");
    EXPECT_EQ(description(NumberRange{0, 1}), "a number of at least 0, at most 1");
    EXPECT_EQ(description(NumberRange{.high = 2}), "a number of at most 2");
}

TEST(JsonReader, RefusesNumbersThatAreNotFinite) {
    for (const char* value : {"1e999", "-1e999", "NaN", "Infinity"}) {
        const std::string message = parse_error_of(std::string(R"({"k": )") + value + "}");
        EXPECT_NE(message.find("f.json:1:"), std::string::npos) << message;
    }
}

TEST(JsonReader, NamesAMissingKeyAndThePresentOnes) {
    const std::string message =
        error_of(R"({"a": 1, "b": 2})", [](const JsonReader& r) { return r.integer("layers", kPositiveInteger); });
    EXPECT_EQ(message,
              "f.json: /layers: the key is missing; allowed: an integer from 1 to 1099511627776; keys here: a, b");
}

TEST(JsonReader, RefusesAnUnknownKeyWithAHint) {
    const JsonReader reader = read(R"({"layers": 1, "laeyrs": 2})");
    (void)reader.integer("layers", kAnyInteger);
    EXPECT_EQ(reader.unread_keys(), (std::vector<std::string>{"laeyrs"}));
    EXPECT_EQ(message_of<InputError>([&] { reader.finish(); }),
              "f.json: /laeyrs: unknown key, got 2; did you mean \"layers\"? allowed keys: layers");
    reader.skip("laeyrs");
    EXPECT_NO_THROW(reader.finish());
}

TEST(JsonReader, ChildrenTrackTheirOwnKeys) {
    const JsonReader reader = read(R"({"o": {"unknown": 1}})");
    const JsonReader child = reader.object("o");
    EXPECT_NO_THROW(reader.finish());
    EXPECT_EQ(message_of<InputError>([&] { child.finish(); }),
              "f.json: /o/unknown: unknown key, got 1; allowed keys: none");
}

TEST(JsonReader, ListsUnreadKeysOfForeignFiles) {
    const JsonReader reader = read(R"({"a": 1, "b": 2})", JsonPolicy::lenient);
    (void)reader.has("a");
    EXPECT_NO_THROW(reader.finish());
    EXPECT_EQ(reader.unread_keys(), (std::vector<std::string>{"b"}));
}

TEST(JsonReader, RefusesDuplicateKeysInBothPolicies) {
    const std::string text = R"({"list": [{}, {"a/b": 1, "a/b": 1}]})";
    for (JsonPolicy policy : {JsonPolicy::strict, JsonPolicy::lenient}) {
        EXPECT_EQ(message_of<InputError>([&] { (void)read(text, policy); }),
                  "f.json: /list/1/a~1b: the key appears twice in the same object; allowed: once");
    }
    EXPECT_NO_THROW((void)read(R"({"a": {"k": 1}, "b": {"k": 1}})"));
}

TEST(JsonReader, RefusesDeepNesting) {
    const auto nested = [](std::size_t lists) {
        return R"({"k":)" + std::string(lists, '[') + std::string(lists, ']') + "}";
    };
    EXPECT_NO_THROW((void)read(nested(63)));
    EXPECT_EQ(parse_error_of(nested(64)), "f.json: objects and lists are nested too deep; allowed: 64 levels");
    EXPECT_NE(parse_error_of(std::string(1000000, '[')).find("too deep"), std::string::npos);
}

TEST(JsonReader, NamesThePositionOfASyntaxError) {
    EXPECT_EQ(parse_error_of("{\n  \"a\": 1,\n  \"b\" 2}").find("f.json:3:7: not valid JSON: "), 0U);
    EXPECT_EQ(parse_error_of(R"({"a": [1, 2)").find("f.json:1:12: not valid JSON: "), 0U);
    EXPECT_EQ(parse_error_of(R"({"a": 1} x)").find("f.json:1:10: not valid JSON: "), 0U);
    EXPECT_EQ(parse_error_of(R"({"a": 1}{})").find("f.json:1:9: not valid JSON: "), 0U);
    EXPECT_EQ(parse_error_of("{\"a\": \"\xff\"}").find("f.json:1:8: not valid JSON: "), 0U);
    EXPECT_EQ(parse_error_of(std::string("{}\0{}", 5)), "f.json:1:3: not valid JSON: a NUL byte");
    EXPECT_EQ(parse_error_of(R"({"a": 1, // no comments
                                 "b": 2})")
                  .find("f.json:1:10: not valid JSON: "),
              0U);
}

TEST(JsonReader, EveryTruncationOfAFileIsAnInputError) {
    const std::string text = R"({"schema": "orrery.model/1", "a": [1, {"b": "\u00e9"}], "c": -1.5e3, "d": true})";
    for (std::size_t length = 0; length < text.size(); ++length) {
        EXPECT_THROW((void)read(text.substr(0, length)), InputError) << length;
    }
    EXPECT_NO_THROW((void)read(text));
}

TEST(JsonReader, RefusesEmptyTextAndOtherTopLevels) {
    EXPECT_EQ(parse_error_of(" \n"), "f.json: the file is empty; allowed: a JSON object");
    EXPECT_EQ(parse_error_of("[1, 2]"), "f.json: top level: got [1, 2]; allowed: a JSON object");
    EXPECT_EQ(parse_error_of("7"), "f.json: top level: got 7; allowed: a JSON object");
}

TEST(JsonReader, ChecksTheSchema) {
    EXPECT_NO_THROW(read(R"({"schema": "orrery.plan/1"})").expect_schema("orrery.plan/1"));
    const std::string message =
        message_of<InputError>([] { read(R"({"schema": "orrery.plan/2"})").expect_schema("orrery.plan/1"); });
    EXPECT_EQ(message, "f.json: /schema: got \"orrery.plan/2\"; allowed: \"orrery.plan/1\"");
    EXPECT_THROW(read("{}").expect_schema("orrery.plan/1"), InputError);
}

TEST(JsonReader, ListsTheChoices) {
    EXPECT_EQ(error_of(R"({"k": "green"})",
                       [](const JsonReader& r) {
                           return r.choice("k", {"blue", "red"});
                       }),
              "f.json: /k: got \"green\"; allowed: \"blue\", \"red\"");
}

TEST(JsonReader, EscapesAndShortensPrintedValues) {
    const std::string message = error_of("{\"a~b/c\": \"" + std::string(500, 'x') + "\\n\"}",
                                         [](const JsonReader& r) { return r.integer("a~b/c", kAnyInteger); });
    EXPECT_EQ(message.find("f.json: /a~0b~1c: got \"xxx"), 0U) << message;
    EXPECT_LT(message.size(), 200U);
}

TEST(JsonReader, OpensFilesAndNamesThem) {
    const TestFolder folder;
    EXPECT_THROW((void)JsonReader::open_file(folder.file("none.json")), InputError);
    EXPECT_THROW((void)JsonReader::open_file(folder.path().string()), InputError);
    std::ofstream(folder.file("empty.json")).flush();
    EXPECT_NE(message_of<InputError>([&] {
                  (void)JsonReader::open_file(folder.file("empty.json"));
              }).find("empty.json: the file is empty"),
              std::string::npos);
    std::ofstream(folder.file("good.json")) << R"({"a": 1})";
    EXPECT_EQ(JsonReader::open_file(folder.file("good.json")).integer("a", kAnyInteger), 1);
    EXPECT_EQ(JsonReader::open_file(folder.file("good.json")).file(), folder.file("good.json"));
}

TEST(JsonReader, FailThrowsForTheCaller) {
    const JsonReader reader = read(R"({"heads": 5})");
    EXPECT_EQ(message_of<InputError>([&] { reader.fail("heads", "a divisor of 12"); }),
              "f.json: /heads: got 5; allowed: a divisor of 12");
}

}  // namespace
}  // namespace orrery
