//! Connections up to a number. For one more, the connection that was idle for longest is closed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::threads::Seat;

/// The time after which a newcomer looks again for an idle connection, if there was none.
const AGAIN: Duration = Duration::from_millis(50);

/// A head that has begun at an unknown time: not each request reads the clock for its head.
const BEGUN: u64 = 1;

/// Returns the number of places from which on a client waits, or gets no more: all that one may
/// have while half of all are free, and below that in proportion to the free ones.
pub fn share(most: usize, taken: usize, each: usize) -> usize {
    let (free, each) = (most.saturating_sub(taken), each.min(most));
    if free > 0 && free >= most / 2 {
        return each;
    }
    each.saturating_mul(2).saturating_mul(free).div_ceil(most.max(1)).min(each)
}

/// The connections of a listener.
pub struct Crowd {
    state: Mutex<Members>,
    /// A connection has left.
    left: Notify,
}

struct Members {
    most: usize,
    /// By their numbers: a newer one has a greater number.
    members: BTreeMap<u64, (Arc<Activity>, Owner)>,
    owners: HashMap<IpAddr, usize>,
}

/// The address that has a [`share`] of the connections, or `None` if its server bounds that.
pub type Owner = Option<IpAddr>;

/// A place of a connection. A drop gives it back.
pub struct Member {
    crowd: Arc<Crowd>,
    number: u64,
    pub activity: Arc<Activity>,
    /// The place at the thread that drives the connection.
    pub seat: Option<Seat>,
}

/// The activity of a connection.
pub struct Activity {
    start: Instant,
    /// Requests under way.
    under_way: AtomicUsize,
    /// Nanoseconds from `start` to the end of the last request.
    last: AtomicU64,
    /// Nanoseconds from `start` to the first look at a head that is not whole yet, [`BEGUN`] before
    /// that look, or 0.
    head: AtomicU64,
    has_asked: AtomicBool,
    /// Whether the last request was answered before its body was read whole.
    pub is_in_body: AtomicBool,
    /// Whether requests overlap. Other bytes than heads are read then.
    pub is_multiplexed: AtomicBool,
    /// Whether it is to leave.
    dismissed: AtomicBool,
    dismissal: Notify,
}

/// A request of a connection. The connection is not idle until this value is dropped.
pub struct Busy(Arc<Activity>);

impl Crowd {
    pub fn new(most: usize) -> Arc<Crowd> {
        let state = Mutex::new(Members { most, members: BTreeMap::new(), owners: HashMap::new() });
        Arc::new(Crowd { state, left: Notify::new() })
    }

    /// Changes the number. Surplus connections stay, and none enters before they have left.
    pub fn set_most(&self, most: usize) {
        self.state().most = most;
    }

    /// Returns the number of connections, and the most that there may be.
    pub fn size(&self) -> (usize, usize) {
        let state = self.state();
        (state.members.len(), state.most)
    }

    /// Returns a place, if one is free.
    pub fn try_enter(self: &Arc<Self>, owner: Owner) -> Option<Member> {
        let mut state = self.state();
        if state.members.len() >= state.most {
            return None;
        }
        let number = state.members.last_key_value().map_or(0, |(last, _)| last + 1);
        let activity = Arc::new(Activity::new());
        state.members.insert(number, (activity.clone(), owner));
        if let Some(owner) = owner {
            *state.owners.entry(owner).or_default() += 1;
        }
        Some(Member { crowd: self.clone(), number, activity, seat: None })
    }

