//! The switches of a plugin, spelled exactly as Volcano's configuration file spells them.

macro_rules! switches {
    ($($name:ident = $key:literal),+ $(,)?) => {
        /// An extension point that a configuration may switch off for a plugin.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Switch { $($name),+ }

        impl Switch {
            /// Every switch, in the order of declaration.
            pub const ALL: &[Switch] = &[$(Switch::$name),+];

            /// Its key in the file.
            pub fn key(self) -> &'static str {
                match self { $(Switch::$name => $key),+ }
            }
        }
    };
}

switches! {
    JobOrder = "enableJobOrder",
    Hierarchy = "enableHierarchy",
    JobReady = "enableJobReady",
    JobPipelined = "enableJobPipelined",
    TaskOrder = "enableTaskOrder",
    Preemptable = "enablePreemptable",
    Reclaimable = "enableReclaimable",
    Preemptive = "enablePreemptive",
    QueueOrder = "enableQueueOrder",
    ClusterOrder = "enabledClusterOrder",
    Predicate = "enablePredicate",
    BestNode = "enableBestNode",
    NodeOrder = "enableNodeOrder",
    TargetJob = "enableTargetJob",
    ReservedNodes = "enableReservedNodes",
    JobEnqueued = "enableJobEnqueued",
    Victim = "enabledVictim",
    JobStarving = "enableJobStarving",
    Overused = "enabledOverused",
    Allocatable = "enabledAllocatable",
    HyperNodeOrder = "enabledHyperNodeOrder",
    SubJobReady = "enabledSubJobReady",
    SubJobPipelined = "enabledSubJobPipelined",
    SubJobOrder = "enabledSubJobOrder",
    HyperNodeGradient = "enabledHyperNodeGradient",
}

/// A set of switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switches(u32);

impl Default for Switches {
    /// All but `enableHierarchy` and `enabledClusterOrder`, as in Volcano.
    fn default() -> Self {
        let mut switches = Self::none();
        for switch in Switch::ALL {
            switches.set(*switch, !matches!(switch, Switch::Hierarchy | Switch::ClusterOrder));
        }
        switches
    }
}

impl Switches {
    /// The set with every switch off. `default` has most of them on.
    pub fn none() -> Self {
        Self(0)
    }

    /// Turns one on or off.
    pub fn set(&mut self, switch: Switch, on: bool) {
        let bit = 1 << switch as u32;
        if on {
            self.0 |= bit;
        } else {
            self.0 &= !bit;
        }
    }

    /// Whether it is on.
    pub fn has(self, switch: Switch) -> bool {
        self.0 & (1 << switch as u32) != 0
    }
}
