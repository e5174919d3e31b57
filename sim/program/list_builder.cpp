#include <utility>

#include "core/random.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {

namespace {

/// A hash of those parts of a body in which bodies usually differ.
std::uint64_t hash_of(const Body& body) {
    std::uint64_t hash = static_cast<std::uint64_t>(body.phase);
    const auto add = [&hash](auto value) { hash = mix64(hash ^ static_cast<std::uint64_t>(value)); };
    add(body.transient_bytes);
    for (const Slot& slot : body.slots) {
        add(slot.offset);
        add(slot.bytes);
    }
    for (const Instruction& instruction : body.instructions) {
        add(hash_name(instruction.name));
        add(instruction.communication.elements);
    }
    return hash;
}

}  // namespace

BodyId BodyLibrary::pass(const LoweredLayer& layer, Phase phase, const std::vector<BucketCut>& buckets) {
    for (const Known& known : known_) {
        if (known.lowered == &layer && known.phase == phase && known.buckets == buckets) return known.body;
    }
    const LayerCache::Pass* const cached = cache_ != nullptr && buckets.empty() ? cache_->pass(layer, phase) : nullptr;
    const BodyId id = cached != nullptr ? add(cached->body, &cached->order) : add(build_body(layer, phase, buckets));
    known_.push_back({&layer, phase, buckets, id});
    return id;
}

BodyId BodyLibrary::add(Body body, const BodyOrder* order) {
    const std::uint64_t hash = hash_of(body);
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto known = first; known != last; ++known) {
        if (this->body(known->second) == body) return known->second;
    }
    by_hash_.emplace(hash, program_.bodies.next_index());
    orders_.push_back(order != nullptr ? *order : order_of(body));
    return program_.bodies.add(std::move(body));
}

const BodyMemory& BodyLibrary::memory(const Segment& call) {
    const auto [known, fresh] = memories_.try_emplace(stays_key(call));
    if (fresh) known->second = walk_body(body(call.body), walk_slots(program_.bodies, call));
    return known->second;
}

void ListBuilder::pass(const LaidLayer& layer, Phase phase, const std::vector<BucketCut>& buckets) {
    Segment segment = layer.segment;
    segment.body = bodies_.pass(*layer.lowered, phase, buckets);
    add(segment);
}

void ListBuilder::copy_back(Phase phase, const std::vector<BucketCut>& buckets) {
    for (const BucketCut& bucket : buckets) {
        BodyWriter writer(phase);
        write_copy_back(writer, "dp.bucket.at." + std::to_string(bucket.offset), bucket);
        add({}, writer.finish());
    }
}

SegmentListId ListBuilder::finish() {
    orders_.push_back(order_list(result_, list_, result_.segment_waits));
    SegmentList segments;
    segments.reserve(list_.size());
    for (const ListedSegment& listed : list_) segments.push_back(listed.segment);
    list_.clear();
    return result_.segment_lists.add(std::move(segments));
}

}  // namespace orrery::program
