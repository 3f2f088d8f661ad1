//! What the library set out to reach.

use seawall_bench::{Column, Goal, Row};

use super::{breakers, deadlines, floors, pipelines, rejections};

/// The goals, and in each group to be ahead of every peer.
pub(crate) fn all(rows: &[Row]) -> Vec<Goal> {
    let refused = |name, column| Goal::AtMost(rejections::GROUP, name, column, 25.0);
    let (group, stack) = (deadlines::STACK, deadlines::OUR_STACK);
    let mut goals = vec![
        Goal::AtMost(breakers::IN_A_ROW, breakers::OURS, Column::One, 10.0),
        Goal::Times(
            breakers::IN_A_ROW,
            breakers::OURS,
            Column::Two,
            2.0,
            breakers::IN_A_ROW,
            breakers::OURS,
        ),
        refused(breakers::OURS, Column::One),
        refused(breakers::OURS, Column::Two),
        Goal::Times(group, stack, Column::One, 1.5, floors::GROUP, floors::TIMEOUT),
        Goal::NoAllocation(group, stack),
        Goal::AtMost(pipelines::GROUP, pipelines::COLD, Column::One, 400.0),
        Goal::AtMost(pipelines::GROUP, pipelines::COLD_AFTER_FAILURE, Column::One, 400.0),
    ];
    let mut groups: Vec<&'static str> = rows.iter().map(|row| row.group).collect();
    groups.dedup();
    goals.extend(groups.into_iter().map(Goal::Ahead));
    goals
}
