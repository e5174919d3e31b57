#include "tests/gpu/special_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using models::SlotIndex;

template <typename T>
void put_into(std::vector<std::byte>& memory, const std::vector<T>& values) {
    std::memcpy(memory.data(), values.data(), std::min(memory.size(), values.size() * sizeof(T)));
}

}  // namespace

std::int64_t SpecialInputs::below(std::int64_t end) {
    return static_cast<std::int64_t>(random_.uniform(draws_++) * static_cast<double>(end));
}

/// `distinct`: those of a token.
void SpecialInputs::write_choices(const Operator& op, std::vector<std::byte>& memory, bool distinct,
                                  std::int64_t top_k) {
    std::vector<std::int32_t> chosen;
    while (static_cast<std::int64_t>(chosen.size() * sizeof(std::int32_t)) < static_cast<std::int64_t>(memory.size())) {
        // Nobody chooses the last expert.
        const auto one = static_cast<std::int32_t>(below(distinct ? op.n : std::max<std::int64_t>(op.n - 1, 1)));
        const auto of_token = chosen.end() - static_cast<std::int64_t>(chosen.size()) % top_k;
        if (distinct && std::find(of_token, chosen.end(), one) != chosen.end()) continue;
        chosen.push_back(one);
    }
    put_into(memory, chosen);
}

void SpecialInputs::write_places(const Operator& op, std::vector<std::byte>& memory) {
    std::vector<std::int32_t> places(static_cast<std::size_t>(op.rows));
    std::iota(places.begin(), places.end(), 0);
    for (std::size_t i = places.size(); i > 1; --i) {
        std::swap(places[i - 1], places[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
    }
    put_into(memory, places);
}

/// Up to all of the rows that the first input has memory for; some experts have none.
void SpecialInputs::write_counts(const program::Body& body, const Operator& op, SlotIndex slot, Memory& host) {
    const models::SlotDecl& rows = body.slots[op.in[0]].decl;
    std::int64_t left = rows.bytes() / size_of(rows.dtype) / rows.shape.back();
    std::vector<std::int64_t> counts(static_cast<std::size_t>(op.sources * op.groups));
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto others = static_cast<std::int64_t>(counts.size() - i);
        counts[i] = below(5) == 0 ? 0 : below(std::min(left, 2 * left / others + 1) + 1);
        left -= counts[i];
    }
    put_into(host[slot], counts);
}

void SpecialInputs::write(const program::Body& body, const Operator& op, Memory& host) {
    for (const SlotIndex slot : op.in) {
        if (slot == models::kNoSlot) continue;
        if (body.slots[slot].decl.dtype == DType::int64) write_counts(body, op, slot, host);
        if (body.slots[slot].decl.dtype == DType::fp64) put_into(host[slot], std::vector<double>{0.7, 0.0});
    }
    switch (op.kind) {
        case OpKind::router_backward:
            return write_choices(op, host[op.in[2]], true, body.slots[op.in[2]].decl.shape.back());
        case OpKind::permute_forward:
            return write_choices(op, host[op.in[1]], false, 1);
        case OpKind::permute_backward:
            return write_places(op, host[op.in[1]]);
        case OpKind::combine_forward:
            return write_places(op, host[op.in[2]]);
        case OpKind::combine_backward:
            return write_places(op, host[op.in[3]]);
        default:
            return;
    }
}

}  // namespace orrery::exec
