# promise: no-overflow
"""Theorems of the pure step of src/word/state.rs, over all 64-bit words, ticks and terms.

Each theorem is refuted when one of its clamps is taken away.

    step.py             proves the theorems, and refutes each where it is broken
    step.py VECTORS     works out the steps that `steps_for_z3` in src/tests/properties.rs wrote, with these formulas

The widths of the fields are those of LAYOUTS; all else is a symbol. The step from a clock reading to
a tick is not modelled: `now` is any tick.
"""

import sys
import time

from z3 import (
    And, BitVec, BitVecVal, BoolVal, If, Implies, LShR, Not, Or, SolverFor, UGE, UGT, ULE, ULT, ZeroExt, sat, simplify, substitute,
    unsat,
)

SECONDS = 900


def num(n):
    return BitVecVal(n, 64)


FULL, SEALED = num(2**64 - 1), num(2**64 - 2)
MAX_TOKENS = num(2 * 2**40)


def umin(a, b):
    return If(ULT(a, b), a, b)


def less(a, b):
    """What is left of `a`, or nothing."""
    return If(UGE(a, b), a - b, num(0))


class Terms:
    NAMES = "stamp fraction scale capacity floor lowest jitter horizon margin".split()

    def __init__(self):
        for name in Terms.NAMES:
            setattr(self, name, BitVec(name, 64))
        self.mask = (num(1) << self.stamp) - 1

    def fix(self, stamp, fraction, scale):
        """Of these widths: shifts by what is not known are too hard for z3."""
        self.stamp, self.fraction, self.scale = num(stamp), num(fraction), num(scale)
        self.mask = num((1 << stamp) - 1)

    def units(self, n, clamped=True):
        return (If(UGT(n, MAX_TOKENS), MAX_TOKENS, n) if clamped else n) << self.fraction

    def tokens(self, units):
        return LShR(units, self.fraction)

    def whole(self, units):
        return self.tokens(units) << self.fraction

    def ticks_for(self, units):
        return LShR(units + (num(1) << self.scale) - 1, self.scale)

    def invariants(self, without=()):
        """What `has_room` and `what_is_accepted_has_room` in src/tests/terms.rs assert of all that is accepted."""
        rules = {
            "widths": And(UGE(self.stamp, 6), ULE(self.stamp, 62), ULE(self.fraction, 16), ULE(self.scale, 39)),
            "one of both": Or(self.fraction == 0, self.scale == 0),
            "room to earn": Or(self.scale == 0, ULE(self.stamp + self.scale, 57)),
            "below all ones": ULT(self.capacity, LShR(FULL, self.stamp)),
            "whole tokens": And(self.whole(self.capacity) == self.capacity, self.whole(self.floor) == self.floor,
                                self.whole(self.lowest) == self.lowest),
            "levels": And(ULT(self.floor, self.capacity), ULE(self.lowest, self.floor)),
            "windows": And(UGT(self.horizon, 0), ULT(self.horizon, self.jitter), ULE(self.jitter, self.mask)),
            "margin": ULE(self.margin, num(2**62 + 1)),
        }
        return And([rule for name, rule in rules.items() if name not in without])


