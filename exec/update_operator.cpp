#include "exec/update_operator.h"

namespace orrery::exec {

UpdateOperator update_operator_of(const program::Program& program, const program::RankClass& rank_class) {
    for (const auto& segments : rank_class.segment_lists) {
        for (const program::Segment& segment : segments) {
            const program::Body& body = program.bodies[segment.body];
            for (const models::Operator& op : body.operators) {
                if (op.is_update()) return {&body, &op};
            }
        }
    }
    return {};
}

}  // namespace orrery::exec
