"""The numbers of a run: a line of a CSV file each, with the median and the quartiles of its rounds."""

import csv
from pathlib import Path
from typing import NamedTuple


class Spread(NamedTuple):
    low: float
    median: float
    high: float

    def is_steady(self):
        """Returns whether the rounds differ less than contenders do: the quartiles by a factor of 2 at most."""
        return self.high <= 2 * self.low


class Rows:
    """The rows of CSV files, in their order, and found by section, case, contender and measure."""

    def __init__(self, *paths):
        self.numbers, self.texts = {}, {}
        for path in paths:
            with open(path, newline="") as lines:
                for row in csv.DictReader(lines):
                    place = row["section"], row["case"], row["contender"], row["measure"]
                    try:
                        median = float(row["value"])
                    except ValueError:
                        self.texts.setdefault(place, row["value"])
                        continue
                    low, high = (float(row[f"quartile_{end}"] or median) for end in ["low", "high"])
                    self.numbers.setdefault(place, Spread(low, median, high))

    def find(self, *place):
        """Returns the spread at a place, or None."""
        return self.numbers.get(place)

    def value(self, *place):
        """Returns the median at a place, or None."""
        found = self.numbers.get(place)
        return found and found.median

    def text(self, measure, contender=""):
        """Returns a text of the machine."""
        return self.texts.get(("Machine", "", contender, measure), "")

    def cases(self, section, contender=None):
        """Returns the cases of a section in their order, each once."""
        places = [place for place in self.numbers if place[0] == section and contender in (None, place[2])]
        return list(dict.fromkeys(place[1] for place in places))


def files(folder):
    return sorted(Path(folder).glob("*.csv"))


def short(value):
    """Writes three digits or more: a ratio of 1.004 is not 1."""
    if value == int(value):
        return str(int(value))
    digits = next(digits for bound, digits in [(1.9995, 3), (9.995, 2), (99.95, 1), (float("inf"), 0)] if abs(value) < bound)
    return f"{value:.{digits}f}"
