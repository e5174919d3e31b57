// Operators on a part of the sequence: for context parallelism and sequence parallelism.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

void run_position_forward(const models::Operator& op, const Operands& o, const OperatorContext& context);
void run_position_backward(const models::Operator& op, const Operands& o, const OperatorContext& context);

/// Attention forward or backward of this rank's queries over its own keys, another rank's keys, or all keys.
void run_attention(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                   const OperatorContext& context);
void run_attention_merge(const models::Operator& op, const Operands& o);

/// copy_columns, add_columns
void run_columns(const models::Operator& op, const Operands& o, const OperatorPointers& at);
/// repeat_heads, sum_repeated_heads
void run_repetition(const models::Operator& op, const Operands& o, const OperatorPointers& at);
/// The layout changes around the all-to-all of Ulysses. Operator::heads counts the heads of one rank.
void run_relay(const models::Operator& op, const Operands& o, const OperatorPointers& at,
               const OperatorContext& context);

}  // namespace orrery::exec
