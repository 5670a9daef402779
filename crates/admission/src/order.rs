//! Whether things that wait for each other can ever start.

use std::collections::BTreeMap;

/// Why an order can't be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disorder<'a> {
    /// Something waits for what there is none of.
    Undefined(&'a str),
    /// Following what is waited for comes back to where it began.
    Circle,
}

/// Checks that each of `names` can start after all those that it waits for. `O(names + targets)`, apart from the map.
pub(crate) fn check<'a, T>(names: &[&'a str], targets: impl Fn(usize) -> T) -> Result<(), Disorder<'a>>
where
    T: Iterator<Item = &'a str>,
{
    let position: BTreeMap<&str, usize> = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let mut waiting = vec![0_usize; names.len()];
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
    for (index, waits_for) in waiting.iter_mut().enumerate() {
        for name in targets(index) {
            let target = *position.get(name).ok_or(Disorder::Undefined(name))?;
            *waits_for += 1;
            waiters[target].push(index);
        }
    }
    let mut free: Vec<usize> = (0..names.len()).filter(|index| waiting[*index] == 0).collect();
    let mut started = 0;
    while let Some(index) = free.pop() {
        started += 1;
        for waiter in std::mem::take(&mut waiters[index]) {
            waiting[waiter] -= 1;
            if waiting[waiter] == 0 {
                free.push(waiter);
            }
        }
    }
    if started == names.len() { Ok(()) } else { Err(Disorder::Circle) }
}
