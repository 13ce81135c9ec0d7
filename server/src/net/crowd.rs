//! Connections up to a number. For one more, the connection that was idle for longest is closed.

use std::collections::BTreeMap;
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

/// The connections of a listener.
pub(crate) struct Crowd {
    state: Mutex<Members>,
    /// A connection has left.
    left: Notify,
}

struct Members {
    most: usize,
    /// By their numbers: a newer one has a greater number.
    members: BTreeMap<u64, Arc<Activity>>,
}

/// A place of a connection. A drop gives it back.
pub(crate) struct Member {
    crowd: Arc<Crowd>,
    number: u64,
    pub(crate) activity: Arc<Activity>,
    /// The place at the thread that drives the connection.
    pub(crate) seat: Option<Seat>,
}

/// The activity of a connection.
pub(crate) struct Activity {
    start: Instant,
    /// Requests under way.
    under_way: AtomicUsize,
    /// Nanoseconds from `start` to the end of the last request.
    last: AtomicU64,
    /// Nanoseconds from `start` to the first look at a head that is not whole yet, [`BEGUN`] before
    /// that look, or 0.
    head: AtomicU64,
    has_asked: AtomicBool,
    /// Whether requests overlap. Other bytes than heads are read then.
    pub(crate) is_multiplexed: AtomicBool,
    /// Whether it is to leave.
    dismissed: AtomicBool,
    dismissal: Notify,
}

/// A request of a connection. The connection is not idle until this value is dropped.
pub(crate) struct Busy(Arc<Activity>);

impl Crowd {
    pub(crate) fn new(most: usize) -> Arc<Crowd> {
        let state = Mutex::new(Members { most, members: BTreeMap::new() });
        Arc::new(Crowd { state, left: Notify::new() })
    }

    /// Changes the number. Surplus connections stay, and none enters before they have left.
    pub(crate) fn set_most(&self, most: usize) {
        self.state().most = most;
    }

    /// Returns the number of connections, and the most that there may be.
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.state();
        (state.members.len(), state.most)
    }

    /// Returns a place, if one is free.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Member> {
        let mut state = self.state();
        if state.members.len() >= state.most {
            return None;
        }
        let number = state.members.last_key_value().map_or(0, |(last, _)| last + 1);
        let activity = Arc::new(Activity::new());
        state.members.insert(number, activity.clone());
        Some(Member { crowd: self.clone(), number, activity, seat: None })
    }

    /// Waits for a place. While none is free, the connection that was idle for longest is asked to
    /// leave, and the next one if it is not gone soon.
    pub(crate) async fn enter(self: &Arc<Self>) -> Member {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            // From here on, no connection leaves unnoticed.
            left.as_mut().enable();
            if let Some(member) = self.try_enter() {
                return member;
            }
            self.dismiss_one();
            let _ = timeout(AGAIN, left).await;
        }
    }

    /// Asks the connection to leave that was idle for longest, of those that were not asked yet.
    fn dismiss_one(&self) {
        let (state, now) = (self.state(), Instant::now());
        let here = state.members.values().rev().filter(|member| !member.dismissed.load(Relaxed));
        // The last of several, which is the oldest one.
        let longest = here.max_by_key(|member| member.idle_at(now));
        if let Some(member) = longest.filter(|member| !member.idle_at(now).is_zero()) {
            member.dismissed.store(true, Relaxed);
            member.dismissal.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, Members> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.state().members.remove(&self.number);
        self.crowd.left.notify_waiters();
    }
}

impl Activity {
    pub(crate) fn new() -> Activity {
        Activity {
            start: Instant::now(),
            under_way: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            head: AtomicU64::new(0),
            has_asked: AtomicBool::new(false),
            is_multiplexed: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            dismissal: Notify::new(),
        }
    }

    /// Notes the begin of a request.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Relaxed);
        self.has_asked.store(true, Relaxed);
        self.head.store(0, Relaxed);
        Busy(self.clone())
    }

    /// Notes that the client may begin to ask from now on.
    pub(crate) fn touch(&self) {
        self.head.store(0, Relaxed);
        self.last.store(self.nanos(), Relaxed);
    }

    /// Notes bytes from the client.
    pub(crate) fn note_read(&self) {
        if self.under_way.load(Relaxed) == 0 && self.head.load(Relaxed) == 0 {
            self.head.store(BEGUN, Relaxed);
        }
    }

    /// Returns whether a head takes longer than it may, or a connection between two requests is
    /// silent for longer than it may be. The time of a head begins with the first look at it.
    pub(crate) fn is_late(&self, head: Duration, keep_alive: Duration) -> bool {
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
    pub(crate) async fn dismissed(&self) {
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
            let member = crowd.enter().await;
            activities.push(member.activity.clone());
            tasks.push(connection(member));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // The first is busy, and the second has just been.
        let busy = activities[0].busy();
        drop(activities[1].busy());
        tokio::time::advance(Duration::from_secs(1)).await;
        let newcomer = crowd.enter().await;
        assert_eq!([0, 1, 2].map(|at| tasks[at].is_finished()), [false, false, true]);
        let _another = crowd.enter().await;
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
        let deaf = crowd.enter().await;
        let leaves = connection(crowd.enter().await);
        tokio::time::advance(Duration::from_secs(1)).await;
        let start = Instant::now();
        let newcomer = crowd.enter().await;
        assert!(start.elapsed() <= AGAIN * 2, "{:?}", start.elapsed());
        assert!(leaves.is_finished());
        drop((deaf, newcomer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_waits_while_all_are_busy_and_after_a_change_to_fewer() {
        let crowd = Crowd::new(2);
        let members = [crowd.enter().await, crowd.enter().await];
        let busy = members.each_ref().map(|member| member.activity.busy());
        let tasks = members.map(connection);
        let patience = Duration::from_secs(3_600);
        assert!(timeout(patience, crowd.enter()).await.is_err());
        assert!(tasks.iter().all(|task| !task.is_finished()));
        drop(busy);
        crowd.set_most(1);
        tokio::time::advance(Duration::from_secs(1)).await;
        let only = timeout(patience, crowd.enter()).await.expect("both were idle");
        assert!(tasks.iter().all(|task| task.is_finished()));
        drop(only);
    }
}
