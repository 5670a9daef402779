//! Task classes: pods that scheduling can't tell apart, interned by everything it reads of them.
//! A class lives while a pod or a shape refers to it; `generation` tells caches that an id was given out again.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use crate::facts::{PodTemplate, Shared};
use crate::ids::ClassId;
use crate::resource_dims::{CPU, Demand, Dims, MEMORY, PODS};

/// What Kubernetes' scoring counts for a pod that asks for no cpu: 100 milli-cores.
const SCORED_CPU_MILLI: i64 = 100;
/// And for one that asks for no memory: 200 MiB.
const SCORED_MEMORY_BYTES: i64 = 200 << 20;

/// Pods that scheduling can't tell apart.
#[derive(Debug)]
pub struct ClassRow {
    pub(crate) template: Shared<PodTemplate>,
    /// The requests, with one of `pods`.
    pub(crate) demand: Demand,
    /// cpu and memory as scoring counts them.
    pub(crate) scored: [i64; 2],
    pub(crate) generation: u64,
    refs: u32,
}

impl ClassRow {
    /// The same class with another template, for a trial. It needs a `generation` of its own. Nothing if it asks for
    /// what no dimension is known of.
    pub(crate) fn varied(&self, template: PodTemplate, dims: &Dims, generation: u64) -> Option<Self> {
        let known = |(name, amount): (&String, &i64)| Some((dims.lookup(name)?, *amount));
        let asked = template.requests.iter().filter(|(_, amount)| **amount > 0);
        let mut parts = asked.map(known).collect::<Option<SmallVec<[_; 4]>>>()?;
        parts.push((PODS, 1));
        parts.sort_unstable_by_key(|(dim, _)| *dim);
        let demand = Demand(parts);
        let scored = scored(&demand);
        Some(Self { template: template.into(), demand, scored, generation, refs: self.refs })
    }
}

fn scored(demand: &Demand) -> [i64; 2] {
    let or = |amount: i64, default| if amount > 0 { amount } else { default };
    [or(demand.get(CPU), SCORED_CPU_MILLI), or(demand.get(MEMORY), SCORED_MEMORY_BYTES)]
}

#[derive(Debug, Default)]
pub(crate) struct Classes {
    rows: Vec<Option<ClassRow>>,
    free: Vec<ClassId>,
    by_hash: FxHashMap<u64, SmallVec<[ClassId; 1]>>,
    /// By where their templates are: one that comes again need not be read again.
    by_address: FxHashMap<usize, ClassId>,
    generations: u64,
}

impl Classes {
    pub(crate) fn row(&self, class: ClassId) -> &ClassRow {
        self.rows[class.index()].as_ref().expect("a class is held by those who name it")
    }

    /// Those that are alive.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &ClassRow> {
        self.rows.iter().flatten()
    }

    /// The class of `template`, with one more reference; true if it is new.
    pub(crate) fn acquire(&mut self, template: &Shared<PodTemplate>, dims: &mut Dims) -> (ClassId, bool) {
        if let Some(id) = self.by_address.get(&template.address()).copied() {
            self.hold(id);
            return (id, false);
        }
        let hash = FxBuildHasher.hash_one(template);
        let known =
            self.by_hash.get(&hash).into_iter().flatten().copied().find(|id| self.row(*id).template == *template);
        if let Some(id) = known {
            self.hold(id);
            return (id, false);
        }
        let mut requests = template.requests.clone();
        requests.insert("pods".to_owned(), 1);
        let demand = dims.demand(&requests);
        let scored = scored(&demand);
        debug_assert!(demand.get(PODS) == 1);
        self.generations += 1;
        let row = ClassRow { template: template.clone(), demand, scored, generation: self.generations, refs: 1 };
        let id = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            ClassId::from(self.rows.len() - 1)
        });
        self.rows[id.index()] = Some(row);
        self.by_hash.entry(hash).or_default().push(id);
        self.by_address.insert(template.address(), id);
        (id, true)
    }

    /// Puts another row in the place of a class, for a trial, and gives back what was there. What counts the class's pods
    /// is not told: those that are placed must not move meanwhile.
    pub(crate) fn swap(&mut self, class: ClassId, row: ClassRow) -> ClassRow {
        self.rows[class.index()].replace(row).expect("a class is held by those who name it")
    }

    /// One more reference to a class that is alive.
    pub(crate) fn hold(&mut self, class: ClassId) {
        let row = self.rows[class.index()].as_mut().expect("a class is held by those who name it");
        row.refs += 1;
    }

    /// One reference less; the last one frees the class, and says so.
    pub(crate) fn release(&mut self, class: ClassId) -> bool {
        let row = self.rows[class.index()].as_mut().expect("a class is held by those who name it");
        row.refs -= 1;
        if row.refs > 0 {
            return false;
        }
        let hash = FxBuildHasher.hash_one(&row.template);
        self.by_address.remove(&row.template.address());
        if let Some(ids) = self.by_hash.get_mut(&hash) {
            ids.retain(|id| *id != class);
            if ids.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        self.rows[class.index()] = None;
        self.free.push(class);
        true
    }
}

crate::save::saved! {
    ClassRow { template, demand, scored, generation, refs };
    Classes { rows, free, generations } except {
        by_hash: {
            let rows: &Vec<Option<ClassRow>> = &rows;
            by_hash(rows)
        },
        by_address: {
            let rows: &Vec<Option<ClassRow>> = &rows;
            by_address(rows)
        },
    };
}

/// The classes by the hash of their templates, as `acquire` puts them.
fn by_hash(rows: &[Option<ClassRow>]) -> FxHashMap<u64, SmallVec<[ClassId; 1]>> {
    let mut by_hash: FxHashMap<u64, SmallVec<[ClassId; 1]>> = FxHashMap::default();
    for (id, row) in rows.iter().enumerate() {
        if let Some(row) = row {
            by_hash.entry(FxBuildHasher.hash_one(&row.template)).or_default().push(ClassId::from(id));
        }
    }
    by_hash
}

/// The classes by where their templates are.
fn by_address(rows: &[Option<ClassRow>]) -> FxHashMap<usize, ClassId> {
    let rows = rows.iter().enumerate();
    rows.filter_map(|(id, row)| Some((row.as_ref()?.template.address(), ClassId::from(id)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_templates_share_a_class_until_the_last_leaves() {
        let (mut classes, mut dims) = (Classes::default(), Dims::new());
        let template =
            |cpu| Shared::from(PodTemplate { requests: [("cpu".to_owned(), cpu)].into(), ..PodTemplate::default() });
        let one = classes.acquire(&template(1000), &mut dims).0;
        assert_eq!(classes.acquire(&template(1000), &mut dims), (one, false));
        let other = classes.acquire(&template(2000), &mut dims).0;
        assert_ne!(one, other);
        let generation = classes.row(one).generation;
        assert!(!classes.release(one));
        assert!(classes.release(one));
        let again = classes.acquire(&template(3000), &mut dims).0;
        assert_eq!(again, one, "the freed id is used again");
        assert_ne!(classes.row(again).generation, generation);
    }
}
