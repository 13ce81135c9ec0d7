//! The reservations of this process that are not settled, each in a few bytes, and their numbers.
//!
//! The entry of a reservation is the right to settle it: it is taken out once. It stays for as long
//! again after it has lapsed, so that a late commit is settled once as well.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::id::{LimitPlace, Part, ReservationId};
use super::messages::Outcome;
use crate::rules::amount::MAX_ITEMS;
use crate::serve::messages::{DescriptorEntry, RateLimitDescriptor, RateLimitRequest};

/// The parts of the table, so that threads do not wait for each other.
const SHARDS: u64 = 64;
/// The bytes of an entry whose amount stays charged.
const BYTES: usize = 72;
/// The most bytes of all requests that are kept, for amounts that go back.
pub(in crate::serve) const MOST_KEPT: usize = 256 << 20;

type Shard = HashMap<u64, Unsettled, BuildHasherDefault<NumberHash>>;

/// A hasher for the numbers of this process, which no client chooses.
#[derive(Default)]
pub(super) struct NumberHash(u64);

impl Hasher for NumberHash {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, number: u64) {
        // An odd number without a pattern.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The reservations of this process.
pub(in crate::serve) struct Reservations {
    /// A number of this process. Replicas do not share one.
    pub(super) process: u64,
    next: AtomicU64,
    shards: [Mutex<Shard>; SHARDS as usize],
    /// All entries, and those about to be made.
    held: AtomicUsize,
    /// The bytes of all requests that are kept.
    kept: Arc<AtomicUsize>,
    lapsing: AtomicUsize,
    made: AtomicU64,
    refused: AtomicU64,
    without_room: AtomicU64,
    lapsed: AtomicU64,
    /// By [`Outcome::NAMES`].
    commits: [AtomicU64; Outcome::NAMES.len()],
}

/// A reservation that is not settled.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// The time at which it lapses, in milliseconds since 1970, and its length.
    lapses_ms: u64,
    ttl_ms: u64,
    pub(super) state: OpenState,
}

/// The state of a reservation, and what its lapse does.
#[derive(Debug)]
pub(super) enum OpenState {
    /// The lapse leaves the amount charged.
    Stays,
    /// The lapse gives the amount back.
    GoesBack(Box<Lapsing>),
    /// It has lapsed, and stays charged.
    Lapsed,
    /// It has lapsed, and its amount went back.
    Released,
}

/// A reservation whose amount goes back, with the request that is needed for it.
#[derive(Debug)]
pub(super) struct Lapsing {
    pub(super) id: ReservationId,
    pub(super) request: RateLimitRequest,
    _bytes: Kept,
}

/// The room of a request that is kept, which is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Kept {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Relaxed);
    }
}

/// A place for a reservation, which is free again unless it is used.
pub(in crate::serve) struct HeldPlace<'a> {
    of: &'a Reservations,
    is_used: bool,
    bytes: Kept,
}

impl Drop for HeldPlace<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.of.held.fetch_sub(1, Relaxed);
        }
    }
}

/// Returns the bound on open reservations, as the start tells it.
pub(in crate::serve) fn bound_of_reservations(most: usize) -> String {
    let mebibytes = most.saturating_mul(BYTES).div_ceil(1 << 20);
    let kept = MOST_KEPT >> 20;
    format!(
        "at most {most} reservations are open, in some {mebibytes} MiB, and with `release` their requests in {kept} more"
    )
}

impl Default for Reservations {
    fn default() -> Reservations {
        Reservations {
            process: RandomState::new().hash_one(std::process::id()),
            next: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            held: AtomicUsize::new(0),
            kept: Arc::default(),
            lapsing: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            without_room: AtomicU64::new(0),
            lapsed: AtomicU64::new(0),
            commits: Default::default(),
        }
    }
}

impl Reservations {
    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        self.shards[(number % SHARDS) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place with room for the bytes of a request, unless as many are held.
    pub(in crate::serve) fn place(&self, most: usize, bytes: usize) -> Option<HeldPlace<'_>> {
        // Counted first, so that no two calls take the last one.
        let is_free = self.held.fetch_add(1, Relaxed) < most;
        let has_room = self.kept.fetch_add(bytes, Relaxed).saturating_add(bytes) <= MOST_KEPT;
        let bytes = Kept { of: self.kept.clone(), bytes };
        let place = HeldPlace { of: self, is_used: false, bytes };
        (is_free && has_room).then_some(place)
    }

    /// Returns the number of a new reservation.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Returns whether this process has made a reservation of that number.
    pub(super) fn has_made(&self, number: u64) -> bool {
        number < self.next.load(Relaxed)
    }

    /// Opens a reservation, with its request if its amount is to go back.
    pub(super) fn open(&self, mut place: HeldPlace<'_>, id: ReservationId, request: RateLimitRequest) {
        place.is_used = true;
        self.made.fetch_add(1, Relaxed);
        let (lapses_ms, ttl_ms, number) = (id.lapses_us() / 1_000, id.ttl_ms, id.number);
        let state = match id.is_released {
            false => OpenState::Stays,
            true => {
                let free = Kept { of: self.kept.clone(), bytes: 0 };
                let bytes = std::mem::replace(&mut place.bytes, free);
                OpenState::GoesBack(Box::new(Lapsing { id, request, _bytes: bytes }))
            }
        };
        self.shard(number).insert(number, Unsettled { lapses_ms, ttl_ms, state });
    }

