//! A program without what no call of some comes to.
//!
//! Invariant: each of those calls has the decision that the whole program has for it. What is not understood of a program is taken to go
//! both ways.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{BpfProgram, sock_filter};

use super::super::{RETURN, instruction};
use super::{IF_AT_LEAST, IF_EQUAL, JUMP, LOAD, NUMBER, PROCESSOR};

const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
/// What all conditions have in common, and no other instruction has.
const CLASS: u32 = 0x07;

/// Calls whose numbers are in a row, on some processors; each from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call {
    pub numbers: (u32, u32),
    pub processors: (u32, u32),
}

/// Where a call comes to in a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    at: usize,
    call: Call,
    /// What was loaded last.
    loaded: Loaded,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loaded {
    Number,
    Processor,
    Unknown,
}

/// Which ways calls take at a condition: not at all, when it holds, when it doesn't.
#[derive(Default, Clone, Copy)]
struct Ways {
    reached: bool,
    holds: bool,
    fails: bool,
}

/// The program for these calls alone; none where it leads out of itself.
pub(super) fn to_calls(program: &BpfProgram, calls: &[Call]) -> Option<BpfProgram> {
    let ways = ways(program, calls)?;
    build(program, &ways)
}

fn ways(program: &BpfProgram, calls: &[Call]) -> Option<Vec<Ways>> {
    let mut ways = vec![Ways::default(); program.len()];
    let mut states: Vec<State> =
        calls.iter().map(|call| State { at: 0, call: *call, loaded: Loaded::Unknown }).collect();
    let mut seen = BTreeSet::new();
    while let Some(state) = states.pop() {
        if !seen.insert(state) {
            continue;
        }
        let State { at, call, loaded } = state;
        let sock_filter { code, jt, jf, k } = program.get(at)?;
        let way = ways.get_mut(at)?;
        way.reached = true;
        let code = u32::from(*code);
        let next = at + 1;
        if code == RETURN {
            continue;
        }
        if code == JUMP {
            states.push(State { at: next + usize::try_from(*k).ok()?, call, loaded });
            continue;
        }
        if code & CLASS != libc::BPF_JMP {
            let loaded = match (code, *k) {
                (LOAD, NUMBER) => Loaded::Number,
                (LOAD, PROCESSOR) => Loaded::Processor,
                _ => Loaded::Unknown,
            };
            states.push(State { at: next, call, loaded });
            continue;
        }
        let (holds, fails) = split(code, *k, call, loaded);
        way.holds |= !holds.is_empty();
        way.fails |= !fails.is_empty();
        let mut go_on = |calls: Vec<Call>, jump: u8| {
            states.extend(calls.into_iter().map(|call| State { at: next + usize::from(jump), call, loaded }));
        };
        go_on(holds, *jt);
        go_on(fails, *jf);
    }
    Some(ways)
}

/// Of these calls those for which a condition holds, and those for which it does not.
fn split(code: u32, k: u32, call: Call, loaded: Loaded) -> (Vec<Call>, Vec<Call>) {
    let whole = match loaded {
        Loaded::Number => call.numbers,
        Loaded::Processor => call.processors,
        Loaded::Unknown => return (vec![call], vec![call]),
    };
    let below = k.checked_sub(1).map(|last| (0, last));
    let above = k.checked_add(1).map(|first| (first, u32::MAX));
    let (holds, fails) = match code {
        IF_EQUAL => ([Some((k, k)), None], [below, above]),
        IF_AT_LEAST => ([Some((k, u32::MAX)), None], [below, None]),
        IF_GREATER => ([above, None], [Some((0, k)), None]),
        _ => return (vec![call], vec![call]),
    };
    let part = |ranges: [Option<(u32, u32)>; 2]| {
        let common = ranges.into_iter().flatten().map(|(first, last)| (first.max(whole.0), last.min(whole.1)));
        let with = |range| match loaded {
            Loaded::Processor => Call { processors: range, ..call },
            Loaded::Number | Loaded::Unknown => Call { numbers: range, ..call },
        };
        common.filter(|(first, last)| first <= last).map(with).collect()
    };
    (part(holds), part(fails))
}

/// Writes the program anew, from its end to its beginning: so it is known how far each jump is.
fn build(program: &BpfProgram, ways: &[Ways]) -> Option<BpfProgram> {
    let mut reversed = BpfProgram::new();
    // How much of the new program an instruction begins, with all that follows.
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, found) in program.iter().enumerate().rev().filter(|(at, _)| ways[*at].reached) {
        let (code, next) = (u32::from(found.code), at + 1);
        let (holds, fails) = (next + usize::from(found.jt), next + usize::from(found.jf));
        let only = match code {
            JUMP => Some(next + usize::try_from(found.k).ok()?),
            _ if code == RETURN => None,
            _ if code & CLASS != libc::BPF_JMP => None,
            _ if !ways[at].fails => Some(holds),
            _ if !ways[at].holds => Some(fails),
            _ => None,
        };
        if let Some(only) = only {
            // What goes one way is where that leads to.
            let length = *lengths.get(&only)?;
            lengths.insert(at, length);
            continue;
        }
        let written = if code == RETURN {
            found.clone()
        } else if code & CLASS != libc::BPF_JMP {
            let length = *lengths.get(&next)?;
            if length != reversed.len() {
                let jump = u32::try_from(reversed.len() - length).ok()?;
                reversed.push(instruction(JUMP, jump));
            }
            found.clone()
        } else {
            let jf = near(&mut reversed, *lengths.get(&fails)?)?;
            let before = reversed.len();
            let jt = near(&mut reversed, *lengths.get(&holds)?)?;
            let jf = u8::try_from(usize::from(jf) + reversed.len() - before).ok()?;
            sock_filter { code: found.code, jt, jf, k: found.k }
        };
        reversed.push(written);
        lengths.insert(at, reversed.len());
    }
    if lengths.get(&0) != Some(&reversed.len()) {
        let jump = u32::try_from(reversed.len() - lengths.get(&0)?).ok()?;
        reversed.push(instruction(JUMP, jump));
    }
    reversed.reverse();
    Some(reversed)
}

/// How far a condition that is written next jumps to what begins so much of the program; by way of another jump, if need be.
fn near(reversed: &mut BpfProgram, length: usize) -> Option<u8> {
    /// Room for another jump of the same condition.
    const FAR: usize = 250;
    let jump = reversed.len() - length;
    if jump <= FAR {
        return u8::try_from(jump).ok();
    }
    reversed.push(instruction(JUMP, u32::try_from(jump).ok()?));
    Some(0)
}