    /// Waits for a place. While none is free, the connection that was idle for longest is asked to
    /// leave, and the next one if it is not gone soon. An owner with its share gets the place of an
    /// idle connection of its own, or else of an owner with more connections, or `None`.
    pub async fn enter(self: &Arc<Self>, owner: Owner) -> Option<Member> {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // From here on, no connection leaves unnoticed.
            left.as_mut().enable();
            if self.state().has_share(owner) {
                let is_asked = self.dismiss_one(|_, of| of == owner)
                    || self.dismiss_one(|state, of| state.held(of) > state.held(owner));
                if !is_asked {
                    return None;
                }
            } else if let Some(member) = self.try_enter(owner) {
                return Some(member);
            } else {
                self.dismiss_one(|_, _| true);
            }
            let _ = timeout(AGAIN, left).await;
        }
    }

    /// Asks the connection to leave that was idle for longest, of those that were not asked yet.
    /// Returns whether there is one.
    fn dismiss_one(&self, is_candidate: impl Fn(&Members, Owner) -> bool) -> bool {
        let (state, now) = (self.state(), Instant::now());
        let of_owners = state.members.values().rev().filter(|(_, owner)| is_candidate(&state, *owner));
        let here = of_owners.map(|(member, _)| member).filter(|member| !member.dismissed.load(Relaxed));
        // The last of several, which is the oldest one.
        let longest = here.max_by_key(|member| member.idle_at(now));
        let longest = longest.filter(|member| !member.idle_at(now).is_zero());
        if let Some(member) = longest {
            member.dismissed.store(true, Relaxed);
            member.dismissal.notify_one();
        }
        longest.is_some()
    }

    fn state(&self) -> MutexGuard<'_, Members> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn held(&self, owner: Owner) -> usize {
        owner.and_then(|owner| self.owners.get(&owner)).copied().unwrap_or(0)
    }

    fn has_share(&self, owner: Owner) -> bool {
        self.held(owner) >= share(self.most, self.members.len(), self.most).max(1)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.crowd.state();
        if let Some((_, Some(owner))) = state.members.remove(&self.number)
            && let Entry::Occupied(mut held) = state.owners.entry(owner)
        {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        drop(state);
        self.crowd.left.notify_waiters();
    }
}

impl Activity {
    pub fn new() -> Activity {
        Activity {
            start: Instant::now(),
            under_way: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            head: AtomicU64::new(0),
            has_asked: AtomicBool::new(false),
            is_in_body: AtomicBool::new(false),
            is_multiplexed: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            dismissal: Notify::new(),
        }
    }

