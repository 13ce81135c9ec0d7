# promise: headers
"""Reads the headers that tests/it/headers.rs wrote by another parser of structured fields (RFC 9651).

Compares them, in exact fractions, with the promises of draft-ietf-httpapi-ratelimit-headers-11 and of
this crate's table of headers.
"""

import sys
from collections import Counter
from fractions import Fraction
from math import ceil, floor

from http_sf import parse

SECOND = 10**9


def item(text, keys):
    """The only item of a list: a string, with integers for these parameters."""
    members = parse(text.encode(), tltype="list")
    assert len(members) == 1, text
    value, parameters = members[0]
    assert type(value) is str, text
    assert set(parameters) == set(keys), text
    for number in parameters.values():
        assert type(number) is int and 0 <= number < 10**15, text
    return value, [parameters[key] for key in keys]


def check(line):
    count, period, burst, granted, left, wait, name, policy, limit, retry, top, remaining, reset = line.split("\t")
    count, period, burst, granted, left, wait = map(int, (count, period, burst, granted, left, wait))
    rate = Fraction(count * SECOND, period)
    said, (q, w) = item(policy, "qw")
    assert said == name and w >= 1
    assert w == max(ceil(Fraction(period, SECOND)), ceil(burst / rate), 1)
    assert q == min(floor(rate * w), 10**15 - 1)
    assert Fraction(q, w) <= rate and q >= burst
    said, (r, t) = item(limit, "rt")
    assert said == name and t >= 1 and Fraction(r, t) <= rate
    assert (top, int(remaining)) == (str(burst), left)
    fill = burst / rate
    # A tick is at most the 128th part of a bucket, and waits are rounded up to nanoseconds.
    assert int(reset) <= ceil(fill * Fraction(129, 128) + Fraction(4, SECOND))
    if granted:
        assert (r, retry) == (left, "-") and q >= r
        if r == 0:
            # `t` is the wait for the next token.
            assert t == max(1, min(ceil(Fraction(wait, SECOND)), 2**31))
            return "granted"
        # The bucket has less than one token more than `r`, and a part of the current tick has
        # passed. In a large bucket a tick is worth several tokens, at most a 128th of it.
        more = 2 + (burst // 128 if burst > 2**20 else 0)
        assert max(1, ceil(r / rate)) <= t <= max(1, ceil((r + more) / rate))
        return "granted"
    seconds = max(1, min(ceil(Fraction(wait, SECOND)), 2**31))
    assert (r, t, retry) == (0, seconds, str(seconds))
    return "refused"


seen = Counter(check(line.rstrip("\n")) for line in open(sys.argv[1], encoding="ascii"))
assert sum(seen.values()) == 10_000 and min(seen["granted"], seen["refused"]) > 1_000, seen
print(f"{sum(seen.values())} responses read: {seen['granted']} granted, {seen['refused']} refused, all as promised")
