//! The limits of a configuration by their paths in the files, and the meaning of a change for the
//! counts: the homes that the keys of a limit may have left.
//!
//! Two limits may have the keys of each other if some descriptor could find either. Neither wrong
//! answer is a fault: a home in vain costs a lookup. So the comparison is of hashes, by level.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use super::homes::{Home, LimitState};
use tollgate_common::past::{CountTable, Left};

/// The key and the value of a level, as hashes; [`ANY`] is that of a text with a star, or of none.
type PathLevel = (u64, u64);

const ANY: u64 = 0;

/// The path of a limit in the files.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Path {
    /// A hash of all texts.
    pub(super) own: u64,
    /// The domain with the place in a list of limits, and each level.
    pub(super) levels: Box<[PathLevel]>,
}

/// The place of a limit that is the first of its list, or no part of one.
const FIRST: u64 = 1;

impl Path {
    /// Returns the path of a limit, by the hashes of its texts.
    pub(super) fn new(
        domain: &str,
        steps: &[(&str, &str)],
        place: u32,
        hash: impl Fn(&[&str]) -> u64,
    ) -> Path {
        let level = |of: &[&str]| match of.last() {
            Some(text) if !text.is_empty() && !text.contains('*') => hash(of).max(1),
            _ => ANY,
        };
        let key_and_value = |(key, value): &(&str, &str)| match level(&[key]) {
            // A pattern of a key is one of the value as well.
            ANY => (ANY, ANY),
            known => (known, level(&[value])),
        };
        let texts: Vec<&str> =
            [domain].into_iter().chain(steps.iter().flat_map(|(key, value)| [*key, *value])).collect();
        let domain = (hash(&[domain]).max(1), FIRST + u64::from(place));
        let levels = [domain].into_iter().chain(steps.iter().map(key_and_value)).collect();
        Path { own: hash(&texts) ^ u64::from(place), levels }
    }

    /// Returns the hash of all texts, which each limit of a list has.
    fn of_list(&self) -> u64 {
        self.own ^ self.levels.first().map_or(FIRST, |(_, place)| *place).saturating_sub(FIRST)
    }

    /// Returns whether some descriptor may find either limit.
    fn meets(&self, other: &Path) -> bool {
        let is_one = |one, other| one == other || one == ANY || other == ANY;
        let mut levels = self.levels.iter().zip(&other.levels);
        self.levels.len() == other.levels.len()
            && levels.all(|(one, other)| is_one(one.0, other.0) && is_one(one.1, other.1))
    }

    /// Returns whether one list of entries finds it, and no other.
    fn is_exact(&self) -> bool {
        self.levels.iter().all(|(_, value)| *value != ANY)
    }

    /// Returns the first level below the domain.
    fn first(&self) -> PathLevel {
        self.levels.get(1).copied().unwrap_or_default()
    }
}

/// A limit at its path.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) path: Path,
    /// `None` for a limit that counts nothing.
    pub(super) home: Option<Home>,
    pub(super) state: Arc<LimitState>,
}

impl Placed {
    /// Returns the homes in which keys of this limit may have counts.
    fn homes(&self) -> impl Iterator<Item = Left<Home>> {
        self.state.past.left().into_iter().chain(self.home.clone().map(Left::of))
    }

    fn is_at(&self, path: &Path, home: Option<&Home>) -> bool {
        self.path == *path
            && match (&self.home, home) {
                (Some(one), Some(other)) => one.is(other),
                (one, other) => one.is_none() && other.is_none(),
            }
    }
}

/// The limits of the last configuration in their order, and those of earlier ones while their
/// counts are not over.
#[derive(Default)]
pub(super) struct LimitPaths {
    limits: Vec<Placed>,
    gone: Vec<Placed>,
}

impl LimitPaths {
    pub(super) fn of_saved(limits: Vec<Placed>) -> LimitPaths {
        LimitPaths { limits, gone: Vec::new() }
    }