class View:
    """The bucket of a word at a tick, as State::at and at_an_earlier_time have it. `without` names what is left out."""

    def __init__(self, terms, word, now, without=()):
        self.terms, self.word, self.now = terms, word, now
        t = terms
        self.stored = LShR(word, t.stamp)
        self.passed = (now - word) & t.mask
        self.is_level = ULT(word, SEALED)
        self.old_stamp = word & t.mask
        on = ULT(self.passed, t.horizon)
        behind = And(UGE(self.passed, t.jitter), self.is_level)
        if "jitter" in without:
            on, behind = ULT(self.passed, t.mask + 1), BoolVal(False)
        if "jump" in without:
            on = ULT(self.passed, t.jitter)
        self.on, self.behind = on, behind
        self.earned = If(on, self.passed << t.scale, num(0))
        level = self.stored + self.earned
        self.level = level if "capacity" in without else umin(level, t.capacity)
        keeps = BoolVal(False) if "stamp" in without else behind
        self.stamp = If(keeps, self.old_stamp, now & t.mask)
        self.lag = If(And(Not(on), behind), t.mask - self.passed + 1, num(0))
        self.adopt = And(Not(on), Not(behind), self.is_level)

    def pack(self, level):
        return level << self.terms.stamp | self.stamp

    def takes(self, granted, taken):
        """Granted, taken, level, lag, whether there is something to commit, and what."""
        level = If(granted, self.level - taken, self.level)
        return granted, If(granted, taken, num(0)), level, self.lag, Or(granted, self.adopt), self.pack(level)

    def take(self, need):
        return self.takes(UGE(self.level, need + self.terms.floor), need)

    def take_up_to(self, most):
        there = umin(self.terms.whole(less(self.level, self.terms.floor)), most)
        return self.takes(there != 0, there)

    def charge_up_to(self, most):
        there = umin(self.terms.whole(less(self.level, self.terms.lowest)), most)
        return self.takes(there != 0, there)

    def reserve(self, need):
        """With all the patience there is."""
        return self.takes(UGE(self.level, need + self.terms.lowest), need)

    def give(self, units, without=()):
        level = self.level + units
        level = level if "brim" in without else umin(level, self.terms.capacity)
        return And(self.is_level, Or(self.adopt, UGT(level, self.level))), self.pack(level)

    def spilt(self, before, since):
        then = self.now + self.lag
        passed = (then - since) & self.terms.mask
        earned = If(ULT(passed, self.terms.horizon), passed << self.terms.scale, num(0))
        return less(before + earned, self.terms.capacity)

    def undo(self, need, before, since, without=()):
        return self.give(need if "spilt" in without else less(need, self.spilt(before, since)))

    def mark(self):
        t = self.terms
        back = UGE(self.passed, t.jitter)
        stamp = If(back, self.now + (t.mask - self.passed + 1), self.now - self.passed)
        return ((stamp << t.scale) - self.stored) & (((t.mask + 1) << t.scale) - 1)

    def evictable_in(self, without=()):
        t = self.terms
        missing = t.capacity - umin(self.stored, t.capacity)
        fills = num(0) if "fill" in without else t.ticks_for(missing)
        due = fills + (num(0) if "margin" in without else t.margin)
        due = If(ULT(self.passed, t.horizon), less(due, self.passed), due + self.lag)
        return If(self.is_level, due, num(0))

    def admits(self):
        t = self.terms
        return And(self.is_level, Or(ULE(self.passed, LShR(t.mask, 1)), UGE(self.passed, t.jitter)))


T = Terms()
WORD, NOW, LATER, N, BEFORE, SINCE = (BitVec(name, 64) for name in "word now later n before since".split())


def verbs(view, need):
    return view.take(need), view.take_up_to(need), view.charge_up_to(need), view.reserve(need)


def committed(view, need):
    """Whatever a verb may commit: whether it does, and the word."""
    taken = [(commits, word) for *_, commits, word in verbs(view, need)]
    small = umin(need, T.capacity)
    given = [view.give(need), view.undo(small, umin(BEFORE, T.capacity), SINCE)]
    return taken + given


def need_of(without):
    need = T.units(N, clamped="clamp of n" not in without)
    return need if "none" in without else If(N == 0, T.units(num(1)), need)


def wide(term):
    return ZeroExt(64, term)


def no_reserved_word(without):
    view = View(T, WORD, NOW, without)
    return [Implies(commits, ULT(word, SEALED)) for commits, word in committed(view, need_of(without))]


def a_grant_changes_the_word(without):
    view = View(T, WORD, NOW, without)
    return [Implies(granted, word != WORD) for granted, *_, word in verbs(view, need_of(without))]