    /// Notes the begin of a request.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Relaxed);
        self.has_asked.store(true, Relaxed);
        self.head.store(0, Relaxed);
        Busy(self.clone())
    }

    /// Notes that the client may begin to ask from now on.
    pub fn touch(&self) {
        self.head.store(0, Relaxed);
        self.last.store(self.nanos(), Relaxed);
    }

    /// Notes bytes from the client.
    pub fn note_read(&self) {
        if self.under_way.load(Relaxed) == 0 && self.head.load(Relaxed) == 0 {
            self.head.store(BEGUN, Relaxed);
        }
    }

    /// Returns whether a part of a head or of a body was read, and nothing behind it.
    pub fn is_sending(&self) -> bool {
        let is_in_head = !self.is_multiplexed.load(Relaxed) && self.head.load(Relaxed) != 0;
        is_in_head || self.is_in_body.load(Relaxed)
    }

    /// Returns whether a head takes longer than it may, or a connection between two requests is
    /// silent for longer than it may be. The time of a head begins with the first look at it.
    pub fn is_late(&self, head: Duration, keep_alive: Duration) -> bool {
        let idle = self.idle_at(Instant::now());
        if !self.has_asked.load(Relaxed) {
            return idle > head;
        }
        let began = if self.is_multiplexed.load(Relaxed) { 0 } else { self.head.load(Relaxed) };
        match began {
            0 => idle > keep_alive,
            BEGUN => {
                // A request may have begun meanwhile, and no head is there then.
                let _ = self.head.compare_exchange(BEGUN, self.nanos(), Relaxed, Relaxed);
                false
            }
            began => !idle.is_zero() && self.nanos().saturating_sub(began) > head.as_nanos() as u64,
        }
    }

    /// Returns the nanoseconds since `start`, which wrap after 584 years.
    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Returns the time since the last request, or 0 while one is under way.
    fn idle_at(&self, now: Instant) -> Duration {
        if self.under_way.load(Relaxed) > 0 {
            return Duration::ZERO;
        }
        (now - self.start).saturating_sub(Duration::from_nanos(self.last.load(Relaxed)))
    }

    /// Returns once the connection is to leave. A request that has begun meanwhile lets it stay.
    pub async fn dismissed(&self) {
        loop {
            self.dismissal.notified().await;
            if self.under_way.load(Relaxed) == 0 {
                return;
            }
            self.dismissed.store(false, Relaxed);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.last.store(self.0.nanos(), Relaxed);
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that leaves when it is asked to.
    fn connection(member: Member) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { member.activity.dismissed().await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_takes_the_place_of_the_longest_idle_one() {
        let crowd = Crowd::new(3);
        let mut tasks = Vec::new();
        let mut activities = Vec::new();
        for _ in 0..3 {
            let member = crowd.enter(None).await.unwrap();
            activities.push(member.activity.clone());
            tasks.push(connection(member));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The first is busy, and the second has just been.
        let busy = activities[0].busy();
        drop(activities[1].busy());
        tokio::time::advance(Duration::from_secs(1)).await;
        let newcomer = crowd.enter(None).await.unwrap();
        assert_eq!([0, 1, 2].map(|at| tasks[at].is_finished()), [false, false, true]);
        let _another = crowd.enter(None).await.unwrap();
        assert_eq!([0, 1].map(|at| tasks[at].is_finished()), [false, true]);
        drop((busy, newcomer));
        assert_eq!(crowd.size(), (2, 3));
    }

    /// A head that begins late in a silence has its whole time.
    #[tokio::test(start_paused = true)]
    async fn a_head_and_a_silence_have_times_of_their_own() {
        let (activity, second) = (Arc::new(Activity::new()), Duration::from_secs(1));
        let is_late = || activity.is_late(30 * second, 75 * second);
        tokio::time::advance(30 * second).await;
        assert!(!is_late());
        tokio::time::advance(second).await;
        assert!(is_late(), "the first head has no other time");
        activity.touch();
        drop(activity.busy());
        tokio::time::advance(74 * second).await;
        assert!(!is_late());
        activity.note_read();
        assert!(!is_late());
        tokio::time::advance(20 * second).await;
        activity.note_read();
        assert!(!is_late());
        tokio::time::advance(11 * second).await;
        assert!(is_late());
        let busy = activity.busy();
        tokio::time::advance(99 * second).await;
        assert!(!is_late());
        drop(busy);
        activity.is_multiplexed.store(true, Relaxed);
        activity.note_read();
        tokio::time::advance(75 * second).await;
        assert!(!is_late());
        tokio::time::advance(second).await;
        assert!(is_late());
    }

    /// One that was asked may be slow to leave, or not listen at all.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_leave_keeps_no_newcomer_out() {
        let crowd = Crowd::new(2);
        let deaf = crowd.enter(None).await.unwrap();
        let leaves = connection(crowd.enter(None).await.unwrap());
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        let newcomer = crowd.enter(None).await.unwrap();
        assert!(start.elapsed() <= AGAIN * 2, "{:?}", start.elapsed());
        assert!(leaves.is_finished());
        drop((deaf, newcomer));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_with_its_share_trades_with_itself_or_is_refused() {
        let (crowd, owners) = (Crowd::new(9), [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last]))));
        let mut members = Vec::new();
        while let Some(member) = crowd.enter(owners[0]).await {
            let busy = member.activity.busy();
            members.push((member, busy));
        }
        assert_eq!(members.len(), 6, "two thirds");
        let other = crowd.enter(owners[1]).await.expect("others have the rest");
        // One of its own is idle now. It has a share of none while all are taken.
        let (idle, busy) = members.remove(0);
        drop(busy);
        let leaves = connection(idle);
        tokio::time::advance(Duration::from_secs(1)).await;
        let newcomer = crowd.enter(owners[0]).await;
        assert!(leaves.is_finished() && newcomer.is_some());
        // The other has fewer, and one of the first is idle.
        let leaves = connection(newcomer.expect("it is there"));
        let second = crowd.enter(owners[1]).await.expect("it has its share");
        let busy = [&other, &second].map(|member| member.activity.busy());
        assert!(crowd.enter(owners[1]).await.is_none(), "one place is free, and two are its share");
        tokio::time::advance(Duration::from_secs(1)).await;
        let third = crowd.enter(owners[1]).await;
        assert!(leaves.is_finished() && third.is_some());
        drop((members, other, second, third, busy));
        assert!(crowd.state().owners.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_waits_while_all_are_busy_and_after_a_change_to_fewer() {
        let crowd = Crowd::new(2);
        let members = [crowd.enter(None).await.unwrap(), crowd.enter(None).await.unwrap()];
        let busy = members.each_ref().map(|member| member.activity.busy());
        let tasks = members.map(connection);
        let patience = Duration::from_secs(3_600);
        assert!(timeout(patience, crowd.enter(None)).await.is_err());
        assert!(tasks.iter().all(|task| !task.is_finished()));
        drop(busy);
        crowd.set_most(1);
        tokio::time::advance(Duration::from_secs(1)).await;
        let only = timeout(patience, crowd.enter(None)).await.unwrap().expect("both were idle");
        assert!(tasks.iter().all(|task| task.is_finished()));
        drop(only);
    }
}
