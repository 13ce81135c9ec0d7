/*
 * One key of a map: takers, evictors and a clock. It follows src/bucket/engine.rs and src/keyed/entry.rs.
 *
 * A bucket holds one token and earns a unit a tick; a token is TOKEN units. Ticks do not wrap. The key's place in the map
 * is an index into buckets made ahead: none is used twice, as papaya's guards see to. What keys without room share is left
 * out, so a bucket that was never charged starts full. One evictor's clock is ahead by the margin, the most that it covers.
 *
 * Each access to the place, a word or the clock is a step of its own. Spin is sequentially consistent: what weaker
 * orderings allow is the matter of the loom models.
 *
 * scripts/spin runs it; and with each of these, which break it:
 *
 *   NO_SEAL              a bucket that is idle is removed as it is
 *   SEAL_BY_STORE        the seal is stored, whatever the word has become
 *   REMOVE_BY_KEY        the entry is removed, whichever it has become
 *   CLOCK_BEFORE_LOOKUP  the clock is read before the bucket is looked up
 *   NO_REREAD            the clock is not read again after a seal was met
 *   NO_MARGIN            a bucket is evicted as soon as it is full
 *   NO_BURY              who meets a seal leaves the entry to its evictor
 */

#ifndef TAKES
#define TAKES 2 /* by each taker */
#endif
#ifndef LAST
#define LAST 4 /* tick */
#endif
#define LIVES 3 /* of the key */
#define TOKEN 2
#define AHEAD 1
#ifdef NO_MARGIN
#define MARGIN 0
#else
#define MARGIN AHEAD
#endif

#define FULL 255
#define SEALED 254
#define PACK(level, stamp) ((level) << 4 | (stamp))
#define LEVEL(word) ((word) >> 4)
#define STAMP(word) ((word) & 15)
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

byte place = 0; /* the number of the key's bucket, from 1 on; 0 if it has no entry */
byte lives = 0; /* buckets used */
byte word[LIVES + 5] = FULL; /* a broken protocol uses a few more */
byte clock = 0;
byte ended = 0; /* takers */

/*
 * The law over every interval of committed stamps, by the ideal bucket: what it had at the last grant, and when that was.
 * With WHOLE_SPAN only the weaker law is asked for: all that was granted until now, by the clock itself.
 */
#ifdef WHOLE_SPAN
byte granted = 0;

inline grant(stamp) {
    granted++;
    assert(granted * TOKEN <= TOKEN + clock)
}

inline refuse(now) {
    skip
}
#else
byte ideal = TOKEN;
byte at = 0;

#define IDEAL(now) MIN(ideal + (now) - at, TOKEN)

inline grant(stamp) {
    assert(stamp >= at);
    assert(IDEAL(stamp) == TOKEN);
    ideal = 0;
    at = stamp
}

/* What the ideal bucket would grant is granted. */
inline refuse(now) {
    assert(IDEAL(now) < TOKEN)
}
#endif

/* Removes the entry of a bucket that is sealed, if it is still this one. */
inline remove(entry) {
    atomic {
        if
#ifdef REMOVE_BY_KEY
        :: true -> place = 0
#else
        :: place == entry -> place = 0
        :: else
#endif
        fi
    }
}

proctype Taker() {
    byte bucket, state, now, next, left = TAKES;
    bool kept; /* the reading is used once more: only where something is broken */

    do
    :: left == 0 -> break
    :: else ->
look_up:
#ifdef CLOCK_BEFORE_LOOKUP
        now = clock;
        kept = true;
#endif
        bucket = place;
        if
        :: bucket != 0
        :: else ->
            atomic {
                if
                :: place == 0 -> lives++; bucket = lives; place = bucket
                :: else -> goto look_up
                fi
            }
        fi;
        state = word[bucket];
step:
        atomic {
            if
            :: kept -> kept = false
            :: else -> now = clock
            fi;
            if
            :: state >= SEALED -> next = PACK(TOKEN, now)
            :: else ->
                /* A reading behind the stamp earns nothing, and the stamp stays. */
                next = MAX(now, STAMP(state));
                next = PACK(MIN(LEVEL(state) + next - STAMP(state), TOKEN), next)
            fi;
            if
            :: LEVEL(next) < TOKEN -> refuse(now)
            :: else
            fi
        };
        if
        :: state == SEALED ->
            next = 0;
#ifndef NO_BURY
            bucket = place;
            if
            :: bucket != 0 && word[bucket] == SEALED -> remove(bucket)
            :: else
            fi;
#endif
#ifdef NO_REREAD
            kept = true;
#endif
            goto look_up
        :: state != SEALED && LEVEL(next) < TOKEN
        :: else ->
            atomic {
                if
                :: word[bucket] == state -> word[bucket] = PACK(0, STAMP(next)); grant(STAMP(next))
                :: else -> state = word[bucket]; next = 0; goto step
                fi
            }
        fi;
progress:
        /* What is not used again makes no other state. */
        d_step { left--; bucket = 0; state = 0; now = 0; next = 0 }
    od;
    ended++
}

#define IDLE(state, now) ((now) >= STAMP(state) + TOKEN - LEVEL(state) + MARGIN)

proctype Evictor(byte ahead) {
    byte bucket, state;

    do
    :: ended == 2 -> break
    :: atomic { ended < 2 && lives < LIVES && place != 0 -> bucket = place };
        state = word[bucket];
step:
        if
        :: state == SEALED -> goto sealed
#ifdef LIVENESS
        /* Somebody is about to charge it: evict_idle leaves it, and the hand does not get its ticket. */
        :: state == FULL -> goto again
#else
        :: state == FULL
#endif
        :: state < SEALED && IDLE(state, clock + ahead)
        :: state < SEALED && !IDLE(state, clock + ahead) -> goto again
        fi;
#ifdef NO_SEAL
        goto sealed;
#endif
#ifdef SEAL_BY_STORE
        word[bucket] = SEALED;
#else
        atomic {
            if
            :: word[bucket] == state -> word[bucket] = SEALED
            :: else -> state = word[bucket]; goto step
            fi
        };
#endif
sealed:
        state = 0;
        /* A thread may be stopped here, for ever. */
        if
        :: true
        :: true -> break
        fi;
        remove(bucket);
again:
        atomic { bucket = 0; state = 0 }
    od
}

proctype Clock() {
    do
    :: clock < LAST -> clock++
    :: else -> break
    od
}

init {
    atomic {
        run Taker();
        run Taker();
        run Evictor(0);
        run Evictor(AHEAD);
        run Clock()
    }
#ifdef REACHED
    /* Several evictions and more grants than one bucket gives are there to be found. */
    (_nr_pr == 1) -> assert(lives < 3 || at < LAST)
#endif
}