def never_above_capacity(without):
    view = View(T, WORD, NOW, without)
    small = umin(need_of(()), T.capacity)
    words = [(c, w) for *_, c, w in verbs(view, need_of(()))] + [
        view.give(small, without), view.undo(small, umin(BEFORE, T.capacity), SINCE)]
    return [Implies(commits, ULE(LShR(word, T.stamp), T.capacity)) for commits, word in words]


def no_more_than_there_is(without):
    """What is taken and what is left is what was there; a take leaves the floor, credit leaves the lowest level."""
    view = View(T, WORD, NOW, without)
    claims = []
    for (granted, taken, level, *_), low in zip(verbs(view, need_of(without)), (T.floor, T.floor, T.lowest, T.lowest)):
        claims.append(And(wide(taken) + wide(level) == wide(view.level), Implies(granted, ULE(taken, T.capacity - low))))
    return claims


def nothing_overflows(without):
    """Of what the comments of src/word/terms.rs and src/word/state.rs say."""
    view = View(T, WORD, NOW)
    need = need_of(without)
    sums = [
        Implies(view.on, LShR(view.earned, T.scale) == view.passed),
        UGE(view.stored + view.earned, view.stored),
        T.tokens(need) == If(N == 0, num(1), umin(N, MAX_TOKENS)) if "clamp of n" not in without else T.tokens(need) == N,
        UGE(need + T.floor, need),
        UGE(view.level + need, view.level),
        LShR(T.capacity << T.stamp, T.stamp) == T.capacity,
        UGE(T.capacity + (num(1) << T.scale) - 1, T.capacity),
        UGE(T.ticks_for(T.capacity) + T.margin + view.lag, T.margin),
        UGE(umin(BEFORE, T.capacity) + (T.mask << T.scale), T.mask << T.scale),
    ]
    return sums


def a_later_tick_never_refuses(without):
    """Outside of the windows and the wrap: `later` is so many ticks after `now`, which may be behind the stamp."""
    early, late = View(T, WORD, NOW, without), View(T, WORD, NOW + LATER, without)
    fine = View(T, WORD, NOW)
    start = If(fine.behind, num(0), fine.passed)
    counts = And(ULE(LATER, T.mask), Or(fine.behind, fine.on), ULT(less(start + LATER, fine.lag), T.horizon))
    counts = And(ULE(LATER, T.mask), Or(fine.behind, fine.on)) if "wrap" in without else counts
    need = need_of(without)
    claims = [And(Implies(a[0], b[0]), ULE(a[1], b[1])) for a, b in zip(verbs(early, need), verbs(late, need))]
    return [Implies(Or(counts, Not(fine.is_level)), claim) for claim in claims]


def the_stamp_never_moves_back(without):
    """It moves on by the time that passed, or stays; but for a clock that was set back, which earns nothing."""
    view = View(T, WORD, NOW, without)
    fine = View(T, WORD, NOW)
    claims = []
    for commits, word in committed(view, need_of(())):
        moved = ((word & T.mask) - (WORD & T.mask)) & T.mask
        claims.append(Implies(And(commits, fine.is_level), Or(fine.adopt, ULT(moved, T.horizon))))
    return claims


def the_law_of_one_step(without):
    """What is taken and left is at most what was stored and what the stamp moved on by. Of steps in a row the sums
    telescope: over any interval no more is granted than a full bucket and what was earned between its stamps."""
    view = View(T, WORD, NOW, without)
    fine = View(T, WORD, NOW)
    claims = []
    for granted, taken, level, _, commits, word in verbs(view, need_of(())):
        moved = ((word & T.mask) - (WORD & T.mask)) & T.mask
        earned = If(fine.adopt, num(0), moved << T.scale)
        claims.append(Implies(And(commits, fine.is_level), ULE(wide(taken) + wide(level), wide(fine.stored) + wide(earned))))
    return claims


