// A fake device that executes queued work only when the host waits, in a random order that the streams and events
// allow. So a missing dependency gives wrong results.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/random.h"
#include "exec/cpu/cpu_operators.h"
#include "exec/device/device.h"

namespace orrery::exec {

class FakeDevice : public Device {
  public:
    struct Options {
        std::uint64_t seed = 0;
        bool in_order = false;        // execute work when it is queued
        bool ignores_events = false;  // streams do not wait for each other
        std::int64_t memory_bytes = std::int64_t{1} << 32;
        std::int64_t ahead_of_host_ns = 0;  // an error in the times of its events
    };
    explicit FakeDevice(const Options& options) : options_(options), lots_(options.seed, "fake device") {}

    std::byte* allocate(std::int64_t bytes) override {
        if (bytes > free_bytes()) return nullptr;
        used_ += bytes;
        return block(bytes);
    }
    std::byte* allocate_host(std::int64_t bytes) override { return block(bytes); }
    [[nodiscard]] std::int64_t free_bytes() const override { return options_.memory_bytes - used_; }
    [[nodiscard]] std::int64_t used_bytes() const override { return used_; }

    void copy(program::Stream stream, void* to, const void* from, std::int64_t bytes) override {
        queue(stream, [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
    }
    void clear(program::Stream stream, void* memory, std::int64_t bytes) override {
        queue(stream, [=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
    }
    void run(program::Stream stream, const BoundOperator& one, const OperatorContext& context) override {
        queue(stream, [this, one, context] { operators_.run(*one.op, one.at, context); });
    }
    std::int64_t communicate(program::Stream stream, const Operation& operation) override {
        copy(stream, operation.out, operation.in, operation.elements * size_of(operation.dtype));
        return operation.elements;
    }

    Event record(program::Stream stream) override {
        if (free_events_.empty()) {
            free_events_.push_back(points_.add(nullptr));
        }
        const Event event = free_events_.back();
        free_events_.pop_back();
        const auto point = std::make_shared<Point>();
        points_[event] = point;
        queue(stream, [this, point] {
            clock_ns_ = std::max(clock_ns_ + 1, now_ns() + options_.ahead_of_host_ns);
            point->time_ns = clock_ns_;
        });
        return event;
    }
    void hold(program::Stream stream, Event event) override {
        if (options_.ignores_events || options_.in_order) return;
        streams_[stream].push_back({{}, points_[event]});
    }
    bool is_complete(Event event) override { return points_[event]->time_ns > 0; }
    void synchronize(Event event, const std::function<void()>& /*meanwhile*/) override {
        while (!is_complete(event)) advance();
    }
    std::int64_t time_ns(Event event) override {
        if (!is_complete(event)) throw std::logic_error("the event is not complete");
        return points_[event]->time_ns;
    }
    void release(Event event) override { free_events_.push_back(event); }

    AxisGroups connect(const Partners& partners) override {
        AxisGroups groups;
        for (const program::GroupAxis axis : program::kAxes) {
            if (!partners.members[axis].empty()) groups[axis].index = GroupIndex::of(static_cast<int>(axis));
        }
        return groups;
    }
    [[nodiscard]] std::map<std::string, std::string> describe() const override { return {{"backend", "fake"}}; }

  private:
    struct Point {
        std::int64_t time_ns = 0;  // 0: not complete
    };
    struct Queued {
        std::function<void()> work;
        std::shared_ptr<const Point> after;  // waits for this point
    };

    std::byte* block(std::int64_t bytes) {
        memory_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes)));
        return memory_.back().get();
    }
    void queue(program::Stream stream, std::function<void()> work) {
        if (options_.in_order) return work();
        streams_[stream].push_back({std::move(work), nullptr});
    }
    /// Executes one piece of work at the head of a random stream that does not wait.
    void advance() {
        std::vector<std::deque<Queued>*> ready;
        for (std::deque<Queued>& stream : streams_) {
            if (!stream.empty() && (stream.front().after == nullptr || stream.front().after->time_ns > 0)) {
                ready.push_back(&stream);
            }
        }
        if (ready.empty()) throw std::logic_error("all streams wait for events");
        const double lot = lots_.uniform(draws_++) * static_cast<double>(ready.size());
        std::deque<Queued>& stream = *ready[std::min(ready.size() - 1, static_cast<std::size_t>(lot))];
        const Queued one = std::move(stream.front());
        stream.pop_front();
        if (one.work) one.work();
    }

    Options options_;
    RandomStream lots_;
    std::uint64_t draws_ = 0;
    std::int64_t clock_ns_ = 0, used_ = 0;
    CpuOperators operators_;
    program::PerStream<std::deque<Queued>> streams_;
    IndexedVector<Event, std::shared_ptr<Point>> points_;  // the point last recorded
    std::vector<Event> free_events_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace orrery::exec
