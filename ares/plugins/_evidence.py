"""What similar experiences say about a branch: how much each counts, and what is to be believed then. Pure.

*How much an experience counts* is how similar it is to the question, from 0 to 1: the cosine of the two, as vectors
with an entry for each word. A word's entry is the product of two:

- How rare it is, by the number of experiences of the same branch point that have it, n of N:
  ``ln(1 + (N - n + 1/2) / (n + 1/2))``, and never more than ``ln 8``, which is about what a word gets that an eighth of
  them have: ids and time stamps, which are new each time, must not make strangers of all experiences. (Inverse document
  frequency and the vector space model: Manning, Raghavan and Schuetze, *Introduction to Information Retrieval*, 2008,
  chapter 6; the form is that of BM25, Robertson and Zaragoza, *The Probabilistic Relevance Framework*, 2009, made
  positive as in Apache Lucene.)
- What it has told so far. If of n experiences with a branch that have the word the scores sum up to s, and a run with
  that branch usually scores u, it is ``|(s + 4 u) / (n + 4) - u|``, for the branch for which that is most, plus 0.05.
  So one coincidence is not believed, and what never made a difference hardly counts. (After the value difference
  metric: Stanfill and Waltz, *Toward Memory-Based Reasoning*, Communications of the ACM 29, 1986.)

*What is believed.* Before anything is known, that a branch goes well with any probability, all of them equally likely.
Each experience with the branch changes that as a trial would, by Bayes' rule, but only in the measure in which it
counts: the likelihood raised to the power of its weight (Ibrahim and Chen, *Power Prior Distributions for Regression
Models*, Statistical Science 15, 2000). So after experiences with the weights w and the scores s (from 0 to 1, how well
each went) the belief is the beta distribution Beta(1 + sum(w s), 1 + sum(w (1 - s))).
"""

import math
import operator
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

import attrs

#: How rare a word can be.
_RAREST: Final = math.log(8)
#: What a word has told of which nothing is known.
_LEAST: Final = 0.05
#: How many experiences as usual a word must outweigh before it is believed.
_DOUBT: Final = 4.0
#: The entry of a word that no experience has.
_UNHEARD: Final = _RAREST * _LEAST
#: What a word must tell to be looked up by, as a part of what the best one does.
_WORTH: Final = 0.1


def weights(experiences: Iterable[tuple[object, float, Sequence[str]]]) -> dict[str, float]:
    """The entry of each word that there is in these experiences of a branch point.

    Args:
        experiences: Branch, score and words of each, no word twice.
    """
    groups: dict[tuple[object, float], Counter[str]] = {}
    sizes: Counter[tuple[object, float]] = Counter()
    for branch, score, words in experiences:
        groups.setdefault((branch, score), Counter()).update(words)
        sizes[branch, score] += 1
    usual: dict[object, Evidence] = {}
    with_word: dict[object, dict[str, Evidence]] = {}
    counts: Counter[str] = Counter()
    for (branch, score), group in groups.items():
        usual[branch] = usual.get(branch, _NOTHING).and_also(sizes[branch, score], score)
        mine = with_word.setdefault(branch, {})
        for word, count in group.items():
            mine[word] = mine.get(word, _NOTHING).and_also(count, score)
        counts.update(group)
    told: dict[str, float] = {}
    for branch, mine in with_word.items():
        score = usual[branch].good / usual[branch].weight
        for word, evidence in mine.items():
            difference = abs((evidence.good + _DOUBT * score) / (evidence.weight + _DOUBT) - score)
            told[word] = max(told.get(word, 0.0), difference)
    total = sizes.total()
    return {word: _rarity(count, total) * (_LEAST + told[word]) for word, count in counts.items()}


def _rarity(count: int, total: int) -> float:
    return min(_RAREST, math.log1p((total - count + 0.5) / (count + 0.5)))


def telling(words: Iterable[str], weight: Mapping[str, float], most: int) -> list[str]:
    """Those of these words that tell the most apart."""
    ordered = sorted(words, key=lambda word: weight.get(word, _UNHEARD), reverse=True)[:most]
    return [word for word in ordered if weight.get(word, _UNHEARD) >= _WORTH * weight.get(ordered[0], _UNHEARD)]


def similarity(mine: frozenset[str], theirs: frozenset[str], weight: Mapping[str, float]) -> float:
    """How similar two sets of words are, from 0 to 1; a word without a weight is one that no experience has."""
    if mine == theirs:
        return 1.0
    common = _length(mine & theirs, weight)
    both = _length(mine, weight) * _length(theirs, weight)
    return min(1.0, common * common / both) if common and both else 0.0


def _length(words: Iterable[str], weight: Mapping[str, float]) -> float:
    return math.sqrt(sum(weight.get(word, _UNHEARD) ** 2 for word in words))


def normal(numbers: Iterable[float]) -> "array[float]":
    """As a vector of length 1.

    Raises:
        ValueError: it has no direction.
    """
    made = [float(each) for each in numbers]
    length = math.hypot(*made)
    if not length or not math.isfinite(length):
        raise ValueError(f"an embedding of length {length:g} has no direction")
    return array("f", [each / length for each in made])


def cosine(one: "array[float]", other: "array[float]") -> float:
    """Of two vectors of length 1; 0 for those of another embedding."""
    if len(one) != len(other):
        return 0.0
    # Rounded to what a float of 4 bytes can tell, so that what is the same is 1 exactly.
    product = sum(map(operator.mul, one, other), 0.0)
    return min(1.0, max(0.0, round(product, 6)))


@attrs.frozen
class Evidence:
    """What is known of one branch: what the experiences with it weigh, and that of those that went well."""

    weight: float = 0.0
    good: float = 0.0

    def and_also(self, weight: float, score: float) -> "Evidence":
        """With one more experience."""
        return Evidence(self.weight + weight, self.good + weight * score)

    @property
    def mean(self) -> float:
        """The mean of the belief: how probable it is that the branch goes well."""
        return (1.0 + self.good) / (2.0 + self.weight)

    def draw(self, random: Random) -> float:
        """A probability drawn from the belief."""
        return random.betavariate(1.0 + self.good, 1.0 + max(0.0, self.weight - self.good))


_NOTHING: Final = Evidence()
