// The CPU backend: computes in the calling thread, while a progress thread drives the communication.
#pragma once

#include <memory>

#include "exec/backend.h"
#include "exec/cpu/cpu_operators.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

class CpuBackend : public Backend {
  public:
    /// The transport must outlive the backend.
    explicit CpuBackend(Transport& transport);
    ~CpuBackend() override;

    ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) override;
    void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) override;
    void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

    AxisGroups connect(const Partners& partners) override;
    std::int64_t run(const LocalWork& work, const OperatorContext& context) override;
    [[nodiscard]] bool is_synchronous() const override { return true; }
    std::int64_t post(program::Stream stream, const Operation& operation) override;
    void clear(void* device, std::int64_t bytes) override;
    void fetch(const double* device, double* host) override;
    void stamp(std::int64_t* ns) override;

    void wait(program::Stream stream, std::int64_t sequence) override;
    void wait_all() override;
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream) const override;
    [[nodiscard]] std::int64_t bytes_sent_by(program::Stream stream, program::CommKind kind) const override;
    [[nodiscard]] std::int64_t resident_bytes(const void* memory, std::int64_t bytes) const override;
    [[nodiscard]] std::map<std::string, std::string> describe() const override;

  protected:
    virtual void run_operator(const BoundOperator& one, const OperatorContext& context);

  private:
    Transport& transport_;
    CpuOperators operators_;
    EnumArray<program::Stream, std::int64_t, program::kLocalStreams> done_{};
    std::byte* memory_ = nullptr;
    std::int64_t bytes_ = 0;
    std::unique_ptr<ProgressEngine> progress_;  // last member: its thread stops before anything it uses is destroyed
};

}  // namespace orrery::exec
