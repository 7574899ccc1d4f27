"""From the text of ``--input name=value`` and ``--inputs-json`` to the values that a workflow declares.

A text is read as its declared type reads it, and as JSON where the type has parts. Nothing is guessed or rounded: what
does not fit is refused with the input's name, the value and the type.
"""

import enum
import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from ares.cli.durations import span
from ares.cli.text import cut
from ares.errors import UsageError
from ares.workflow import Input, Workflow

_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0"})
_NONE = frozenset({"null", "none"})


class Misfit(Exception):
    """A value that is not what was declared. ``rule`` says what would be."""

    def __init__(self, rule: str = "") -> None:
        self.rule = rule
        super().__init__(rule)


def read_inputs(workflow: Workflow, texts: Sequence[str], document: str | None) -> dict[str, Any]:
    """The inputs of a run.

    Args:
        workflow: what declares them.
        texts: each ``name=value``; they count more than the document.
        document: a JSON object, or ``@`` and the name of a file that holds one.

    Raises:
        UsageError: something that is no input, is missing, or does not fit.
    """
    found: dict[str, Any] = {}
    for name, value in _object(document).items():
        declared = workflow.inputs.get(name)
        found[name] = value if declared is None else _fitted(name, declared, value, from_json)
    for name, text in _pairs(texts).items():
        declared = workflow.inputs.get(name)
        found[name] = text if declared is None else _fitted(name, declared, text, from_text)
    # What is unknown or missing is said by the workflow, which knows what is permitted.
    return workflow.bind_inputs(found)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in texts:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"input {each!r} is not of the form name=value")
        if name in found:
            raise UsageError(f"input {name!r} is given twice")
        found[name] = value
    return found


def _object(document: str | None) -> dict[str, Any]:
    if document is None:
        return {}
    text, where = document, "--inputs-json"
    if document.startswith("@"):
        where = f"--inputs-json {document}"
        try:
            text = Path(document[1:]).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise UsageError(f"{where}: the file cannot be read: {error}") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where} must be a JSON object, {{name: value}}")
    return value


def _fitted(name: str, declared: Input, value: Any, convert: Callable[[Any, Any], Any]) -> Any:
    try:
        return convert(value, declared.type)
    except Misfit as misfit:
        rule = f": {misfit.rule}" if misfit.rule else ""
        raise UsageError(f"input {name!r}: {cut(repr(value), 200)} is no {type_name(declared.type)}{rule}") from misfit


# --- one text -------------------------------------------------------------------------------------------------


def from_text(text: str, kind: Any) -> Any:
    """The value of type ``kind`` that ``text`` says.

    Raises:
        Misfit: it says none.
    """
    kind = _bare(kind)
    if kind is object or kind is Any:
        return _json_or_text(text)
    if _is_union(kind):
        return _arm_from_text(text, typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal and text in typing.get_args(kind):
        return text
    read = _READERS.get(kind) if isinstance(kind, type) else None
    if read is not None:
        return _guarded(read, text)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _member(text, kind)
    if isinstance(kind, type) and issubclass(kind, str | PurePath):
        return _guarded(kind, text)
    return from_json(_json(text), kind)


def _arm_from_text(text: str, arms: tuple[Any, ...]) -> Any:
    """Of a union: ``null`` where None is one; the text itself where that fits; else the first that the text says."""
    if type(None) in arms and text.lower() in _NONE:
        return None
    # What takes any text comes last.
    greedy = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, str | PurePath)]
    for arm in [*(a for a in arms if a not in greedy and a is not type(None)), *greedy]:
        try:
            return from_text(text, arm)
        except Misfit:
            continue
    raise Misfit


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON ({error})") from error


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _guarded(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except Misfit:
        raise
    except (ValueError, ArithmeticError, TypeError, UsageError) as error:
        raise Misfit(str(error) if isinstance(error, UsageError) else "") from error


def _bool(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE and word not in _FALSE:
        raise Misfit("write true, yes, 1, false, no or 0")
    return word in _TRUE


def _timedelta(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except ValueError:
        return span(text)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise Misfit from error


def _none(text: str) -> None:
    if text.lower() not in _NONE:
        raise Misfit("write null")


def _no_bytes(_text: str) -> bytes:
    raise Misfit("bytes cannot be given on a command line; name a file instead")


#: How a text is read as each type that has a form of its own.
_READERS: Mapping[type, Callable[[str], Any]] = types.MappingProxyType(
    {
        str: str,
        int: int,
        float: float,
        bool: _bool,
        complex: complex,
        bytes: _no_bytes,
        Path: Path,
        datetime: datetime.fromisoformat,
        date: date.fromisoformat,
        time: time.fromisoformat,
        timedelta: _timedelta,
        Decimal: _decimal,
        UUID: UUID,
        type(None): _none,
    }
)


def _member(text: str, kind: type[enum.Enum]) -> enum.Enum:
    """A member by its name; by its value too where that is a text."""
    if text in kind.__members__:
        return kind[text]
    for member in kind:
        if isinstance(member.value, str) and member.value == text:
            return member
    raise Misfit(f"it is one of {', '.join(list(kind.__members__)[:20])}")