    /// Replaces the limits by those of another configuration, and returns the state of each.
    pub(super) fn replace(&mut self, limits: Vec<(Path, Option<Home>)>) -> Vec<Arc<LimitState>> {
        let before: HashMap<u64, usize> =
            self.limits.iter().enumerate().map(|(index, placed)| (placed.path.own, index)).collect();
        let mut stays: Vec<Option<usize>> = limits
            .iter()
            .map(|(path, home)| {
                let known = before.get(&path.own).copied();
                known.filter(|index| self.limits[*index].is_at(path, home.as_ref()))
            })
            .collect();
        // The first pattern that matches decides, so another order is another owner of keys.
        if !stays.iter().flatten().is_sorted() {
            stays.fill(None);
        }
        let staying: HashSet<usize> = stays.iter().flatten().copied().collect();
        let lists = [
            homes_by_list(self.limits.iter().map(|placed| (&placed.path, placed.home.as_ref()))),
            homes_by_list(limits.iter().map(|(path, home)| (path, home.as_ref()))),
        ];
        let left = self.limits.iter().enumerate().filter(|(index, _)| !staying.contains(index));
        let left = Meeting::of(left.map(|(_, placed)| placed).chain(&self.gone));
        let all = Meeting::of(self.limits.iter().chain(&self.gone));
        let placed = |((path, home), stays): (&(Path, Option<Home>), Option<usize>)| {
            let (state, meeting) = match stays {
                Some(index) => (self.limits[index].state.clone(), &left),
                None => (Arc::default(), &all),
            };
            meeting.each(path, |met| {
                let goes_on = |left: &Left<Home>| goes_on(&lists, (path, home.as_ref()), met, left);
                let left = met.homes().filter(|left| !goes_on(left));
                left.for_each(|left| state.past.put(left, home.as_ref()));
            });
            Placed { path: path.clone(), home: home.clone(), state }
        };
        let limits: Vec<Placed> = limits.iter().zip(stays).map(placed).collect();
        let known: HashSet<u64> = limits.iter().map(|placed| placed.path.own).collect();
        let gone = self.limits.drain(..).filter(|placed| !known.contains(&placed.path.own)).map(|placed| {
            let state = LimitState::default();
            placed.homes().for_each(|left| state.past.put(left, None));
            Placed { home: None, state: Arc::new(state), ..placed }
        });
        let gone: Vec<Placed> = gone.collect();
        self.gone.retain(|placed| !known.contains(&placed.path.own));
        self.gone.extend(gone);
        self.limits = limits;
        self.forget_over();
        self.limits.iter().map(|placed| placed.state.clone()).collect()
    }

    /// Forgets the limits that are gone and whose counts are over.
    pub(super) fn forget_over(&mut self) {
        self.gone.retain(|placed| !placed.state.past.left().is_empty());
    }

    /// Calls `see` with the home and the state of each limit that counts.
    pub(super) fn each(&self, see: impl Fn(&Home, &LimitState)) {
        for Placed { home, state, .. } in &self.limits {
            if let Some(home) = home {
                see(home, state);
            }
        }
    }

    /// Returns whether keys may have left a home.
    pub(super) fn have_past(&self) -> bool {
        self.limits.iter().any(|placed| placed.state.past.is_live())
    }

    /// Returns a line for each limit: its path, its home, and those that its keys have left.
    pub(super) fn save(&self) -> String {
        let mut text = String::new();
        for placed in self.limits.iter().chain(&self.gone) {
            let _ = write!(text, "{:x}", placed.path.own);
            placed.path.levels.iter().for_each(|(key, value)| {
                let _ = write!(text, " {key:x}.{value:x}");
            });
            let home = placed.home.as_ref().map_or(String::new(), Home::name);
            let left = placed.state.past.left().into_iter().map(|left| left.home.name());
            [home].into_iter().chain(left).for_each(|name| {
                let _ = write!(text, "\t{name}");
            });
            text.push('\n');
        }
        text
    }

