// Ways to break a lowered program, and checks of validate()'s message.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program::samples {

inline std::string message_of(const Program& program) {
    try {
        validate(program);
    } catch (const BugError& error) {
        return error.what();
    }
    return "";
}

inline void expect_breaks(const Program& program, const std::string& rule, const std::string& detail) {
    const std::string message = message_of(program);
    EXPECT_NE(message.find("the rule '" + rule + "'"), std::string::npos) << rule << " was expected: " << message;
    EXPECT_NE(message.find(detail), std::string::npos) << detail << " was expected: " << message;
}

/// Two stages, two replicas, two tensor-parallel ranks and a tied embedding.
inline Program full_program() {
    return make_program({.dp = 2, .tp = 2, .pp = 2, .sequence_parallel = true, .micro_batches = 4, .tied = true});
}

inline Action& action_of(RankClass& ranks, ActionKind kind, std::int32_t micro_batch) {
    const auto found = std::find_if(ranks.actions.begin(), ranks.actions.end(), [&](const Action& action) {
        return action.kind == kind && action.micro_batch == micro_batch;
    });
    EXPECT_NE(found, ranks.actions.end()) << name_of(kind) << " " << micro_batch;
    return *found;
}

inline ActionIndex index_of(const RankClass& ranks, const Action& action) {
    return ActionIndex::of(&action - ranks.actions.data());
}

inline Body& body_of(Program& program, ClassIndex c, ActionKind kind, std::int32_t micro_batch, SegmentIndex segment) {
    const Action& action = action_of(program.classes[c], kind, micro_batch);
    const auto& list = program.classes[c].segment_lists[action.segments];
    return program.bodies[list[segment].body];
}

inline Instruction& first_on(Body& body, Stream stream) {
    const auto found = std::find_if(body.instructions.begin(), body.instructions.end(),
                                    [&](const Instruction& instruction) { return instruction.stream == stream; });
    EXPECT_NE(found, body.instructions.end()) << name_of(stream);
    return *found;
}

inline void add_wait(RankClass& ranks, Action& action, Wait wait) {
    const auto first = static_cast<std::int32_t>(ranks.waits.size());
    for (std::int32_t w = 0; w < action.wait_count; ++w) {
        ranks.waits.push_back(ranks.waits[static_cast<std::size_t>(action.first_wait + w)]);
    }
    ranks.waits.push_back(wait);
    action.first_wait = first;
    ++action.wait_count;
}

/// Moves the action to the front of the step and updates the waits.
inline void move_to_front(RankClass& ranks, ActionIndex index) {
    const auto action = ranks.actions.begin() + index.value();
    std::rotate(ranks.actions.begin(), action, action + 1);
    for (Wait& wait : ranks.waits) {
        if (wait.action == index) {
            wait.action = 0;
        } else if (wait.action < index) {
            ++wait.action;
        }
    }
}

/// Removes the action from the step, with its waits and the waits for it.
inline void erase_action(RankClass& ranks, ActionIndex index) {
    ranks.actions.erase(ranks.actions.begin() + index.value());
    std::vector<Wait> waits;
    for (Action& action : ranks.actions) {
        const auto first = static_cast<std::int32_t>(waits.size());
        for (std::int32_t w = 0; w < action.wait_count; ++w) {
            Wait wait = ranks.waits[static_cast<std::size_t>(action.first_wait + w)];
            if (wait.action == index) continue;
            if (wait.action > index) wait.action = wait.action - 1;
            waits.push_back(wait);
        }
        action.first_wait = first;
        action.wait_count = static_cast<std::int32_t>(waits.size()) - first;
    }
    ranks.waits = std::move(waits);
}

}  // namespace orrery::program::samples
