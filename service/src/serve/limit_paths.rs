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

/// For each level whether it has a key and a value.
type Shape = Box<[[bool; 2]]>;

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

    fn shape(&self) -> Shape {
        self.levels.iter().map(|(key, value)| [*key != ANY, *value != ANY]).collect()
    }

    /// Returns the texts that a shape has.
    fn under(&self, shape: &Shape) -> Box<[PathLevel]> {
        let of = |is_there: bool, text: u64| if is_there { text } else { ANY };
        let levels = self.levels.iter().zip(shape);
        levels.map(|((key, value), has)| (of(has[0], *key), of(has[1], *value))).collect()
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
        let left = by_shape(left.map(|(_, placed)| placed).chain(&self.gone));
        let all = by_shape(self.limits.iter().chain(&self.gone));
        let placed = |((path, home), stays): (&(Path, Option<Home>), &Option<usize>)| {
            let state = stays.map_or_else(Arc::default, |index| self.limits[index].state.clone());
            Placed { path: path.clone(), home: home.clone(), state }
        };
        let limits: Vec<Placed> = limits.iter().zip(&stays).map(placed).collect();
        let (stay, come): (Vec<_>, Vec<_>) =
            limits.iter().zip(&stays).partition(|(_, stays)| stays.is_some());
        for (limits, before) in [(come, all), (stay, left)] {
            let limits = by_shape(limits.into_iter().map(|(placed, _)| placed));
            each_meeting(&limits, &before, |Placed { path, home, state }, met| {
                let goes_on = |left: &Left<Home>| goes_on(&lists, (path, home.as_ref()), met, left);
                let left = met.homes().filter(|left| !goes_on(left));
                left.for_each(|left| state.past.put(left, home.as_ref()));
            });
        }
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

/// Limits by the shapes of their paths.
type ByShape<'a> = HashMap<Shape, Vec<&'a Placed>>;

fn by_shape<'a>(limits: impl Iterator<Item = &'a Placed>) -> ByShape<'a> {
    let mut all = ByShape::new();
    limits.for_each(|placed| all.entry(placed.path.shape()).or_default().push(placed));
    all
}

/// Calls `see` with each limit and each of the limits before that some descriptor may find as well.
/// The limits of two shapes are compared by the texts that both have.
fn each_meeting<'a>(limits: &ByShape<'a>, before: &ByShape<'a>, mut see: impl FnMut(&'a Placed, &'a Placed)) {
    for (shape, limits) in limits {
        for (other, before) in before.iter().filter(|(other, _)| other.len() == shape.len()) {
            if limits.len().min(before.len()) == 1 {
                let pairs = limits.iter().flat_map(|limit| before.iter().map(move |met| (limit, met)));
                pairs
                    .filter(|(limit, met)| limit.path.meets(&met.path))
                    .for_each(|(limit, met)| see(limit, met));
                continue;
            }
            let both: Shape = shape.iter().zip(other).map(|(a, b)| [a[0] && b[0], a[1] && b[1]]).collect();
            let mut by_texts: HashMap<_, Vec<&Placed>> = HashMap::new();
            before.iter().for_each(|met| by_texts.entry(met.path.under(&both)).or_default().push(met));
            for limit in limits {
                by_texts.get(&limit.path.under(&both)).into_iter().flatten().for_each(|met| see(limit, met));
            }
        }
    }
}