    /// Reads such lines. A home that is none is left out.
    pub(super) fn read(text: &str, home: impl Fn(&str) -> Option<Home>) -> LimitPaths {
        let placed = |line: &str| {
            let mut fields = line.split('\t');
            let mut path = fields.next()?.split(' ');
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let own = hex(path.next()?)?;
            let level = |text: &str| {
                let (key, value) = text.split_once('.')?;
                Some((hex(key)?, hex(value)?))
            };
            let levels = path.map(level).collect::<Option<_>>()?;
            let of = fields.next().and_then(&home);
            let state = LimitState::default();
            fields.filter_map(&home).for_each(|left| state.past.put(Left::of(left), of.as_ref()));
            Some(Placed { path: Path { own, levels }, home: of, state: Arc::new(state) })
        };
        LimitPaths::of_saved(text.lines().filter_map(placed).collect())
    }
}

/// The homes of the limits of each list.
type Lists = HashMap<u64, Vec<Home>>;

fn homes_by_list<'a>(limits: impl Iterator<Item = (&'a Path, Option<&'a Home>)>) -> Lists {
    let mut lists = Lists::new();
    for (path, home) in limits {
        lists.entry(path.of_list()).or_default().extend(home.cloned());
    }
    lists.retain(|_, homes| homes.len() > 1);
    lists
}

/// Returns whether the counts of a home that a limit meets are not its own: another limit of its
/// list goes on with them, or it goes on with those of another place. `lists` has those before and
/// after.
fn goes_on(
    [before, after]: &[Lists; 2],
    (path, home): (&Path, Option<&Home>),
    met: &Placed,
    left: &Left<Home>,
) -> bool {
    let has = |lists: &Lists, wanted: &Home| {
        lists.get(&path.of_list()).is_some_and(|homes| homes.iter().any(|home| home.is(wanted)))
    };
    let is_at_place = || met.path.own == path.own && met.home.as_ref().is_some_and(|of| of.is(&left.home));
    has(after, &left.home) || is_at_place() && home.is_some_and(|home| has(before, home))
}

/// Limits by the descriptors that find them.
struct Meeting<'a> {
    exact: HashMap<&'a [PathLevel], Vec<&'a Placed>>,
    by_first: HashMap<PathLevel, Vec<&'a Placed>>,
    open: HashMap<PathLevel, Vec<&'a Placed>>,
}

impl<'a> Meeting<'a> {
    fn of(limits: impl Iterator<Item = &'a Placed>) -> Meeting<'a> {
        let (mut exact, mut by_first, mut open) = (HashMap::new(), HashMap::new(), HashMap::new());
        for placed in limits {
            let path = &placed.path;
            by_first.entry(path.first()).or_insert_with(Vec::new).push(placed);
            match path.is_exact() {
                true => exact.entry(&*path.levels).or_insert_with(Vec::new).push(placed),
                false => open.entry(path.first()).or_insert_with(Vec::new).push(placed),
            }
        }
        Meeting { exact, by_first, open }
    }

    /// Calls `see` with each limit that a descriptor of a path may find.
    fn each(&self, path: &Path, see: impl FnMut(&'a Placed)) {
        let first = path.first();
        let firsts = [first, (first.0, ANY), (ANY, ANY)];
        let of = |by: &HashMap<PathLevel, Vec<&'a Placed>>, first: PathLevel| {
            by.get(&first).cloned().unwrap_or_default()
        };
        let mut met: Vec<&Placed> = match path.is_exact() {
            true => {
                let exact = self.exact.get(&*path.levels).cloned().unwrap_or_default();
                exact.into_iter().chain(firsts.into_iter().flat_map(|first| of(&self.open, first))).collect()
            }
            false if first.1 == ANY => self.by_first.values().flatten().copied().collect(),
            false => firsts.into_iter().flat_map(|first| of(&self.by_first, first)).collect(),
        };
        met.retain(|met| met.path.meets(path));
        met.into_iter().for_each(see);
    }
}
