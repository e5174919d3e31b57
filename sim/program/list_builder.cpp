#include <algorithm>
#include <array>
#include <utility>

#include "sim/program/stage_lists.h"

namespace orrery::program {

BodyId BodyLibrary::pass(const LayerForm& form, Phase phase, const std::vector<BucketCut>& buckets) {
    for (const Known& known : known_) {
        if (known.form == &form && known.phase == phase && known.buckets == buckets) return known.body;
    }
    const std::vector<models::Step>* steps = &form.forward;
    if (phase == Phase::backward) steps = &form.backward;
    if (phase == Phase::backward_input) steps = &form.backward_input;
    if (phase == Phase::backward_weight) steps = &form.backward_weight;
    if (phase == Phase::prepare) steps = &form.prepare;
    const BodyId id = add(build_body(form, phase, *steps, buckets));
    known_.push_back({&form, phase, buckets, id});
    return id;
}

BodyId BodyLibrary::add(Body body) {
    program_.bodies.push_back(std::move(body));
    return static_cast<BodyId>(program_.bodies.size() - 1);
}

void ListBuilder::add(Segment segment, const std::vector<Use>& uses) {
    const auto here = static_cast<std::int32_t>(segments_.size());
    std::vector<SegmentWait> waits;
    const auto wait_for = [&](const Last& last, const Use& use) {
        if (last.segment < 0 || last.segment == here || last.stream == use.stream) return;
        for (SegmentWait& wait : waits) {
            if (wait.stream != last.stream) continue;
            wait.segment = std::max(wait.segment, last.segment);
            return;
        }
        waits.push_back({last.segment, last.stream});
    };
    for (const Use& use : uses) {
        const History& history = histories_[{use.thing, use.index}];
        wait_for(history.writer, use);
        if (!use.write) continue;
        for (const Last& reader : history.readers) wait_for(reader, use);
    }
    for (const Use& use : uses) {
        History& history = histories_[{use.thing, use.index}];
        if (use.write) {
            // Two writes of one segment are ordered by its body; both are kept.
            if (history.writer.segment == here) {
                history.readers.push_back(history.writer);
            } else {
                history.readers.clear();
            }
            history.writer = {here, use.stream};
        } else {
            history.readers.push_back({here, use.stream});
        }
    }
    segment.first_wait = static_cast<std::int32_t>(result_.segment_waits.size());
    segment.wait_count = static_cast<std::int32_t>(waits.size());
    result_.segment_waits.insert(result_.segment_waits.end(), waits.begin(), waits.end());
    segments_.push_back(segment);
}

void ListBuilder::shares(Buffer buffer, std::int32_t index, Stream stream, bool write, bool beside) {
    shared_.push_back({buffer, index, stream, write, beside});
}

void drop_idle_streams(ListedPass& pass, const RankClass& result, const BodyLibrary& bodies) {
    std::array<bool, kStreamCount> used{};
    for (const Segment& segment : result.segment_lists[static_cast<std::size_t>(pass.list)]) {
        const Body& body = bodies.body(segment.body);
        for (std::size_t s = 0; s < used.size(); ++s) used[s] = used[s] || body.stream_counts[s] > 0;
    }
    AccessList kept;
    for (const Access& access : pass.shared) {
        if (used[static_cast<std::size_t>(access.stream)]) kept.push_back(access);
    }
    pass.shared = kept;
}

ListedPass ListBuilder::finish() {
    result_.segment_lists.push_back(std::move(segments_));
    return {static_cast<SegmentListId>(result_.segment_lists.size() - 1), shared_};
}

}  // namespace orrery::program
