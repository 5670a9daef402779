//! `jobctl watch`: the live view on a terminal.
//!
//! Invariant: the terminal is given back as it was, whatever ends the view: a key, a failure, a signal, a panic.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use pumice_jobs::explain::{job_end, why};
use pumice_jobs::job::{JobRef, pod_failures};
use pumice_jobs::lifecycle::{self, set_desired_state};
use pumice_jobs::logs::{JobLogs, LogOptions, PODS_FOLLOWED_MAX};
use pumice_jobs::lookup::events::{self, JobEvent};
use pumice_jobs::lookup::pods::failed_pods;
use pumice_jobs::lookup::{Change, JobList};
use pumice_jobs::{Connection, Exit};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::Session;
use crate::args::WatchArgs;
use crate::failure::Failure;
use crate::log_printer;
use crate::terminal;
use crate::view::{Detail, Key, Request, View, draw::draw};

/// Redraws are at least so far apart.
const REDRAW_EVERY: Duration = Duration::from_millis(250);
/// What is known of the chosen job is asked again after so many redraws.
const REDRAWS_TO_ASK: u32 = 8;
/// How long the end of the view waits for jobs that are being cancelled.
const CANCELS_GRACE: Duration = Duration::from_secs(5);
/// How long the reader of keys waits before it looks whether the view has ended.
const KEYS_POLL: Duration = Duration::from_millis(100);
/// Failed pods, events and lines of a log that are shown.
const SHOWN_MAX: usize = 100;

/// Answers to what the view asked for.
enum Answer {
    Detail(JobRef, Detail),
    Log(JobRef, Vec<String>),
    Note(String),
}

/// Shows the view until a key ends it.
pub fn run(session: &Session, args: &WatchArgs) -> Result<Exit, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Usage {
            message: "the live view needs a terminal".to_owned(),
            next: "jobctl list".to_owned(),
        });
    }
    session.talk(|connection| async move {
        let failed =
            |what: &'static str| move |error: std::io::Error| Failure::Machine(anyhow::Error::new(error).context(what));
        // Also sets a hook that gives the terminal back before a panic is told.
        let mut screen = ratatui::try_init().map_err(failed("cannot take over the terminal"))?;
        let outcome = show(session, args, connection, &mut screen).await;
        ratatui::try_restore().map_err(failed("cannot give the terminal back"))?;
        outcome
    })
}

async fn show(
    session: &Session,
    args: &WatchArgs,
    connection: Connection,
    screen: &mut DefaultTerminal,
) -> Result<Exit, Failure> {
    let namespace = (!args.all_namespaces).then(|| connection.namespace().to_owned());
    let mut view = View::new(namespace.as_deref());
    let mut list = JobList::new(connection.clone(), namespace.as_deref());
    let mut keys = read_keys();
    let handler = |kind| signal(kind).context("cannot hear signals").map_err(Failure::Machine);
    let mut interrupt = handler(SignalKind::interrupt())?;
    let (mut term, mut hangup) = (handler(SignalKind::terminate())?, handler(SignalKind::hangup())?);
    let mut ticks = tokio::time::interval_at(Instant::now(), REDRAW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut redraws = 0_u32;
    // Whether jobs have changed since the last redraw.
    let mut changed = false;
    // What is being asked about the chosen job, and cancelled.
    let (mut questions, mut cancels) = (JoinSet::new(), JoinSet::new());
    loop {
        let request = tokio::select! {
            biased;
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = term.recv() => return Ok(Exit::Interrupted),
            _ = hangup.recv() => return Ok(Exit::Interrupted),
            key = keys.recv() => match key {
                Some(key) => {
                    let request = view.press(key);
                    paint(session, &view, screen)?;
                    request
                }
                None => return Ok(Exit::Success),
            },
            // One that was put off by a later question has no answer.
            Some(answer) = questions.join_next() => {
                answer.into_iter().for_each(|answer| take(&mut view, answer));
                None
            }
            Some(answer) = cancels.join_next() => {
                answer.into_iter().for_each(|answer| take(&mut view, answer));
                None
            }
            _ = ticks.tick() => {
                if std::mem::take(&mut changed) {
                    view.take(list.jobs());
                }
                paint(session, &view, screen)?;
                redraws = redraws.wrapping_add(1);
                // A slow answer is waited for, not asked for again.
                let ask = redraws.is_multiple_of(REDRAWS_TO_ASK) || redraws == 2;
                let ask = ask && questions.is_empty();
                if ask { view.refresh() } else { None }
            }
            change = list.next() => {
                match change? {
                    Change::Jobs => (view.lost, changed) = (false, true),
                    Change::Lost => view.lost = true,
                    Change::Back => view.lost = false,
                }
                None
            }
        };
        match request {
            None => {}
            Some(Request::Quit) => {
                // What was said yes to is sent, if the server answers at all.
                let _ = tokio::time::timeout(CANCELS_GRACE, cancels.join_all()).await;
                return Ok(Exit::Success);
            }
            Some(request @ Request::Cancel(_)) => {
                cancels.spawn(carry_out(request, connection.clone()));
            }
            Some(request) => {
                questions.abort_all();
                questions.spawn(carry_out(request, connection.clone()));
            }
        }
    }
}

fn take(view: &mut View, answer: Answer) {
    match answer {
        Answer::Detail(job, detail) => view.learn(job, detail),
        Answer::Log(job, lines) => view.read(job, lines),
        Answer::Note(note) => view.note = note,
    }
}

fn paint(session: &Session, view: &View, screen: &mut DefaultTerminal) -> Result<(), Failure> {
    let colours = !session.surroundings.plain;
    let drawn = screen.draw(|frame| draw(view, frame, terminal::now(), colours));
    drawn.map(|_| ()).map_err(Failure::Output)
}

/// Keys from a thread of their own: reading them blocks. It ends when nobody listens any more.
fn read_keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let key = match event::poll(KEYS_POLL) {
                Ok(false) => continue,
                Ok(true) => event::read().map(|event| key_of(&event)),
                Err(error) => Err(error),
            };
            match key {
                Ok(Some(key)) if sender.blocking_send(key).is_err() => return,
                Ok(_) => {}
                // A terminal that is gone ends the view: nobody can press a key there.
                Err(_) => return,
            }
        }
    });
    receiver
}

