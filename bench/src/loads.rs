//! The loads of the public benchmark that Volcano and its peers were measured with: jobs of equal size.

use crate::load::Call;
use crate::objects::{JOBS, job};
use crate::setting::Setting;

/// Jobs created at a time.
pub const JOBS_IN_FLIGHT: usize = 16;

/// Jobs of equal size.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What the benchmark calls it.
    pub name: &'static str,
    pub jobs: usize,
    /// Pods of each, all of which start together.
    pub replicas: usize,
}

/// `a2000` is the first of them, scaled.
pub const LOADS: [Load; 5] = [
    Load { name: "a", jobs: 10_000, replicas: 1 },
    Load { name: "a2000", jobs: 2_000, replicas: 1 },
    Load { name: "b", jobs: 500, replicas: 20 },
    Load { name: "c", jobs: 20, replicas: 500 },
    Load { name: "d", jobs: 1, replicas: 10_000 },
];

impl Load {
    /// The load at a scale, and no larger than the room there is: fewer jobs, or smaller ones where there are few.
    #[must_use]
    pub fn sized(self, setting: &Setting, room: usize) -> Load {
        let mut sized = self;
        while sized.pods() > setting.size(self.pods()).min(room) {
            if sized.jobs > 16 { sized.jobs -= 1 } else { sized.replicas -= 1 }
        }
        sized
    }

    /// Pods of all jobs.
    pub fn pods(&self) -> usize {
        self.jobs * self.replicas
    }

    /// The creates of the jobs.
    pub fn calls(&self) -> Vec<Call> {
        (0..self.jobs).map(|index| Call::create(JOBS, &job(&format!("j-{index}"), self.replicas))).collect()
    }
}
