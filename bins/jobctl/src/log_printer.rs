//! Pieces of logs as they are printed: with the pod's name in front where there are several pods, else as they come.
//!
//! Invariant: what one pod or container wrote stands on no line with what another one did.

use pumice_jobs::job::JobRef;
use pumice_jobs::logs::{LogPiece, Pieces};

/// Makes text of pieces.
pub struct LogPrinter {
    job: JobRef,
    pieces: Pieces,
    prefixed: bool,
    /// Who wrote last, where that was no whole line.
    open: Option<(String, String)>,
}

impl LogPrinter {
    /// For pieces that are asked for as [`LogPrinter::pieces`] says.
    pub fn new(job: &JobRef, several: bool, prefixed: bool) -> Self {
        let pieces = if several || prefixed { Pieces::Lines } else { Pieces::Bytes };
        LogPrinter { job: job.clone(), pieces, prefixed, open: None }
    }

    /// How the pieces must be given.
    pub fn pieces(&self) -> Pieces {
        self.pieces
    }

    /// The text of a piece.
    pub fn text(&mut self, piece: &LogPiece) -> Vec<u8> {
        let mut text = Vec::with_capacity(piece.text.len() + 1);
        match self.pieces {
            Pieces::Lines => {
                if self.prefixed {
                    text.extend_from_slice(prefix(&self.job, piece).as_bytes());
                }
                text.extend_from_slice(&piece.text);
                text.push(b'\n');
            }
            Pieces::Bytes => {
                let open = self.open.take();
                if open.is_some_and(|(pod, container)| (pod, container) != (piece.pod.clone(), piece.container.clone()))
                {
                    text.push(b'\n');
                }
                text.extend_from_slice(&piece.text);
                let ended = piece.text.last().is_none_or(|byte| *byte == b'\n');
                self.open = if ended { None } else { Some((piece.pod.clone(), piece.container.clone())) };
            }
        }
        text
    }
}

/// The front of a line of one of several pods: its name without the job's.
pub fn prefix(job: &JobRef, piece: &LogPiece) -> String {
    let pod = piece.pod.strip_prefix(&format!("{}-", job.name)).unwrap_or(&piece.pod);
    format!("[{pod}] ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(several: bool, prefixed: bool, pieces: &[(&str, &str)]) -> String {
        let job = JobRef { namespace: "n".into(), name: "j".into() };
        let mut printer = LogPrinter::new(&job, several, prefixed);
        let piece = |(pod, text): &(&str, &str)| LogPiece {
            pod: (*pod).to_owned(),
            container: "c".to_owned(),
            text: text.as_bytes().to_vec(),
        };
        let text: Vec<u8> = pieces.iter().flat_map(|one| printer.text(&piece(one))).collect();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn several_pods_are_told_apart_and_one_is_shown_as_it_writes() {
        for (several, prefixed, pieces, text) in [
            (true, true, &[("j-t-0", "a"), ("j-t-1", "b")][..], "[t-0] a\n[t-1] b\n"),
            (true, false, &[("j-t-0", "a"), ("j-t-1", "b")], "a\nb\n"),
            (false, true, &[("j-t-0", "a")], "[t-0] a\n"),
            (true, true, &[("other", "a")], "[other] a\n"),
            (false, false, &[("j-t-0", "\r 10%"), ("j-t-0", "\r100%\n"), ("j-t-0", "x")], "\r 10%\r100%\nx"),
            // The pod was made again in the middle of a line.
            (false, false, &[("j-t-0", "a"), ("j-t-1", "b\n"), ("j-t-0", "c")], "a\nb\nc"),
        ] {
            assert_eq!(printed(several, prefixed, pieces), text, "{pieces:?}");
        }
    }
}