fn key_of(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return matches!(event, Event::Resize(..)).then_some(Key::Other) };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char('k') | KeyCode::Up => Key::Up,
        KeyCode::Char('j') | KeyCode::Down => Key::Down,
        KeyCode::Char('g') | KeyCode::Home => Key::Top,
        KeyCode::Char('G') | KeyCode::End => Key::Bottom,
        KeyCode::Enter => Key::Enter,
        KeyCode::Char('l') => Key::Logs,
        KeyCode::Char('c') => Key::Cancel,
        KeyCode::Char('y') => Key::Yes,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        _ => Key::Other,
    })
}

/// Asks beside the view, so that keys are never waited for.
async fn carry_out(request: Request, connection: Connection) -> Answer {
    let answer = match request {
        Request::Quit => return Answer::Note(String::new()),
        Request::Detail(job) => detail(&connection, &job).await.map(|detail| Answer::Detail(job, detail)),
        Request::Log(job) => log(&connection, &job).await.map(|lines| Answer::Log(job, lines)),
        Request::Cancel(job) => set_desired_state(&connection, &job, lifecycle::DesiredState::Cancel, false)
            .await
            .map(|_| Answer::Note(format!("{} is being cancelled", job.name))),
    };
    answer.unwrap_or_else(|error| Answer::Note(pumice_jobs::error::sentence(&error)))
}

async fn detail(connection: &Connection, job: &JobRef) -> Result<Detail, pumice_jobs::Error> {
    let typed = pumice_jobs::lookup::typed(connection, &pumice_jobs::lookup::get(connection, job).await?)?;
    let counts = pumice_jobs::job::Counts::of(&typed);
    let waits = counts.running == 0 && pumice_jobs::job::end_of(&typed).is_none();
    let why = match waits {
        true => why::fetch(connection, job).await?.one_line(),
        false => job_end::because(&typed).unwrap_or_default(),
    };
    let failures = if counts.failed > 0 { pod_failures(&failed_pods(connection, job).await?) } else { Vec::new() };
    Ok(Detail {
        why,
        failures: failures.iter().take(SHOWN_MAX).map(|failure| failure.sentence()).collect(),
        events: newest_events(connection, job).await?,
    })
}

/// Events of the job, newest first.
async fn newest_events(connection: &Connection, job: &JobRef) -> Result<Vec<String>, pumice_jobs::Error> {
    let line = |event: &JobEvent| {
        let time = event.at.map_or_else(String::new, |at| at.strftime("%H:%M:%S").to_string());
        format!("{time}  {}  {}", event.reason, event.message)
    };
    Ok(events::fetch(connection, job, None).await?.iter().rev().take(SHOWN_MAX).map(line).collect())
}

async fn log(connection: &Connection, job: &JobRef) -> Result<Vec<String>, pumice_jobs::Error> {
    let typed = pumice_jobs::lookup::typed(connection, &pumice_jobs::lookup::get(connection, job).await?)?;
    let pods_total = pumice_jobs::job::Counts::of(&typed).total;
    if pods_total > PODS_FOLLOWED_MAX {
        return Ok(vec![format!("more than {PODS_FOLLOWED_MAX} pods: jobctl logs {} --pod NAME shows one", job.name)]);
    }
    let options = LogOptions { tail_lines: u32::try_from(SHOWN_MAX).ok(), pods_total, ..LogOptions::default() };
    let mut lines = JobLogs::new(connection.clone(), job.clone(), options);
    let mut shown = Vec::new();
    while let Some(line) = lines.next().await {
        let line = line?;
        shown.push(format!("{}{}", log_printer::prefix(job, &line), String::from_utf8_lossy(&line.text)));
    }
    shown.drain(..shown.len().saturating_sub(SHOWN_MAX));
    Ok(shown)
}
