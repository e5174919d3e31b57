#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "tests/unit/core/test_folder.h"

namespace orrery {
namespace {

std::size_t files_in(const TestFolder& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
}

TEST(ReadTextFile, ReturnsEveryByte) {
    const TestFolder folder;
    const std::string content("a\0b\r\n\xff", 6);
    std::ofstream(folder.file("bytes"), std::ios::binary) << content;
    EXPECT_EQ(read_text_file(folder.file("bytes")), content);
}

TEST(ReadTextFile, NamesAMissingFileAndAFolder) {
    const TestFolder folder;
    const std::string missing = message_of<InputError>([&] { (void)read_text_file(folder.file("none.json")); });
    EXPECT_NE(missing.find("none.json: cannot be read: No such file"), std::string::npos) << missing;
    const std::string directory = message_of<InputError>([&] { (void)read_text_file(folder.path().string()); });
    EXPECT_NE(directory.find("it is a folder"), std::string::npos) << directory;
}

TEST(ReadTextFile, NamesAFileWithoutPermission) {
    if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
    const TestFolder folder;
    std::ofstream(folder.file("locked")) << "x";
    ASSERT_EQ(::chmod(folder.file("locked").c_str(), 0), 0);
    const std::string message = message_of<InputError>([&] { (void)read_text_file(folder.file("locked")); });
    EXPECT_NE(message.find("Permission denied"), std::string::npos) << message;
}

TEST(WriteFileAtomically, CreatesAndReplacesWithoutLeftovers) {
    const TestFolder folder;
    write_file_atomically(folder.file("out"), "one");
    EXPECT_EQ(read_text_file(folder.file("out")), "one");
    write_file_atomically(folder.file("out"), "two");
    EXPECT_EQ(read_text_file(folder.file("out")), "two");
    EXPECT_EQ(files_in(folder), 1U);
}

TEST(WriteFileAtomically, KeepsModeAndSymbolicLink) {
    const TestFolder folder;
    write_file_atomically(folder.file("real"), "one");
    ASSERT_EQ(::chmod(folder.file("real").c_str(), 0640), 0);
    std::filesystem::create_symlink(folder.file("real"), folder.file("link"));
    write_file_atomically(folder.file("link"), "two");
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
    EXPECT_EQ(read_text_file(folder.file("real")), "two");
    struct stat status {};
    ASSERT_EQ(::stat(folder.file("real").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST(WriteFileAtomically, SkipsTheTemporaryFileOfAKilledWriter) {
    const TestFolder folder;
    const std::string remains = folder.file("out.tmp-" + std::to_string(::getpid()) + "-0");
    std::ofstream(remains) << "half";
    write_file_atomically(folder.file("out"), "whole");
    EXPECT_EQ(read_text_file(folder.file("out")), "whole");
    EXPECT_EQ(read_text_file(remains), "half");
}

TEST(WriteFileAtomically, WritesDevicesInPlace) {
    write_file_atomically("/dev/null", "gone");
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(WriteFileAtomically, NamesThePathAndTheReason) {
    const TestFolder folder;
    const std::string missing = message_of<JobError>([&] { write_file_atomically(folder.file("no/such/out"), "x"); });
    EXPECT_NE(missing.find("no/such/out: cannot be written: No such file"), std::string::npos) << missing;
    const std::string directory = message_of<JobError>([&] { write_file_atomically(folder.path().string(), "x"); });
    EXPECT_NE(directory.find("Is a directory"), std::string::npos) << directory;
    EXPECT_EQ(files_in(folder), 0U);
}

TEST(WriteFileAtomically, ReportsAFullDisk) {
    if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
    const std::string message = message_of<JobError>([] { write_file_atomically("/dev/full", "x"); });
    EXPECT_NE(message.find("No space left"), std::string::npos) << message;
}

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
    EXPECT_EQ(edit_distance("", ""), 0);
    EXPECT_EQ(edit_distance("abc", ""), 3);
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
    EXPECT_EQ(edit_distance("layers", "laeyrs"), 2);
}

TEST(NearestName, PrefersTheClosestAndGivesUpWhenFar) {
    const std::vector<std::string> names{"layers", "hidden", "heads"};
    EXPECT_EQ(nearest_name("layer", names), "layers");
    EXPECT_EQ(nearest_name("head", names), "heads");
    EXPECT_EQ(nearest_name("zzzz", names), "");
}

}  // namespace
}  // namespace orrery
