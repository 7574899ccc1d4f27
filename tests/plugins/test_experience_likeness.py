"""What an ``ExperienceMemory`` compares: values in words, how much words tell, and whether confidences are true."""

import dataclasses
import enum
import random
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ares.plugins import ExperienceMemory
from ares.plugins._evidence import Evidence, cosine, normal, similarity, weights
from ares.plugins._rendering import MOST_WORDS, render
from tests.plugins.experiences import WAYS, at, running, say
from tests.plugins.routing import alone

ROOT = Path(__file__).resolve().parents[2]


class Point(NamedTuple):
    x: str
    y: str


class Colour(enum.Enum):
    RED = "r"


@attrs.frozen
class Order:
    kind: str
    pages: int


@dataclasses.dataclass
class Form:
    kind: str


# --- in words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ["=None"]),
        (True, ["=True"]),
        (Colour.RED, ["=Colour.RED"]),
        (0, ["=0"]),
        (100, ["=100", "=2^6", "=about 2^7"]),
        (-100.0, ["=-2^6", "=-about 2^7"]),
        (1_000_000, ["=2^19", "=about 2^20"]),
        (Decimal("0.3"), ["=2^-2", "=about 2^-2"]),
        (float("nan"), ["=nan"]),
        (Decimal("sNaN"), ["=nan"]),
        (float("-inf"), ["=-inf"]),
        (timedelta(minutes=2), ["=2^6", "=about 2^7"]),
        ("Ein STRASSE, ein Straße", ["=ein", "=strasse"]),
        ("東京都 station", ["=東京", "=京都", "=station"]),
        ("", []),
        ("?!", []),
        (b"abc", ["=3", "=2^1", "=about 2^2"]),
        (date(2026, 3, 1), ["=2026", "=03", "=01"]),
        (UUID(int=1), ["=00000000", "=0000", "=000000000001"]),
        (PurePosixPath("/srv/a.py"), ["=srv", "=a", "=py"]),
        ({"b": "x", "a": None}, ["a=None", "b=x"]),
        ({1: "x", ("a", 2): "y"}, ["(a, 2)=y", "1=x"]),
        ({}, ["#=0"]),
        ({"tags": ["x", "y"]}, ["tags[]=x", "tags[]=y", "tags#=2", "tags#=2^1", "tags#=about 2^1"]),
        ({"y", "x"}, ["[]=x", "[]=y", "#=2", "#=2^1", "#=about 2^1"]),
        (Order("bill", 0), ["kind=bill", "pages=0"]),
        (Form("bill"), ["kind=bill"]),
        (Point("a", "b"), ["x=a", "y=b"]),
        (object(), ["=object"]),
    ],
)
def test_a_value_is_these_words(value: Any, words: list[str]) -> None:
    assert list(render(value).words) == words


def test_numbers_less_than_a_factor_of_1_4_apart_share_a_word() -> None:
    for exponent in range(-40, 40):
        for step in range(20):
            value = 2 ** (exponent + step / 20)
            assert set(render(value).words) & set(render(value * 1.41).words), value


def test_an_embedding_is_given_a_line_a_part() -> None:
    assert render({"output": Order("bill", 3), "n": 0.25}).text == "n: 0.25\noutput.kind: bill\noutput.pages: 3"


def test_a_long_text_crowds_out_no_short_field() -> None:
    words = render({"a": " ".join(f"w{n}" for n in range(500)), "z": "short"}).words

    assert len(words) == MOST_WORDS
    assert "z=short" in words


def loop() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


class Hostile:
    def __str__(self) -> str:
        raise ValueError("boom")

    __repr__ = __hash__ = __eq__ = __str__  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value",
    [
        "x" * 2_000_000,
        " ".join(map(str, range(300_000))),
        {f"k{n}": n for n in range(200_000)},
        list(range(1_000_000)),
        set(range(200_000)),
        {"deep": [[[[[[[[[["very"]]]]]]]]]]},
        [[[list(range(50))] * 50] * 50] * 50,
        loop(),
        10**100_000,
        Decimal("1e999999"),
        "ﷺ" * 10_000,
        {"h": Hostile(), "i": [Hostile()]},
        range(10**9),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_it_is_it_is_bounded(value: Any) -> None:
    rendering = render(value)

    assert len(rendering.text) <= 4_000
    assert len(rendering.words) <= MOST_WORDS
    assert all(len(word) < 1_000 for word in rendering.words)


_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.binary(),
    st.decimals(),
    st.dates(),
)
VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(st.characters()), inner), st.tuples(inner, inner)),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_has_words_which_are_always_the_same(value: Any) -> None:
    once = render(value)

    assert once == render(value)
    assert len(set(once.words)) == len(once.words) <= MOST_WORDS