    /// Takes a reservation out, to settle it. Only one caller gets it.
    pub(super) fn take(&self, number: u64) -> Option<Unsettled> {
        let open = self.shard(number).remove(&number)?;
        self.held.fetch_sub(1, Relaxed);
        if open.has_lapsed() {
            self.lapsing.fetch_sub(1, Relaxed);
        }
        Some(open)
    }

    /// Returns whether a reservation is there.
    pub(super) fn holds(&self, number: u64) -> bool {
        self.shard(number).contains_key(&number)
    }

    /// Lapses the reservations whose time is over at `now_ms`, and returns those whose amounts go
    /// back. Entries that no commit needs any more are forgotten.
    pub(super) fn lapse(&self, now_ms: u64) -> Vec<Lapsing> {
        let mut back = Vec::new();
        for shard in 0..SHARDS {
            let mut shard = self.shard(shard);
            shard.retain(|_, open| {
                if now_ms < open.lapses_ms {
                    return true;
                }
                if !open.has_lapsed() {
                    let state = std::mem::replace(&mut open.state, OpenState::Lapsed);
                    match state {
                        OpenState::GoesBack(lapsing) => {
                            open.state = OpenState::Released;
                            back.push(*lapsing);
                        }
                        _ => self.count_lapse(),
                    }
                    self.lapsing.fetch_add(1, Relaxed);
                }
                let is_kept = now_ms < open.lapses_ms.saturating_add(open.ttl_ms);
                if !is_kept {
                    self.held.fetch_sub(1, Relaxed);
                    self.lapsing.fetch_sub(1, Relaxed);
                }
                is_kept
            });
            if shard.capacity() > 4 * shard.len() + 64 {
                shard.shrink_to_fit();
            }
        }
        back
    }

    /// Notes that the amount of a reservation has still to go back: the store did not answer.
    pub(super) fn lapse_again(&self, lapsing: Lapsing) {
        if let Some(open) = self.shard(lapsing.id.number).get_mut(&lapsing.id.number)
            && matches!(open.state, OpenState::Released)
        {
            open.state = OpenState::GoesBack(Box::new(lapsing));
            self.lapsing.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a reservation that has lapsed. One whose amount goes back has when that is done.
    pub(super) fn count_lapse(&self) {
        self.lapsed.fetch_add(1, Relaxed);
    }

    /// Counts a refusal, for want of room or by a limit.
    pub(super) fn refuse(&self, has_room: bool) {
        let count = if has_room { &self.refused } else { &self.without_room };
        if count.fetch_add(1, Relaxed) == 0 && !has_room {
            tracing::warn!(
                "{} reservations are open, with {} bytes of requests, as many as there may be: further ones are \
                 refused",
                self.held.load(Relaxed),
                self.kept.load(Relaxed)
            );
        }
    }

    pub(super) fn committed(&self, outcome: Outcome) {
        if let Some(index) = Outcome::NAMES.iter().position(|(known, _)| *known == outcome) {
            self.commits[index].fetch_add(1, Relaxed);
        }
    }

    /// Returns the reservations that are open.
    pub(in crate::serve) fn open_now(&self) -> usize {
        self.held.load(Relaxed).saturating_sub(self.lapsing.load(Relaxed))
    }

    /// Returns the bytes of all requests that are kept.
    #[cfg(test)]
    pub(in crate::serve) fn kept(&self) -> usize {
        self.kept.load(Relaxed)
    }

    /// Returns the bytes of all entries.
    #[cfg(test)]
    pub(in crate::serve) fn bytes(&self) -> usize {
        // The map fills seven of eight places, each with a byte beside its entry.
        let place = size_of::<(u64, Unsettled)>() + 1;
        (0..SHARDS).map(|shard| (self.shard(shard).capacity() * 8 / 7 + 16) * place).sum()
    }

    /// Returns the counters in the text format of Prometheus.
    pub(in crate::serve) fn prometheus(&self) -> String {
        let mut text = String::new();
        let name = "tollgate_serve_reservations_total";
        let _ = writeln!(text, "# TYPE {name} counter");
        for (outcome, count) in
            [("made", &self.made), ("refused", &self.refused), ("no_room", &self.without_room)]
        {
            let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {}", count.load(Relaxed));
        }
        let name = "tollgate_serve_commits_total";
        let _ = writeln!(text, "# TYPE {name} counter");
        for ((_, outcome), count) in Outcome::NAMES.iter().zip(&self.commits) {
            let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {}", count.load(Relaxed));
        }
        let (lapsed, open) = ("tollgate_serve_reservations_lapsed_total", "tollgate_serve_reservations_open");
        let _ = writeln!(text, "# TYPE {lapsed} counter\n{lapsed} {}", self.lapsed.load(Relaxed));
        let _ = writeln!(text, "# TYPE {open} gauge\n{open} {}", self.open_now());
        text
    }
}

/// Returns the bytes of a request that is kept, with the parts of its id, or more.
pub(super) fn bytes_of(request: &RateLimitRequest) -> usize {
    let of_text =
        |entry: &DescriptorEntry| size_of_val(entry) + entry.key.capacity() + entry.value.capacity();
    let of_parts = MAX_ITEMS * size_of::<(LimitPlace, Part)>();
    let of = |each: &RateLimitDescriptor| {
        size_of_val(each) + of_parts + each.entries.iter().map(of_text).sum::<usize>()
    };
    size_of::<Lapsing>() + request.domain.capacity() + request.descriptors.iter().map(of).sum::<usize>()
}

impl Unsettled {
    fn has_lapsed(&self) -> bool {
        matches!(self.state, OpenState::Lapsed | OpenState::Released)
    }
}