def a_refusal_writes_nothing(without):
    view = View(T, WORD, NOW)
    back = BoolVal(False) if "adoption" in without else And(UGE(view.passed, T.horizon), ULT(view.passed, T.jitter))
    return [Implies(And(Not(granted), commits), back) for granted, *_, commits, _ in verbs(view, need_of(()))]


def a_wait_is_exact(without):
    """At the tick that a refusal names it is granted, and not one before."""
    need = T.units(N)
    view = View(T, WORD, NOW)
    granted, _, level, lag, commits, word = view.take(need)
    then = If(commits, word, WORD)
    missing = need + T.floor - level
    ticks = LShR(missing, T.scale) if "rounding up" in without else T.ticks_for(missing)
    ticks = ticks + (num(0) if "lag" in without else lag)
    start = If(view.behind, num(0), If(view.adopt, num(0), view.passed))
    counts = And(ULE(ticks, T.mask), ULT(less(start + ticks, lag), T.horizon))
    due, early = View(T, then, NOW + ticks).take(need)[0], View(T, then, NOW + ticks - 1).take(need)[0]
    asked = And(N != 0, ULE(need, T.capacity - T.floor), Not(granted))
    return [Implies(And(asked, counts), claim) for claim in (UGT(ticks, 0), due, Not(early))]


def what_may_be_evicted_was_full(without):
    """For the margin: it was full so many ticks before the evictor's reading."""
    view = View(T, WORD, NOW)
    idle = And(view.is_level, view.evictable_in(without) == 0)
    return [Implies(idle, claim) for claim in (UGE(view.passed, T.margin), View(T, WORD, NOW - T.margin).level == T.capacity)]


def a_mark_does_not_move_with_time(without):
    view, late = View(T, WORD, NOW), View(T, WORD, LATER)
    same = view.mark() == late.mark()
    granted, taken, _, _, _, word = view.take(T.units(N))
    # Unless tokens spill at the brim, a take moves the mark by the taken units.
    brim = BoolVal(True) if "brim" in without else ULE(view.stored + view.earned, T.capacity)
    turn = ((T.mask + 1) << T.scale) - 1
    moved = View(T, word, NOW).mark() == ((view.mark() + taken) & turn)
    return [Implies(view.is_level, claim) for claim in (same, Implies(And(granted, brim, Not(view.adopt)), moved))]


def an_undo_gives_no_more_than_was_taken(without):
    view = View(T, WORD, NOW)
    need, before = umin(T.units(N), T.capacity), umin(BEFORE, T.capacity)
    commits, word = view.undo(need, before, SINCE, without)
    kept = less(need, view.spilt(before, SINCE))
    level = LShR(word, T.stamp)
    claims = ULE(level, T.capacity), ULE(level, view.level + kept), UGE(level, view.level)
    return [Implies(commits, claim) for claim in claims]


# Each theorem with the conditions that break it when left out: of the step, of the question, or of
# the invariants.
THEOREMS = [
    (no_reserved_word, ["capacity", "below all ones"]),
    (a_grant_changes_the_word, ["none"]),
    (never_above_capacity, ["capacity", "brim"]),
    (no_more_than_there_is, ["capacity"]),
    (nothing_overflows, ["clamp of n", "room to earn", "below all ones"]),
    (a_later_tick_never_refuses, ["wrap", "jitter"]),
    (the_stamp_never_moves_back, ["jitter", "stamp"]),
    (the_law_of_one_step, ["jitter", "jump"]),
    (a_refusal_writes_nothing, ["adoption"]),
    (a_wait_is_exact, ["rounding up", "lag"]),
    (what_may_be_evicted_was_full, ["margin", "fill"]),
    (a_mark_does_not_move_with_time, ["brim"]),
    (an_undo_gives_no_more_than_was_taken, ["spilt"]),
]


