// The files of checkpoints, without training: manifests, blocks with their checksums, and the folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/checkpoint/folder.h"
#include "exec/checkpoint/manifest.h"
#include "exec/checkpoint/slice_file.h"
#include "tests/house/json_schema.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

Manifest small_manifest() {
    Manifest manifest{.step = 42,
                      .chunk_bytes = 64,
                      .settings = {{"/model/vocab", "128"}, {"/training/data", "\"synthetic\""}},
                      .tensors = {{"a", {4, 6}}, {"b", {3, 1}}}};
    manifest.files.push_back({"rank-00000.slices",
                              108,
                              {7, 0xFFFFFFFF},
                              {{"a", StateKind::parameter, DType::fp32, 0, 0, 4, 6, 0},
                               {"b", StateKind::adam_v, DType::fp32, 0, 0, 3, 1, 96}}});
    return manifest;
}

TEST(CheckpointManifest, RoundTripKeepsEverything) {
    const Manifest manifest = small_manifest();
    const std::string text = to_json_text(manifest);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(text), "");
    const Manifest again = manifest_from_json_text(text, "m");
    EXPECT_EQ(to_json_text(again), text);
    EXPECT_EQ(again.step, 42);
    EXPECT_EQ(again.settings, manifest.settings);
    EXPECT_EQ(again.tensors, manifest.tensors);
    ASSERT_EQ(again.files.size(), 1U);
    EXPECT_EQ(again.files[0].checksums, manifest.files[0].checksums);
    EXPECT_EQ(again.files[0].slices[1].kind, StateKind::adam_v);
    EXPECT_EQ(again.bytes(), 108);
}

TEST(CheckpointManifest, EveryFlippedBitAndEveryLostByteIsDetected) {
    const std::string text = to_json_text(small_manifest());
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string damaged = text;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
        EXPECT_THROW((void)manifest_from_json_text(damaged, "m"), InputError) << i;
        EXPECT_THROW((void)manifest_from_json_text(text.substr(0, i), "m"), InputError) << i;
    }
}

/// The manifest with `what` replaced by `by`, and a valid checksum.
std::string forged(const std::string& what, const std::string& by) {
    std::string text = to_json_text(small_manifest());
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), by);
    text.resize(text.rfind(",\"crc32c\":\""));
    std::array<char, 9> checksum{};
    std::snprintf(checksum.data(), checksum.size(), "%08x", crc32c(text.data(), text.size()));
    return text + ",\"crc32c\":\"" + checksum.data() + "\"}\n";
}

TEST(CheckpointManifest, InconsistentContentIsRefused) {
    const auto message = [](const std::string& what, const std::string& by) {
        return message_of<InputError>([&] { (void)manifest_from_json_text(forged(what, by), "m.json"); });
    };
    EXPECT_NO_THROW((void)manifest_from_json_text(forged("42", "43"), "m.json"));
    for (const auto& [what, by, words] : std::vector<std::array<std::string, 3>>{
             {"orrery.checkpoint/1", "orrery.checkpoint/9", "/schema"},
             {"\"step\":42", "\"step\":-1", "/step"},
             {"\"step\":42", "\"stpe\":42", "step"},
             {"\"chunk_bytes\":64", "\"chunk_bytes\":0", "/chunk_bytes"},
             {"\"chunk_bytes\":64", "\"chunk_bytes\":4611686018427387904", "/chunk_bytes"},
             {"\"chunk_bytes\":64", "\"chunk_bytes\":32", "4 checksums"},
             {"rank-00000.slices", "../../etc/passwd", "/files/0/name"},
             {"\"bytes\":108", "\"bytes\":107", "/files/0/slices/1/extent"},
             {"[4,6],\"at\"", "[5,6],\"at\"", "/extent"},
             {"[4,6],\"at\"", "[4,1099511627776],\"at\"", "/extent"},
             {"[4,6],\"at\"", "[1099511627776,1099511627776],\"at\"", "/extent"},
             {"[4,6],\"at\"", "[4],\"at\"", "two integers"},
             {"\"at\":96", "\"at\":1099511627776", "/extent"},
             {"\"at\":96", "\"at\":9223372036854775807", "/at"},
             {"\"offset\":[0,0]", "\"offset\":[1,0]", "unlike one of a"},
             {"\"tensor\":\"b\"", "\"tensor\":\"c\"", "does not list c"},
             {"\"name\":\"b\"", "\"name\":\"a\"", "a name that is not used by another tensor"},
             {"adam_v", "adam_w", "/kind"},
             {"fp32", "fp33", "/dtype"}}) {
        const std::string said = message(what, by);
        EXPECT_TRUE(said.starts_with("m.json: ")) << said;
        EXPECT_NE(said.find(words), std::string::npos) << words << " in: " << said;
    }
}

