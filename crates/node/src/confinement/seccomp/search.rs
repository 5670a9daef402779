//! A program that finds most decisions by a search among the numbers of calls.
//!
//! When a filter is put into effect, the kernel runs it for every call that there is, to learn which are always allowed. A program
//! that compares with one number after the other took most of a pod's time to be filtered. It also translates the program for the
//! processor, for each pod anew: so of the program behind the search only what it is left for stays. Invariant: what is decided is
//! what the program itself decides: the search knows only what follows from the number of a call, and leaves the others to it.

mod reduced;

use std::ops::Range;

use seccompiler::{BpfProgram, sock_filter};

use super::{RETURN, instruction};
use reduced::Call;

/// Where a filter is shown the number of a call and the kind of processor.
const NUMBER: u32 = 0;
const PROCESSOR: u32 = 4;
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
/// Numbers below this are searched for.
const NUMBERS: u32 = 1024;

/// The same decisions by a search; the program as it is where it does not look at the processor.
pub(super) fn with_search(program: BpfProgram) -> BpfProgram {
    let mut pairs = program.array_windows();
    let checks = |[load, check]: &[sock_filter; 2]| {
        (*load == instruction(LOAD, PROCESSOR) && u32::from(check.code) == IF_EQUAL).then_some(check.k)
    };
    let Some(processor) = pairs.find_map(checks) else { return program };
    let runs = runs(&program, processor);
    let mut searched = vec![
        instruction(LOAD, PROCESSOR),
        sock_filter { jt: 1, ..instruction(IF_EQUAL, processor) },
        TO_PROGRAM,
        instruction(LOAD, NUMBER),
    ];
    searched.extend(tree(&runs));
    let program = reduced::to_calls(&program, &left_to_it(&runs, processor)).unwrap_or(program);
    let length = searched.len();
    for (at, found) in searched.iter_mut().enumerate().filter(|(_, found)| **found == TO_PROGRAM) {
        found.k = (length - at - 1) as u32;
    }
    searched.extend(program);
    searched
}

/// Stands for a jump to the whole program until it is known how far that is.
const TO_PROGRAM: sock_filter = sock_filter { code: JUMP as u16, jt: 0, jf: 0, k: u32::MAX };

/// Numbers in a row that have one decision; none where that depends on more.
struct Run {
    numbers: Range<u32>,
    decision: Option<u32>,
}

fn runs(program: &BpfProgram, processor: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in 0..NUMBERS {
        let decision = decision(program, number, processor);
        match runs.last_mut() {
            Some(run) if run.decision == decision => run.numbers.end = number + 1,
            _ => runs.push(Run { numbers: number..number + 1, decision }),
        }
    }
    // All that follow.
    runs.push(Run { numbers: NUMBERS..u32::MAX, decision: None });
    runs
}

/// The calls that the program has to decide on: those that the search does not know, and all of other processors.
fn left_to_it(runs: &[Run], processor: u32) -> Vec<Call> {
    let all = (0, u32::MAX);
    let undecided = runs.iter().filter(|run| run.decision.is_none());
    let undecided = undecided.map(|run| Call {
        numbers: (run.numbers.start, run.numbers.end.saturating_sub(1)),
        processors: (processor, processor),
    });
    let beyond = Call { numbers: (u32::MAX, u32::MAX), processors: (processor, processor) };
    let below = processor.checked_sub(1).map(|last| (0, last));
    let above = processor.checked_add(1).map(|first| (first, u32::MAX));
    let others = below.into_iter().chain(above).map(|processors| Call { numbers: all, processors });
    undecided.chain([beyond]).chain(others).collect()
}

/// Halves the runs until one is left.
fn tree(runs: &[Run]) -> BpfProgram {
    if let [run] = runs {
        return vec![run.decision.map_or(TO_PROGRAM, |decision| instruction(RETURN, decision))];
    }
    let (lower, upper) = runs.split_at(runs.len() / 2);
    let (first, lower, upper) = (upper.first().map_or(0, |run| run.numbers.start), tree(lower), tree(upper));
    let mut halves = match u8::try_from(lower.len()) {
        Ok(length) => vec![sock_filter { jt: length, ..instruction(IF_AT_LEAST, first) }],
        // Further than a condition can jump.
        Err(_) => vec![sock_filter { jf: 1, ..instruction(IF_AT_LEAST, first) }, instruction(JUMP, lower.len() as u32)],
    };
    halves.extend(lower);
    halves.extend(upper);
    halves
}

/// What a program says of a call by its number alone.
fn decision(program: &BpfProgram, number: u32, processor: u32) -> Option<u32> {
    let (mut at, mut loaded) = (0, None);
    loop {
        let sock_filter { code, jt, jf, k } = program.get(at)?;
        at += 1;
        let holds = match u32::from(*code) {
            LOAD => {
                loaded = Some(match *k {
                    NUMBER => number,
                    PROCESSOR => processor,
                    _ => return None,
                });
                continue;
            }
            JUMP => {
                at += usize::try_from(*k).ok()?;
                continue;
            }
            RETURN => return Some(*k),
            IF_EQUAL => loaded? == *k,
            IF_AT_LEAST => loaded? >= *k,
            _ => return None,
        };
        at += usize::from(if holds { *jt } else { *jf });
    }
}
