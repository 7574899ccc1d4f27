"""The rules for single values: which numbers, ids and seconds are legal, and what to say when one is not.

Each function answers with the problem as words, empty when there is none; who raises what about it, and where the
value stood, is the caller's business.
"""

import difflib
import re
from collections.abc import Collection
from itertools import islice

#: The longest span that may be asked for, in seconds (about 31 years); waits of any platform can hold it.
MAX_SECONDS = 1_000_000_000.0
MAX_ID_LENGTH = 200
#: They build paths: ``child/step``, ``measure[3]``, ``child#2/step``.
PATH_CHARACTERS = "/[]#"

# A lone surrogate is no text: it cannot be encoded, shown or stored.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PATH = re.compile(r"[/\[\]#]")
_MAX_CANDIDATES = 1_000


def whole_problem(value: object, least: int) -> str:
    """Say why ``value`` is not a whole number of at least ``least``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return ""
    return f"must be a whole number of at least {least}, not {value!r}"


def number_problem(value: object, least: float, most: float) -> str:
    """Say why ``value`` is not a number from ``least`` to ``most``, both included. NaN never is."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return ""
    return f"must be a number from {least:g} to {most:g}, not {value!r}"


def timeout_problem(value: object) -> str:
    """Say why ``value`` is neither None nor a usable time limit in seconds."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_SECONDS:
        return ""
    return f"must be None or a number of seconds above 0, at most {MAX_SECONDS:g}, not {value!r}"


def text_problem(value: object) -> str:
    """Say why ``value`` cannot be the id of a workflow: it names things, and is shown in one line."""
    if not isinstance(value, str):
        return f"an id is a str, not {value!r}"
    if not value or value.isspace():
        return f"an id must not be empty or blank: {value!r}"
    if len(value) > MAX_ID_LENGTH:
        return f"an id has at most {MAX_ID_LENGTH} characters, this one {len(value):,}: {value[:20]!r}..."
    if _UNPRINTABLE.search(value):
        return f"an id holds no control characters and no lone surrogates: {value!r}"
    return ""


def step_id_problem(value: object) -> str:
    """Say why ``value`` cannot be the id of a step: besides being an id, it is one segment of a path."""
    problem = text_problem(value)
    if not problem and isinstance(value, str) and _PATH.search(value):
        problem = f"a step id holds none of {' '.join(PATH_CHARACTERS)}, which build paths: {value!r}"
    return problem


def did_you_mean(wrong: object, names: Collection[str]) -> str:
    """Give ``; did you mean 'x'?`` for the nearest of ``names``, or nothing. Large collections are sampled."""
    if not isinstance(wrong, str) or len(wrong) > MAX_ID_LENGTH:
        return ""
    candidates: Collection[str] = names
    if len(names) > _MAX_CANDIDATES:
        near = (n for n in names if abs(len(n) - len(wrong)) <= 1 and (n[:1] == wrong[:1] or n[-1:] == wrong[-1:]))
        candidates = list(islice(near, _MAX_CANDIDATES))
    found = difflib.get_close_matches(wrong, candidates, 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def listed(names: Collection[str]) -> str:
    """Give the names for a message: quoted, comma separated, the first twenty of many; ``none`` of none."""
    shown = ", ".join(map(repr, islice(names, 20)))
    return f"{shown}, ... ({len(names):,} in all)" if len(names) > 20 else shown or "none"
