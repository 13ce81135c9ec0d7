//! The sums of the units of a line's callers, by their slots: a Fenwick tree.

/// Sums of numbers in order, of which one is added at the end or taken to 0. Each question takes a
/// number of steps that is logarithmic in the numbers.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    numbers: Vec<u64>,
    /// At `n - 1` the sum of the numbers up to the `n`th: as many of them as the lowest bit of `n`.
    tree: Vec<u64>,
}

/// Returns the lowest bit of a number.
fn low_bit(n: usize) -> usize {
    n & n.wrapping_neg()
}

impl Sums {
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn of(&self, slot: usize) -> u64 {
        self.numbers[slot]
    }

    /// Adds a number at the end.
    pub(crate) fn push(&mut self, units: u64) {
        let n = self.tree.len() + 1;
        let below = self.before(n - 1) - self.before(n - low_bit(n));
        self.numbers.push(units);
        self.tree.push(below + units);
    }

    /// Takes the number of a slot to 0, and returns it.
    pub(crate) fn take(&mut self, slot: usize) -> u64 {
        let units = std::mem::take(&mut self.numbers[slot]);
        let mut n = slot + 1;
        while let Some(sum) = self.tree.get_mut(n - 1) {
            visit();
            *sum -= units;
            n += low_bit(n);
        }
        units
    }

    /// Drops each number that is 0.
    pub(super) fn drop_zeros(&mut self) {
        let numbers = std::mem::take(self).numbers;
        numbers.into_iter().filter(|number| *number > 0).for_each(|number| self.push(number));
    }

    /// Returns the sum of the first `count` numbers.
    pub(crate) fn before(&self, count: usize) -> u64 {
        let (mut n, mut sum) = (count, 0);
        while n > 0 {
            visit();
            sum += self.tree[n - 1];
            n -= low_bit(n);
        }
        sum
    }

    /// Returns the largest count of first numbers whose sum is at most `sum`.
    pub(crate) fn reach(&self, sum: u64) -> usize {
        let mut step = self.tree.len().checked_ilog2().map_or(0, |bits| 1 << bits);
        let (mut count, mut left) = (0, sum);
        while step > 0 {
            visit();
            if let Some(&more) = self.tree.get(count + step - 1)
                && more <= left
            {
                count += step;
                left -= more;
            }
            step /= 2;
        }
        count
    }
}

/// Counts a step of a line's structure, for tests.
#[inline(always)]
pub(super) fn visit() {
    #[cfg(all(test, not(any(loom, shuttle))))]
    VISITS.with(|visits| visits.set(visits.get() + 1));
}

#[cfg(all(test, not(any(loom, shuttle))))]
thread_local! {
    /// Steps of this thread.
    pub(crate) static VISITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
