//! What the live view shows and how keys change it.
//!
//! Invariant: pure: no terminal, no clock, no network. A key gives at most one [`Request`] that the shell around it carries out; a
//! job is cancelled only after a second key. Called by `commands::watch`.

pub mod draw;

use pumice_jobs::job::{JobRef, JobRow};

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `k` or the arrow.
    Up,
    /// `j` or the arrow.
    Down,
    /// The first job.
    Top,
    /// The last job.
    Bottom,
    /// Details of the job.
    Enter,
    Logs,
    Cancel,
    /// Yes to a question.
    Yes,
    Quit,
    Interrupt,
    Other,
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Quit,
    /// Learn more of this job.
    Detail(JobRef),
    /// Read the end of its log.
    Log(JobRef),
    Cancel(JobRef),
}

/// What the lower half shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// Progress, reasons, failures and events of the chosen job.
    #[default]
    Detail,
    /// The end of its log.
    Log,
}

/// What was learned of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// Why it waits; may be empty.
    pub why: String,
    /// Failed pods, a line each.
    pub failures: Vec<String>,
    /// Events, newest first, a line each.
    pub events: Vec<String>,
}

/// What the live view knows and shows; `draw` paints it, and keys change it.
#[derive(Debug, Default)]
pub struct View {
    /// The namespace of the jobs; `None` is all.
    namespace: Option<String>,
    jobs: Vec<JobRow>,
    /// Uid of the chosen job, which stays chosen while others come and go.
    chosen: String,
    /// What the lower half shows.
    pub pane: Pane,
    detail: Option<(JobRef, Detail)>,
    log: Option<(JobRef, Vec<String>)>,
    /// A job that is cancelled when the next key says so.
    to_cancel: Option<JobRef>,
    /// What happened last.
    pub note: String,
    /// Whether the server does not answer.
    pub lost: bool,
}

impl View {
    /// An empty view of a namespace, or of all.
    pub fn new(namespace: Option<&str>) -> Self {
        View { namespace: namespace.map(str::to_owned), ..View::default() }
    }

    /// Takes the jobs as they are now. The chosen one stays chosen, or its neighbour is.
    pub fn take(&mut self, jobs: Vec<JobRow>) {
        let place = self.index().unwrap_or(0);
        self.jobs = jobs;
        if self.index().is_none() {
            let near = self.jobs.get(place).or(self.jobs.last());
            self.chosen = near.map(|job| job.metadata.uid.clone()).unwrap_or_default();
        }
    }

    /// Takes what was learned of a job.
    pub fn learn(&mut self, job: JobRef, detail: Detail) {
        self.detail = Some((job, detail));
    }

    /// Takes the end of a job's log.
    pub fn read(&mut self, job: JobRef, lines: Vec<String>) {
        self.log = Some((job, lines));
    }

    /// The job that keys act on; `None` while there is no job.
    pub fn chosen(&self) -> Option<&JobRow> {
        self.jobs.get(self.index()?)
    }

    fn index(&self) -> Option<usize> {
        self.jobs.iter().position(|job| job.metadata.uid == self.chosen)
    }

    /// What keeps the lower half up to date.
    pub fn refresh(&self) -> Option<Request> {
        let job = self.chosen()?.reference();
        Some(match self.pane {
            Pane::Detail => Request::Detail(job),
            Pane::Log => Request::Log(job),
        })
    }

    fn choose(&mut self, index: usize) -> Option<Request> {
        let job = self.jobs.get(index.min(self.jobs.len().saturating_sub(1)))?;
        self.chosen = job.metadata.uid.clone();
        self.refresh()
    }

    fn show(&mut self, pane: Pane) -> Option<Request> {
        self.pane = pane;
        self.refresh()
    }

    /// Does what a key means.
    pub fn press(&mut self, key: Key) -> Option<Request> {
        let to_cancel = self.to_cancel.take();
        self.note.clear();
        if let (Key::Yes, Some(job)) = (key, to_cancel.clone()) {
            self.note = format!("{} is being cancelled", job.name);
            return Some(Request::Cancel(job));
        }
        if to_cancel.is_some() {
            self.note = "nothing was cancelled".to_owned();
            return (key == Key::Interrupt).then_some(Request::Quit);
        }
        let index = self.index().unwrap_or(0);
        match key {
            Key::Interrupt => Some(Request::Quit),
            Key::Quit if self.pane == Pane::Detail => Some(Request::Quit),
            Key::Quit | Key::Enter => self.show(Pane::Detail),
            Key::Logs => self.show(Pane::Log),
            Key::Up => self.choose(index.saturating_sub(1)),
            Key::Down => self.choose(index + 1),
            Key::Top => self.choose(0),
            Key::Bottom => self.choose(usize::MAX),
            Key::Cancel => {
                if let Some(job) = self.chosen().map(JobRow::reference) {
                    self.note = format!("cancel {}? y", job.name);
                    self.to_cancel = Some(job);
                }
                None
            }
            Key::Yes | Key::Other => None,
        }
    }
}

#[cfg(test)]
mod tests;
