// promise: law
//! The lines of keys that are removed.

use super::*;
use crate::keyed::in_line::bank_of;

/// The lines of a key whose entry is removed and comes back with the same ticket.
struct KeyLines {
    world: Arc<World>,
    lines: Mutex<Vec<(LineId, CallerLine)>>,
    /// The callers by number, each with its line. The first is of the bucket that is removed.
    callers: [Mutex<Option<(LineId, InLine)>>; 2],
    /// Grants of the second bucket.
    granted: Mutex<u64>,
}

impl KeyLines {
    fn with_line<T>(
        &self,
        id: LineId,
        run: impl FnOnce(&mut CallerLine, &mut WordBank<'_, UnlessRemoved<'_, &Bucket>>) -> T,
    ) -> T {
        let found = self.world.find().map(|bucket| self.world.removals().since(id.removals, bucket));
        let mut lines = locked(&self.lines);
        let index = lines.iter().position(|(other, _)| *other == id).unwrap_or_else(|| {
            lines.push((id, CallerLine::default()));
            lines.len() - 1
        });
        run(&mut lines[index].1, &mut bank_of(&self.world.engine, found, None))
    }

    fn id(&self) -> LineId {
        LineId { origin: Origin::Entry(7), removals: self.world.removals().latest(), plan: None }
    }

    fn join(&self, index: usize) {
        let id = self.id();
        let waker = Waker::noop();
        let wish = Wish { n: 1, max_wait: u64::MAX, max_waiting: usize::MAX, waker };
        match self.with_line(id, |line, bank| line.join(bank, &wish, &mut Wakes::default())) {
            Ok(Entered::Waits(waits)) => *locked(&self.callers[index]) = Some((id, waits)),
            Ok(Entered::Granted(_)) => *locked(&self.granted) += 1,
            _ => {}
        }
    }

    fn leave(&self, index: usize) {
        if let Some((id, waits)) = locked(&self.callers[index]).take() {
            self.with_line(id, |line, bank| line.leave(bank, waits.id, &mut Wakes::default()));
        }
    }

    fn look(&self, index: usize) {
        let Some((id, waits)) = *locked(&self.callers[index]) else { return };
        let (turn, _) = self
            .with_line(id, |line, bank| line.look(bank, &waits, false, Waker::noop(), &mut Wakes::default()));
        match turn {
            LineTurn::Served => *locked(&self.granted) += 1,
            // The line of the removed bucket turns its callers away.
            LineTurn::Joins | LineTurn::Behind => panic!("caller {index} stands in the line of another key"),
            _ => {}
        }
    }

    fn remove(&self) {
        if let Some(bucket) = self.world.find() {
            idle::seal(bucket, || self.world.removals().raise());
            self.world.remove_sealed();
        }
    }

    /// Takes a token of the key's next bucket.
    fn take(&self, take: Take) {
        if self.world.acquire(take).is_ok_and(|done| done.outcome.granted) {
            *locked(&self.granted) += 1;
        }
    }
}

/// A caller of the removed bucket leaves. Its place does not go back to the next bucket.
#[test]
fn a_line_serves_no_later_key_of_its_entry() {
    explore("a caller of a removed key leaves, another joins the next line", || {
        let world = World::new(1);
        assert!(world.acquire(Take::Exactly(1)).is_ok_and(|done| done.outcome.granted));
        let lines = Arc::new(KeyLines {
            world,
            lines: Mutex::new(Vec::new()),
            callers: std::array::from_fn(|_| Mutex::new(None)),
            granted: Mutex::new(0),
        });
        lines.join(0);
        lines.remove();
        lines.take(Take::Exactly(1));
        // It ends where the place of the caller in the removed bucket ended.
        lines.take(Take::Reserve(Reserve { n: 1, keep: 0, max_wait: u64::MAX }));
        run(
            &lines,
            &[
                |lines| lines.leave(0),
                |lines| lines.join(1),
                |lines| lines.world.mock.advance(Duration::from_secs(5)),
            ],
        );
        lines.world.mock.advance(Duration::from_secs(5));
        lines.look(1);
        lines.take(Take::Exactly(1));
        assert_eq!(*locked(&lines.granted), 2, "one at once, and one after 10 s");
    });
}
