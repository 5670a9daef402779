//! The live view as characters: jobs above, the chosen one below.
//!
//! Invariant: pure, and of any size: what doesn't fit is cut. Text of others holds no control characters on the screen.

use jiff::Timestamp;
use pumice_jobs::job::list_columns::tint_of_state;
use pumice_jobs::job::{Counts, JobRow};
use pumice_jobs::monitor::Progress;
use pumice_jobs::output::age;
use pumice_jobs::output::table::Tint;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, HighlightSpacing, Paragraph, Row, Table, TableState};

use super::{Pane, View};

/// Lines of keys that are explained.
const KEYS: &str = "j/k choose · enter details · l log · c cancel · q quit";

/// Stands before the chosen job.
const MARK: &str = "> ";
/// The columns beside the name, and how wide they are.
const COLUMNS: [(&str, u16); 5] = [("STATE", 11), ("OK/FAIL/RUN/WAIT", 22), ("AGE", 6), ("RUNTIME", 7), ("QUEUE", 12)];
/// A name has more room than this, or its neighbours are left out.
const NAME_WIDTH_MIN: u16 = 12;

/// Draws all of it.
pub fn draw(view: &View, frame: &mut Frame, now: Timestamp, colours: bool) {
    let [above, below, foot] =
        Layout::vertical([Constraint::Percentage(50), Constraint::Min(3), Constraint::Length(1)]).areas(frame.area());
    jobs(view, frame, above, now, colours);
    match view.pane {
        Pane::Detail => detail(view, frame, below),
        Pane::Log => log(view, frame, below),
    }
    let foot_text = match (view.lost, view.note.as_str()) {
        (true, _) => "no answer from the server, trying again".to_owned(),
        (false, "") => KEYS.to_owned(),
        (false, note) => note.to_owned(),
    };
    frame.render_widget(Paragraph::new(clean(&foot_text)), foot);
}

fn jobs(view: &View, frame: &mut Frame, area: Rect, now: Timestamp, colours: bool) {
    // Of very many jobs only the page with the chosen one is made: two rows are the title's and the head's.
    let page = usize::from(area.height.saturating_sub(2)).max(1);
    let index = view.index();
    let first = index.unwrap_or(0) / page * page;
    let rows = view.jobs.iter().skip(first).take(page).map(|job| row(view, job, now, colours));
    // Widths that leave the layout nothing to solve: columns that don't fit are left out, the name has what is left.
    let mut left = area.width.saturating_sub(MARK.len() as u16);
    let fits = |(_, width): &&(&str, u16)| {
        let rest = left.checked_sub(width + 1).filter(|rest| *rest >= NAME_WIDTH_MIN);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let columns: Vec<(&str, u16)> = COLUMNS.iter().take_while(fits).copied().collect();
    let head = std::iter::once("NAME").chain(columns.iter().map(|(head, _)| *head));
    let widths = std::iter::once(left).chain(columns.iter().map(|(_, width)| *width)).map(Constraint::Length);
    let place = view.namespace.as_deref().unwrap_or("all namespaces");
    let title = format!(" {} jobs in {place} ", view.jobs.len());
    let table = Table::new(rows, widths)
        .header(Row::new(head))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol(MARK)
        .highlight_spacing(HighlightSpacing::Always)
        .block(Block::new().borders(Borders::TOP).title(title));
    let mut state = TableState::new().with_selected(index.map(|index| index - first));
    frame.render_stateful_widget(table, area, &mut state);
}

fn row(view: &View, job: &JobRow, now: Timestamp, colours: bool) -> Row<'static> {
    let Counts { succeeded, failed, running, waiting, .. } = job.counts();
    let name = match &view.namespace {
        Some(_) => job.metadata.name.clone(),
        None => format!("{}/{}", job.metadata.namespace, job.metadata.name),
    };
    let style = if colours { style(tint_of_state(job.state())) } else { Style::new() };
    Row::new([
        Line::from(clean(&name)),
        Line::from(Span::styled(clean(job.state()), style)),
        Line::from(format!("{succeeded}/{failed}/{running}/{waiting}")),
        Line::from(job.age_s(now).map_or_else(|| "?".to_owned(), age::short)),
        Line::from(job.runtime_s(now).map_or_else(String::new, age::short)),
        Line::from(clean(job.queue())),
    ])
}

fn style(tint: Tint) -> Style {
    match tint {
        Tint::Good => Style::new().fg(Color::Green),
        Tint::Bad => Style::new().fg(Color::Red),
        Tint::Busy => Style::new().fg(Color::Cyan),
        Tint::Waits => Style::new().fg(Color::Yellow),
        Tint::Faint => Style::new().add_modifier(Modifier::DIM),
    }
}

fn detail(view: &View, frame: &mut Frame, area: Rect) {
    let block = Block::new().borders(Borders::TOP);
    let Some(job) = view.chosen() else {
        let text = "no jobs yet; jobctl submit -- COMMAND makes one";
        frame.render_widget(Paragraph::new(text).block(block), area);
        return;
    };
    let mut progress = Progress::default();
    progress.observe(job.counts(), 0);
    let mut lines = vec![Line::from(progress.line(usize::from(area.width), true))];
    if let Some((_, detail)) = view.detail.as_ref().filter(|(of, _)| *of == job.reference()) {
        if !detail.why.is_empty() {
            lines.push(Line::from(format!("waits: {}", clean(&detail.why))));
        }
        lines.extend(detail.failures.iter().map(|failure| Line::from(clean(failure))));
        if !detail.events.is_empty() {
            lines.push(Line::from(Span::styled("events", Style::new().add_modifier(Modifier::BOLD))));
        }
        lines.extend(detail.events.iter().map(|event| Line::from(clean(event))));
    }
    let title = format!(" {} · {} ", clean(&job.metadata.name), job.state());
    frame.render_widget(Paragraph::new(lines).block(block.title(title)), area);
}

fn log(view: &View, frame: &mut Frame, area: Rect) {
    let (title, lines) = match &view.log {
        Some((of, lines)) => (format!(" log of {} ", clean(&of.name)), lines.as_slice()),
        None => (" log ".to_owned(), [].as_slice()),
    };
    // The end is what is wanted; one row is the title's.
    let rows = usize::from(area.height.saturating_sub(1));
    let shown = lines.iter().skip(lines.len().saturating_sub(rows)).map(|line| Line::from(clean(line)));
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()).block(block), area);
}

fn clean(text: &str) -> String {
    text.replace(char::is_control, " ")
}