def test_a_set_has_the_same_words_in_every_process() -> None:
    program = (
        "from ares.plugins._rendering import render\n"
        "print(render({'s': {f'a{n}' for n in range(99)}, 'd': {f'k{n}': n for n in range(300)}}).words)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


# --- how similar -----------------------------------------------------------------------------------------------------


@given(st.frozensets(st.sampled_from("abcdef")), st.frozensets(st.sampled_from("abcdef")), st.data())
def test_similarity_is_from_0_to_1_the_same_both_ways_and_1_for_the_same(
    one: frozenset[str], other: frozenset[str], data: st.DataObject
) -> None:
    weight = data.draw(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 2)))

    assert 0.0 <= similarity(one, other, weight) == similarity(other, one, weight) <= 1.0
    assert similarity(one, one, weight) == 1.0


def test_a_word_that_made_a_difference_counts_more_than_one_that_made_none() -> None:
    drawn = random.Random(1)
    seen = []
    for _ in range(60):
        kind, noise = drawn.choice("ab"), drawn.choice("xy")
        seen.append(("left", float(kind == "a"), [kind, noise, "always"]))

    weight = weights(seen)

    assert min(weight["a"], weight["b"]) > 2 * max(weight["x"], weight["y"])
    assert weight["always"] < 0.1 * weight["x"]


def test_one_coincidence_is_not_believed() -> None:
    seen = [("left", 0.0, ["a"])] * 34 + [("left", 1.0, ["often"])] * 5 + [("left", 1.0, ["once"])]

    weight = weights(seen)

    assert weight["once"] < weight["often"] / 2  # and both are as rare as can be


def test_an_embedding_is_as_similar_as_its_direction() -> None:
    assert cosine(normal([3, 4]), normal([6, 8])) == 1.0
    assert cosine(normal([1, 0]), normal([0, 1])) == 0.0
    assert cosine(normal([1, 0]), normal([-1, 0])) == 0.0
    for bad in ([], [0.0], [float("nan")], [float("inf"), 1.0]):
        with pytest.raises(ValueError, match="has no direction"):
            normal(bad)


# --- what is believed ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30), st.integers())
def test_a_belief_is_a_probability_and_so_is_what_is_drawn_from_it(pairs: list[tuple[float, float]], seed: int) -> None:
    evidence = Evidence()
    for weight, score in pairs:
        evidence = evidence.and_also(weight, score)

    assert 0.0 < evidence.mean < 1.0
    assert 0.0 <= evidence.draw(random.Random(seed)) <= 1.0


def test_draws_have_the_mean_of_the_belief() -> None:
    drawn = random.Random(5)
    evidence = Evidence(weight=6.0, good=5.0)

    assert sum(evidence.draw(drawn) for _ in range(4_000)) / 4_000 == pytest.approx(evidence.mean, abs=0.01)


def test_confidences_come_true_as_often_as_they_say(tmp_path: Path) -> None:
    """Each kind of thing has, for each branch, a probability of its own to go well, drawn at random."""
    drawn = random.Random(11)
    truth = {(kind, way): drawn.random() for kind in range(60) for way in WAYS}
    memory = running(ExperienceMemory(tmp_path / "experience.db"))
    file = memory._experiences
    said: list[tuple[float, bool]] = []
    for number in range(800):
        kind, way = drawn.randrange(60), drawn.choice(WAYS)
        confidences = say(memory, at(f"kind{kind}", execution_id=f"e{number}", workflow_id=f"w{kind}"))
        good = drawn.random() < truth[kind, way]
        if way in confidences:
            said.append((confidences[way], good))
        asked, _ = file.asked_in(f"e{number}")
        file.learn(f"e{number}", 0, asked, {each.number: way for each in asked}, float(good))
    memory.stop(alone())

    assert len(said) > 500
    for low, high in ((0.0, 0.35), (0.35, 0.65), (0.65, 1.0)):
        some = [(confidence, good) for confidence, good in said if low <= confidence < high]
        mean, came_true = sum(c for c, _ in some) / len(some), sum(g for _, g in some) / len(some)
        assert came_true == pytest.approx(mean, abs=0.08)


# --- any text is only a text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'say "hello"',
        "it's * NEAR(a b) OR AND NOT ^x -y +z {col}: w",
        "a\0b",
        "'; DROP TABLE experiences; --",
        "\ud800 alone",
        "🙂 emoji",
        "x" * 1_000_000 + " end",
        "",
        "   ",
    ],
)
def test_any_text_is_learned_and_found(tmp_path: Path, text: str) -> None:
    memory = running(ExperienceMemory(tmp_path / "experience.db"))
    file = memory._experiences
    for number in range(2):
        state = at(text, execution_id=f"{text[:50]}{number}", workflow_id=text[:50], variables={text[:50]: text})
        say(memory, state)
        asked, _ = file.asked_in(state.execution_id)
        file.learn(state.execution_id, 0, asked, {each.number: "left" for each in asked}, 1.0)

    assert say(memory, state) == {"left": 0.75}
    memory.stop(alone())


def test_an_instant_is_the_words_of_its_text() -> None:
    assert render(datetime(2026, 1, 2, 3, 4, tzinfo=UTC)).words == ("=2026", "=01", "=02", "=03", "=04", "=00")
