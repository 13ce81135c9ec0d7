// promise: state
//! Words on a clock with another beginning: never ahead of the words that went on, and at most a
//! tick behind.

use std::time::Duration;

use tollgate_testing::{Random, size};

use crate::rule::rate::Quota;
use crate::word::plan::PlanTerms;
use crate::word::saved::{Resume, SavedAt};
use crate::word::state::{Reading, State};
use crate::word::terms::Terms;
use crate::word::wait::Wait;

#[test]
fn a_clock_with_another_beginning_is_at_most_a_tick_behind() {
    let random = &mut Random(45);
    for _ in 0..size(20_000, 200_000) {
        let (tokens, nanos) = (1 + random.any_below(1 << 20), 1 + random.any_below(1 << 42));
        let Ok(quota) = Quota::checked(tokens, Duration::from_nanos(nanos), 1 + random.any_below(1 << 20))
        else {
            continue;
        };
        let terms = Terms::in_layout(quota.numbers(), quota.layout());
        let at = |nanos| Reading::new(terms, nanos);
        // The save, the time until the restart, and the clock then.
        let [saved, restarted] = [(); 2].map(|()| random.any_below(1 << 52));
        // Less than the range of any stamp.
        let down = random.any_below(1 << 45);
        let level = random.any_below(terms.capacity + 1);
        let word = State::pack(&terms, level, at(saved.saturating_sub(random.any_below(1 << 40))).tick);

        let moment = SavedAt::new(&at(saved), saved);
        assert!(moment.is_valid(&terms));
        let resume = Resume::new(at(restarted), saved + down, moment, false, None);
        let kept = word.saved(&terms, moment.tick);
        assert!(resume.accepts(kept));
        let resumed = resume.word(kept).expect("a bucket has a word");
        for later in [0, random.any_below(1 << 40)] {
            let on = at(saved + down + later).view(word);
            let back = at(restarted + later).view(resumed);
            let behind = on.level.checked_sub(back.level).expect("it is not ahead");
            assert!(behind <= 1 << terms.widths.scale, "{quota}: {behind} units behind");
        }
    }
}

/// Under a plan, a word on a clock with another beginning is never ahead: neither its tokens nor
/// its waits.
#[test]
fn a_word_under_a_plan_is_never_ahead() {
    let random = &mut Random(46);
    for _ in 0..size(20_000, 200_000) {
        let quota = |random: &mut Random| {
            Quota::per(1 + random.below(40), Duration::from_secs(1 + random.below(120)))
                .burst(1 + random.below(3))
        };
        let (own, plan) = (quota(random), quota(random).burst(1));
        let terms = Terms::in_layout(own.numbers(), own.layout());
        let Ok(plan) = PlanTerms::compile(0, plan, own, &terms, None) else { continue };
        let at = |nanos| Reading::new(terms, nanos).under(plan);
        let [saved, restarted] = [(); 2].map(|()| (1 << 45) + random.any_below(1 << 50));
        let down = random.any_below(1 << 35);
        let level = random.below(3) * random.any_below(plan.capacity + 1) / 2;
        let word = State::pack(&terms, level, at(saved - random.any_below(1 << 33)).tick);
        let moment = SavedAt::new(&Reading::new(terms, saved), saved);
        let resume = Resume::new(
            Reading::new(terms, restarted),
            saved + down,
            moment,
            false,
            Some(plan.ticks_of_a_unit()),
        );
        let resumed = resume.word(word.saved(&terms, moment.tick)).expect("a bucket has a word");
        let (on, back) = (at(saved + down), at(restarted));
        let [on, back] = [(on, word), (back, resumed)].map(|(reading, word)| {
            let (view, need) = (reading.view(word), terms.units(1) + terms.empty_level);
            (view.level, Wait::until(need, view.level, view.lag, &reading).nanos())
        });
        assert!(back.0 <= on.0 && back.1 >= on.1, "{own}, {plan:?}: {back:?} after {on:?} at {level}");
    }
}
