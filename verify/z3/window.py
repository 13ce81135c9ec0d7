# promise: no-overflow
"""Theorems of the counts in src/word/window.rs, over all levels, of words that a limit allows.

A level is the counts of a window and of the windows before it, the current one lowest. Each theorem
is refuted when one of its conditions is taken away.

    window.py             proves the theorems, and refutes each where it is broken
    window.py VECTORS     computes the steps of `windows_for_z3` in src/tests/tiny_windows.rs
"""

import sys
import time

from z3 import (
    And, BitVec, BitVecVal, Concat, Extract, If, Implies, LShR, Not, Or, SolverFor, UGE, UGT, ULE, ULT, ZeroExt, sat, simplify,
    substitute, unsat,
)

LEVEL, FIELDS, LIMIT, N = (BitVec(name, 64) for name in ("level", "fields", "limit", "n"))
SUM_BITS = 72
one, none = BitVecVal(1, 1), BitVecVal(0, 1)


def num(n):
    return BitVecVal(n, 64)


class Counts:
    """The steps of a word with `before + 1` counts of `count` bits, by the same operations."""

    def __init__(self, count, before, without=()):
        self.count, self.before, self.without = count, before, without
        self.stamp = 64 - count * (before + 1)
        self.ones = (1 << count) - 1
        self.repeated = num(sum(1 << at for at in range(0, 64, count)) % 2**64)

    def field(self, level, age):
        return LShR(level, age * self.count) & self.ones

    def fields(self, level):
        return [self.field(level, age) for age in range(self.before + 1)]

    def exact(self, level, oldest=None):
        """The sum of the counts in so many bits that none is lost."""
        fields = self.fields(level)[:oldest]
        return sum((ZeroExt(SUM_BITS - 64, field) for field in fields), BitVecVal(0, SUM_BITS))

    def sums(self, level):
        return (level << self.stamp) * self.repeated

    def sum(self, level):
        return LShR(self.sums(level), 64 - self.count)

    def sum_after(self, level, passed):
        return LShR(self.sums(level) << passed * self.count, 64 - self.count)

    def shifted(self, level, passed):
        moved = (level << self.stamp) << passed * self.count
        return level << passed * self.count if "cut" in self.without else LShR(moved, self.stamp)

    def take(self, level):
        granted = ULE(self.sum(level) + N, LIMIT)
        return granted, level + N

    def rest(self):
        """What each field misses from the room to all ones."""
        return self.repeated * (self.ones - (LIMIT - N))

    def carries(self, fields, rest):
        """The highest bit of each field that is above the room."""
        high = self.repeated << self.count - 1
        below = fields + rest if "highest" in self.without else (fields & ~high) + (rest & ~high)
        return (fields & rest | (fields | rest) & below) & high

    def wait(self, level):
        carries = self.carries(LShR(self.sums(level), self.stamp), self.rest())
        return sum((ZeroExt(63, Extract(bit, bit, carries)) for bit in range(64)), num(0))

    def wait_by_sums(self, level):
        """The same, by the next theorem."""
        refused = [If(ULE(self.sum_after(level, passed) + N, LIMIT), num(0), num(1)) for passed in range(self.before + 1)]
        return sum(refused, num(0))

    def refunded(self, level):
        left = N
        for age in sorted(range(self.before + 1), reverse="oldest" in self.without):
            count = self.field(level, age)
            back = If(ULT(count, left), count, left)
            level, left = level - (back << age * self.count), left - back
        return level

    def valid(self, level, most):
        """The level is in its bits, and its sum is at most what the word has room for."""
        inside = LShR(level, 63 - self.stamp) == 0 if self.stamp == 0 else ULT(level, num(1 << (64 - self.stamp)))
        fits = ULE(self.exact(level), ZeroExt(SUM_BITS - 64, num(most)))
        return And(inside, True if "fits" in self.without else fits)

    def most(self):
        return self.ones if self.before or "reserved" in self.without else self.ones - 1


def the_product_is_the_sum(c):
    return [ZeroExt(SUM_BITS - 64, c.sum(LEVEL)) == c.exact(LEVEL)]


def a_later_window_shifts_the_counts(c):
    claims = []
    for passed in range(1, c.before + 1):
        moved = c.shifted(LEVEL, passed)
        kept = [c.field(moved, age) == c.field(LEVEL, age - passed) for age in range(passed, c.before + 1)]
        new = [c.field(moved, age) == 0 for age in range(passed)]
        claims.append(And(*kept, *new, ULT(moved, num(1 << (64 - c.stamp)))))
        claims.append(c.sum_after(LEVEL, passed) == c.sum(c.shifted(LEVEL, passed)))
    return claims


def a_take_changes_one_count(c):
    granted, level = c.take(LEVEL)
    granted = True if "granted" in c.without else granted
    others = [c.field(level, age) == c.field(LEVEL, age) for age in range(1, c.before + 1)]
    taken = c.field(level, 0) == c.field(LEVEL, 0) + N
    least = ULE(c.exact(level), ZeroExt(SUM_BITS - 64, LIMIT))
    return [Implies(granted, And(taken, least, *others, ULT(level, num(1 << (64 - c.stamp)))))]


def no_reserved_word_is_committed(c):
    granted, level = c.take(LEVEL)
    all_ones = num((1 << (64 - c.stamp)) - 1)
    return [Implies(granted, level != all_ones), c.refunded(LEVEL) != all_ones]


