//! One cycle: the configured actions in order over the World's tables, then its end. Called by `engine::World::cycle`.

use crate::config::Action;
use crate::eviction::gang_eviction::Kind;
use crate::node_plugins::usage;
use crate::plan::Plan;
use crate::session::Session;
use crate::{actions, cycle_end, eviction};

impl Session<'_> {
    pub(crate) fn run(mut self) -> Plan {
        self.tables.refresh_inherited_queues();
        self.tables.refresh_network(self.config.sharding.as_ref(), self.now);
        self.tables.nodes.expire_usage(self.now.plus_ms(-usage::FRESH_MS));
        self.policy.open(self.tables, self.now);
        self.tables.begin();
        self.plan.settled = self.tables.settle_eviction_records(self.now);
        actions::nominated_capacity::settle(&mut self);
        eviction::partial_gangs::take_back(&mut self);
        eviction::maintenance::empty(&mut self);
        actions::reserve::settle(&mut self);
        eviction::overrun_backfill::end(&mut self);
        for action in &self.config.actions {
            match action {
                Action::Enqueue => actions::enqueue::run(&mut self),
                Action::Allocate => actions::allocate::run(&mut self),
                Action::Backfill => actions::backfill::run(&mut self),
                Action::Preempt => eviction::preempt::run(&mut self),
                Action::Reclaim => eviction::reclaim::run(&mut self),
                Action::GangPreempt => eviction::gang_eviction::run(&mut self, Kind::Preempt),
                Action::GangReclaim => eviction::gang_eviction::run(&mut self, Kind::Reclaim),
                Action::Shuffle => eviction::shuffle::run(&mut self),
            }
        }
        cycle_end::run(&mut self);
        self.policy.close(self.tables, self.now);
        self.tables.commit();
        self.plan
    }
}