/// A file of `size` bytes in chunks of `chunk`, written in pieces of odd sizes.
StoredFile write_bytes(const std::string& path, const std::vector<std::byte>& bytes, std::int64_t chunk) {
    SliceWriter writer(path, chunk);
    std::int64_t done = 0;
    const auto size = static_cast<std::int64_t>(bytes.size());
    for (std::int64_t piece = 1; done < size; piece = piece * 3 % 101 + 1) {
        const std::int64_t count = std::min(piece, size - done);
        writer.append(bytes.data() + done, count);
        done += count;
    }
    EXPECT_EQ(writer.bytes(), size);
    return {fs::path(path).filename().string(), size, writer.finish(), {}};
}

std::vector<std::byte> some_bytes(std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::mt19937 random(1);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
    return bytes;
}

TEST(CheckpointFiles, AnyPartCanBeReadBack) {
    const TestFolder folder;
    const std::string path = folder.file("f");
    for (const std::size_t size : {1U, 63U, 64U, 65U, 1000U}) {
        const std::vector<std::byte> bytes = some_bytes(size);
        const StoredFile stored = write_bytes(path, bytes, 64);
        EXPECT_EQ(stored.checksums.size(), (size + 63) / 64);
        std::vector<std::byte> back(size);
        SliceReader reader(path, stored, 64);
        for (std::size_t end = size; end > 0;) {  // backwards, in odd sizes
            const std::size_t count = std::min<std::size_t>(end, 1 + end % 77);
            end -= count;
            reader.read(static_cast<std::int64_t>(end), static_cast<std::int64_t>(count), back.data() + end);
        }
        EXPECT_EQ(back, bytes);
        fs::remove(path);
    }
}

TEST(CheckpointFiles, DamageIsDetectedOnlyWhenItsChunkIsRead) {
    const TestFolder folder;
    const std::string path = folder.file("f");
    const std::vector<std::byte> bytes = some_bytes(300);
    const StoredFile stored = write_bytes(path, bytes, 64);
    {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(130);
        file.put(static_cast<char>(~bytes[130]));
    }
    std::byte byte{};
    EXPECT_NO_THROW(SliceReader(path, stored, 64).read(127, 1, &byte));
    EXPECT_NO_THROW(SliceReader(path, stored, 64).read(192, 1, &byte));
    EXPECT_NE(message_of<InputError>([&] {
                  SliceReader(path, stored, 64).read(191, 1, &byte);
              }).find(path + ": bytes from 128: got another checksum"),
              std::string::npos);
    fs::resize_file(path, 299);
    EXPECT_NE(message_of<InputError>([&] { SliceReader(path, stored, 64).read(0, 1, &byte); }).find("299 bytes"),
              std::string::npos);
    fs::remove(path);
    EXPECT_THROW(SliceReader(path, stored, 64).read(0, 1, &byte), InputError);
}

TEST(CheckpointFiles, WriteErrorsNameTheFile) {
    const TestFolder folder;
    EXPECT_NE(message_of<JobError>([&] { SliceWriter(folder.file("absent/f"), 64); }).find("absent/f: cannot be writ"),
              std::string::npos);
    write_file_atomically(folder.file("there"), "precious");
    EXPECT_THROW(SliceWriter(folder.file("there"), 64), JobError);
    EXPECT_EQ(read_text_file(folder.file("there")), "precious");
}