def a_field_above_the_room_carries(c):
    """Whatever the fields, which are as wide as the counts, and whatever is left from the room to all ones."""
    left, each = BitVec("left", c.count), range(c.before + 1)
    copies = (63 + c.count) // c.count
    rest = Extract(63, 0, Concat(*[left] * copies)) if copies > 1 else ZeroExt(64 - c.count, left)
    carries = c.carries(FIELDS & num((1 << c.count * (c.before + 1)) - 1), rest)
    top = lambda age: age * c.count + c.count - 1
    above = [Extract(top(age), top(age), carries) == If(UGT(Extract(top(age), age * c.count, FIELDS), ~left), one, none)
             for age in each]
    tops = num(sum(1 << top(age) for age in each))
    return [c.repeated * ZeroExt(64 - c.count, left) == rest, And(*above, carries & ~tops == 0)]


def a_wait_is_the_least(c):
    wait = c.wait_by_sums(LEVEL)
    asked = And(ULE(N, LIMIT), Not(c.take(LEVEL)[0]))
    due = [Implies(wait == passed, ULE(c.sum(c.shifted(LEVEL, passed)) + N, LIMIT)) for passed in range(1, c.before + 1)]
    early = [Implies(wait == passed + 1, Not(ULE(c.sum(c.shifted(LEVEL, passed)) + N, LIMIT))) for passed in range(1, c.before + 1)]
    return [Implies(asked, And(UGE(wait, 1), ULE(wait, c.before + 1), *due, *early))]


def a_refund_takes_from_each_count_what_it_has(c):
    level = c.refunded(LEVEL)
    less = [ULE(c.field(level, age), c.field(LEVEL, age)) for age in range(c.before + 1)]
    total, n = c.exact(LEVEL), ZeroExt(SUM_BITS - 64, N)
    # A newer count is emptied before an older one is touched.
    order = [Or(c.field(level, age) == c.field(LEVEL, age), And(*(c.field(level, newer) == 0 for newer in range(age))))
             for age in range(1, c.before + 1)]
    return [And(*less), c.exact(level) == If(ULT(total, n), BitVecVal(0, SUM_BITS), total - n), And(*order) if order else And(True)]


# Each theorem with the conditions that break it when left out.
THEOREMS = [
    (the_product_is_the_sum, ["fits"]),
    (a_later_window_shifts_the_counts, ["cut"]),
    (a_take_changes_one_count, ["granted", "fits"]),
    (no_reserved_word_is_committed, ["reserved"]),
    (a_field_above_the_room_carries, ["highest"]),
    (a_wait_is_the_least, ["fits"]),
    (a_refund_takes_from_each_count_what_it_has, ["oldest"]),
]
# Bits of a count, and counts before the current one: fixed windows and sliding ones.
LAYOUTS = [(20, 0), (41, 0), (20, 1), (14, 3), (13, 2), (10, 4), (7, 6), (3, 15), (1, 50)]
# A refund of more counts takes the solver too long.
DECIDED = {a_refund_takes_from_each_count_what_it_has: [(20, 0), (41, 0), (20, 1), (13, 2), (14, 3)]}


def judge(theorem, layout, control):
    c = Counts(*layout, without=(control,))
    limits = And(ULE(1, LIMIT), ULE(LIMIT, num(c.most())), ULE(N, num(2**41)), UGE(N, 1))
    for claim in theorem(c):
        solver = SolverFor("QF_BV")
        solver.set("timeout", 900_000)
        solver.add(simplify(And(limits, c.valid(LEVEL, c.most()), Not(claim))))
        answer = solver.check()
        if answer != unsat:
            return "refuted" if answer == sat else "not decided in 900 s"
    return "proved"


def prove():
    failed = 0
    for theorem, controls in THEOREMS:
        for control in [None, *controls]:
            began, answers = time.monotonic(), []
            for layout in DECIDED.get(theorem, LAYOUTS):
                answers.append(judge(theorem, layout, control))
                if control and answers[-1] == "refuted":
                    break
            wanted = answers[-1] == "refuted" if control else set(answers) == {"proved"}
            name = theorem.__name__ + (f", without {control}" if control else "")
            said = answers[-1] if control else ", ".join(sorted(set(answers)))
            print(f"{name:56} {said:8} {len(answers):3} layouts {time.monotonic() - began:7.1f} s"
                  f"{'' if wanted else '   FAILED'}", flush=True)
            failed += not wanted
    return failed


def compare(path):
    lines = [[int(word) for word in line.split()] for line in open(path)]
    wrong = 0
    for count, before, limit, level, n, passed, *results in lines:
        c = Counts(count, before)
        shifted = c.shifted(LEVEL, passed) if 0 < passed <= before else LEVEL if passed == 0 else num(0)
        granted, taken = c.take(shifted)
        formulas = [c.sum(shifted), If(granted, num(1), num(0)), If(granted, taken, shifted), c.refunded(shifted)]
        values = [(LEVEL, num(level)), (LIMIT, num(limit)), (N, num(n))]
        formulas.append(If(granted, num(0), c.wait(shifted)))
        ours = [simplify(substitute(formula, *values)).as_long() for formula in formulas]
        if ours != results:
            wrong += 1
            print("not the same:", count, before, limit, level, n, passed, results, ours)
    print(f"{len(lines)} steps of windows, 5 results each, {wrong} not the same")
    return wrong or not lines


if __name__ == "__main__":
    sys.exit(1 if (compare(sys.argv[1]) if len(sys.argv) > 1 else prove()) else 0)
