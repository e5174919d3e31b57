#include "tests/parity/job.h"

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "core/file.h"
#include "tests/parity/plans.h"

namespace orrery::parity {
namespace {

/// The folder of references shared with other test processes, or "".
std::string shared_folder() {
    const char* folder = std::getenv("ORRERY_PARITY_FOLDER");
    return folder == nullptr ? "" : folder;
}
std::string record_in(const std::string& folder, const std::string& model) {
    return folder + "/" + model + ".record.json";
}
std::string gradients_in(const std::string& folder, const std::string& model) {
    return folder + "/" + model + ".gradients";
}

Reference make_reference(const std::string& model) {
    Job job(reference_plan(model));
    const std::string folder = shared_folder();
    if (!folder.empty() && std::filesystem::exists(gradients_in(folder, model))) {
        const std::string path = record_in(folder, model);
        return {program::run_record_from_json_text(read_text_file(path), path, job.program()).losses,
                exec::read_tensors(gradients_in(folder, model))};
    }
    job.run(kSteps);
    Reference reference{job.record().losses, {}};
    job.run(1);
    reference.first_gradients = job.gradients();
    return reference;
}

}  // namespace

Job::Job(const program::Plan& plan, Runner runner) : runner_(std::move(runner)), program_(program::lower(plan)) {
    write_file_atomically(folder_.file("plan.json"), program::to_json_text(plan));
}

void Job::run(std::int64_t steps, const std::vector<std::string>& more) {
    std::filesystem::remove(record_path());
    std::filesystem::remove(gradients_path());
    std::vector<std::string> orphans;
    std::vector<std::string> arguments{runner_.program, "run",         folder_.file("plan.json"),
                                       "--quiet",       "--steps",     std::to_string(steps),
                                       "--warm-up",     "0",           "--record",
                                       record_path(),   "--gradients", gradients_path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::CommandResult result = test::run_command(arguments, {.environment = runner_.environment}, &orphans);
    if (result.exit_code != 0) {
        throw std::runtime_error("orrery run ended with exit code " + std::to_string(result.exit_code) + ", signal " +
                                 std::to_string(result.signal) + ": " + result.err);
    }
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_TRUE(orphans.empty()) << orphans.front() << " outlived the job";
}

program::RunRecord Job::record() const {
    return program::run_record_from_json_text(read_text_file(record_path()), record_path(), program_);
}

exec::GlobalTensors Job::gradients() const {
    return exec::read_tensors(gradients_path());
}

const Reference& reference_of(const std::string& model) {
    static std::map<std::string, Reference> known;
    const auto found = known.find(model);
    if (found != known.end()) return found->second;
    return known.emplace(model, make_reference(model)).first->second;
}

void store_reference(const std::string& model) {
    const std::string folder = shared_folder();
    if (folder.empty()) return;
    std::filesystem::create_directories(folder);
    Job job(reference_plan(model));
    job.run(kSteps);
    write_file_atomically(record_in(folder, model), read_text_file(job.record_path()));
    job.run(1);
    write_file_atomically(gradients_in(folder, model), read_text_file(job.gradients_path()));
}

}  // namespace orrery::parity