void put_checkpoint(CheckpointFolder& folder, std::int64_t step, std::int64_t keep) {
    const std::string path = folder.begin(step);
    write_file_atomically(path + "/content", std::to_string(step));
    folder.commit(step, keep);
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

TEST(CheckpointFolders, KeepTheNewest) {
    const TestFolder place;
    const std::string path = place.file("c");
    EXPECT_TRUE(checkpoint_steps(path).empty());
    CheckpointFolder folder(path, -1);
    for (const std::int64_t step : {5, 10, 15}) put_checkpoint(folder, step, 2);
    EXPECT_EQ(checkpoint_steps(path), (std::vector<std::int64_t>{10, 15}));
    put_checkpoint(folder, 123456789, 1);
    EXPECT_EQ(names_in(path), (std::vector<std::string>{".lock", "step-123456789"}));
    EXPECT_EQ(read_text_file(path + "/step-123456789/content"), "123456789");
}

TEST(CheckpointFolders, OnlyWholeNamesCount) {
    const TestFolder place;
    for (const char* name : {"step-00000007", "step-7", "step-0000000x", ".step-00000008.tmp", "other", "step-"}) {
        fs::create_directory(place.file(name));
    }
    EXPECT_EQ(checkpoint_steps(place.path().string()), std::vector<std::int64_t>{7});
}

TEST(CheckpointFolders, LeftoversOfDeadRunsAreRemoved) {
    const TestFolder place;
    for (const char* name : {".step-00000003.tmp", ".step-00000001.old", "step-00000002", "notes"}) {
        fs::create_directory(place.file(name));
        write_file_atomically(place.file(name) + std::string("/f"), "x");
    }
    const CheckpointFolder folder(place.path().string(), 2);
    EXPECT_EQ(names_in(place.path().string()), (std::vector<std::string>{".lock", "notes", "step-00000002"}));
}

/// The run resumed from 4 although 6 exists, so 6 is damaged. It is removed when the next checkpoint is committed.
TEST(CheckpointFolders, DamagedCheckpointsAreRemovedByTheNextCommit) {
    const TestFolder place;
    const std::string path = place.path().string();
    for (const char* name : {"step-00000002", "step-00000004", "step-00000006"}) fs::create_directory(place.file(name));
    CheckpointFolder folder(path, 4);
    put_checkpoint(folder, 5, 2);
    EXPECT_EQ(checkpoint_steps(path), (std::vector<std::int64_t>{4, 5}));
    fs::create_directory(place.file("step-00000007"));
    put_checkpoint(folder, 7, 2);
    EXPECT_EQ(checkpoint_steps(path), (std::vector<std::int64_t>{5, 7}));
    EXPECT_EQ(read_text_file(path + "/step-00000007/content"), "7");
}

TEST(CheckpointFolders, OneProcessAtATime) {
    const TestFolder place;
    const std::string path = place.file("c");
    {
        const CheckpointFolder first(path, -1);
        const std::string message = message_of<JobError>([&] { CheckpointFolder(path, -1); });
        EXPECT_NE(message.find("process " + std::to_string(getpid()) + " on "), std::string::npos) << message;
        EXPECT_NE(message.find(path + "/.lock"), std::string::npos) << message;
    }
    EXPECT_NO_THROW(CheckpointFolder(path, -1));  // the lock is free, although its file still names the old owner
}

TEST(CheckpointFolders, AnAbandonedCheckpointLeavesNothing) {
    const TestFolder place;
    const CheckpointFolder folder(place.path().string(), -1);
    write_file_atomically(folder.begin(3) + "/content", "3");
    folder.abandon(3);
    EXPECT_EQ(names_in(place.path().string()), std::vector<std::string>{".lock"});
    EXPECT_THROW(CheckpointFolder(place.file("absent/c"), -1), JobError);
}

}  // namespace
}  // namespace orrery::exec