# Stamp bits, fraction, scale: rows of the table in the design, and an edge.
LAYOUTS = [(43, 0, 6), (36, 0, 17), (34, 0, 22), (46, 16, 0), (45, 8, 0), (42, 1, 0), (53, 0, 0), (62, 0, 0)]
# Theorems that take longer than fifteen minutes a claim in the other layouts.
DECIDED = {
    a_later_tick_never_refuses: [(43, 0, 6), (36, 0, 17), (46, 16, 0), (62, 0, 0)],
    a_wait_is_exact: [(46, 16, 0), (62, 0, 0)],
    a_mark_does_not_move_with_time: [(34, 0, 22), (46, 16, 0), (45, 8, 0), (62, 0, 0)],
}
# A layout that is never chosen: only a control may have it.
TOO_WIDE = (60, 0, 6)


def solve(claim, without):
    solver = SolverFor("QF_BV")
    solver.set("timeout", SECONDS * 1000)
    solver.add(simplify(T.invariants(without)), simplify(Not(claim)))
    return solver.check()


def judge(theorem, control):
    """Whether all its claims hold, whatever the terms, the word and the readings."""
    without = () if control is None else (control,)
    answers = []
    for claim in theorem(without):
        answers.append(solve(claim, without))
        if answers[-1] == sat:
            return "refuted"
    return "proved" if all(answer == unsat for answer in answers) else f"not decided in {SECONDS} s"


def prove():
    failed = 0
    for theorem, controls in THEOREMS:
        for control in [None, *controls]:
            began, answers = time.monotonic(), []
            # A control need not be refuted in each layout: without a scale, say, nothing overflows.
            layouts = DECIDED.get(theorem, LAYOUTS)
            for layout in layouts if control is None else [*LAYOUTS, TOO_WIDE]:
                T.fix(*layout)
                assert control is not None or solve(BoolVal(False), ()) == sat, "there are such terms"
                answers.append(judge(theorem, control))
                if control is not None and answers[-1] == "refuted":
                    break
            wanted = all(answer == "proved" for answer in answers) if control is None else answers[-1] == "refuted"
            name = theorem.__name__ + (f", without {control}" if control else "")
            said = ", ".join(sorted(set(answers[-1:] if control else answers)))
            print(f"{name:56} {said:8} {len(answers):3} layouts {time.monotonic() - began:7.1f} s"
                  f"{'' if wanted else '   FAILED'}", flush=True)
            failed += not wanted
    return failed


def compare(path):
    """The formulas, evaluated, against what the crate came to."""
    asked = [*(getattr(T, name) for name in Terms.NAMES), WORD, NOW, BitVec("unused", 64), N, BEFORE, SINCE]
    view = View(T, WORD, NOW)
    one = If(N == 0, num(1), N)
    formulas = []
    for granted, taken, level, lag, commits, word in (
        view.take(one), view.take_up_to(N), view.charge_up_to(N), view.reserve(one),
    ):
        formulas += [If(granted, num(1), num(0)), taken, level, lag, If(commits, word, FULL)]
    for commits, word in (view.give(N), view.undo(umin(N, T.capacity), BEFORE, SINCE)):
        formulas.append(If(commits, word, FULL))
    formulas += [view.mark(), view.evictable_in(), If(view.admits(), num(1), num(0)), T.units(BitVec("unused", 64))]
    lines = [[int(word) for word in line.split()] for line in open(path)]
    wrong = 0
    for line in lines:
        values = [(symbol, num(value)) for symbol, value in zip(asked, line)]
        expected = [*line[len(asked):], line[len(asked) - 3]]
        ours = [simplify(substitute(formula, *values)).as_long() for formula in formulas]
        if ours != expected or not simplify(substitute(T.invariants(), *values)):
            wrong += 1
            print("not the same:", line, ours)
    print(f"{len(lines)} steps of the crate, {len(formulas)} results each, {wrong} not the same")
    return wrong or not lines


if __name__ == "__main__":
    sys.exit(1 if (compare(sys.argv[1]) if len(sys.argv) > 1 else prove()) else 0)
