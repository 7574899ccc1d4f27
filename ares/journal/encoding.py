"""Facts and notes as journal text, and back.

A body is one JSON object with short names, in ASCII; what has its usual value is left out. Values of the user's stand
in it as the codec wrote them. Kind and path are stored beside the body and are not repeated in it, except in an entry
that a plugin recorded, which is kept as a whole. Which fields there are is the table below; how the values of a field
look is ``ares.journal._forms``.

Never stored: the living exception of a failure, which an earlier process could not give back, what variables add up to
at the end of a round, and more of a duration than its microseconds.
"""

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import attrs

from ares.errors import SerializationError
from ares.journal import _forms as form
from ares.journal._forms import Form
from ares.journal.notes import Emitted, Note, Recorded, Remembered, ToolCalled
from ares.questions import AnswerAction, Cause, OnReject
from ares.records import ExecutionStatus
from ares.values import Codec
from ares.walk import facts as f


class Unpacker(Protocol):
    """All that reading needs of a codec."""

    def unpack(self, tree: object, /) -> Any:
        """The value of a text that was already parsed."""


def encode(entry: f.Fact | Note, codec: Codec) -> str:
    """The body of a fact or note.

    Raises:
        SerializationError: something in it cannot be stored; says what, and where in the value.
    """
    plan = _PLANS.get(type(entry))
    if plan is None:
        raise SerializationError("is neither a fact nor a note", type_name=type(entry).__name__)
    parts = []
    for value, (usual, head, write, label) in zip(plan.values_of(entry), plan.columns, strict=True):
        if value is not usual:
            try:
                parts.append(head + write(value, codec))
            except Exception as error:
                _cannot_write(error, label, entry)
    return "{" + ",".join(parts) + "}"


def decode(kind: str, path: str, body: str, codec: Unpacker) -> f.Fact | Note:
    """The fact or note that ``encode`` wrote.

    Raises:
        SerializationError: a text that ``encode`` cannot have written, a kind that this version of ares does not know,
            or a value of a class that the program does not name; says of which kind and path.
    """
    plan = _BY_KIND.get(kind)
    if plan is None:
        raise SerializationError("this version of ares knows no such kind of entry", where=_entry(kind, path))
    try:
        tree, end = _parse(body)
        if end != len(body):
            raise SerializationError("the stored text is damaged: there is more behind its end")
        unpack = codec.unpack if '"$' in body else _as_it_is
        values = plan.usual.copy()
        if plan.has_path:
            values["path"] = path
        for name, raw in tree.items():
            attribute, read = plan.readers[name]
            values[attribute] = read(raw, unpack)
        return plan.cls(**values)  # type: ignore[no-any-return]  # a class of the table is one of facts or notes
    except SerializationError as error:
        error.where = _entry(kind, path)
        raise
    except Exception as error:  # whatever damaged text may lead to
        problem = f"the stored text cannot be read: {type(error).__name__}: {error}"
        raise SerializationError(problem[:300], where=_entry(kind, path)) from error


def _cannot_write(error: Exception, label: str, entry: f.Fact | Note) -> NoReturn:
    if not isinstance(error, SerializationError):
        error = SerializationError(f"cannot be stored: {type(error).__name__}: {error}"[:300])
    error.where = label.format(entry, error.where)
    raise error


def _entry(kind: str, path: str) -> str:
    return f"journal entry {kind!r}" + (f" of step {path!r}" if path else "")


def _as_it_is(tree: Any) -> Any:
    return tree


def _refuse_constant(name: str) -> NoReturn:
    raise SerializationError(f"the stored text is damaged: {name} is not JSON")


_parse = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


# --- the table ---------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    attribute: str
    name: str
    form: Form
    #: How an error names it: {0} is the entry, {1} what the form says itself.
    label: str = ""


_ROUND = _Field("round", "r", form.INT)
_EPOCH = _Field("epoch", "e", form.INT)
_ATTEMPT = _Field("attempt", "a", form.INT)
_REASON = _Field("reason", "why", form.TEXT)
_DURATION = _Field("duration", "d", form.SECONDS)
_VERDICT = _Field("verdict", "v", form.TEXT)
_ERROR = _Field("error", "x", form.ERROR)
_TIMEOUT = _Field("timeout", "timeout", form.optional(form.FLOAT))

_FIELDS: Final[dict[type, tuple[_Field, ...]]] = {
    f.Created: (
        _Field("workflow_id", "workflow", form.TEXT),
        _Field("version", "version", form.TEXT),
        _Field("digest", "digest", form.TEXT),
        _Field("shape", "shape", form.TEXT),
        _Field("nodes", "nodes", form.NODES),
        _Field("inputs", "inputs", form.MAPPING, "the inputs"),
        _Field("variables", "variables", form.MAPPING, "the initial values of the variables"),
        _Field("reducers", "reducers", form.MAPPING),
        _TIMEOUT,
        _Field("metadata", "metadata", form.MAPPING),
    ),
    f.Resumed: (
        _EPOCH,
        _Field("in_flight", "cut", form.TEXTS),
        _Field("set_back", "back", form.SET_BACK),
        _Field("reopened", "reopened", form.BOOL),
        _Field("accepted", "accepted", form.optional(form.TEXTS)),
        _Field("nodes", "nodes", form.optional(form.NODES)),
        _Field("digest", "digest", form.TEXT),
        _Field("shape", "shape", form.TEXT),
        _Field("version", "version", form.TEXT),
        _TIMEOUT,
    ),
    f.CancelRequested: (_REASON,),
    f.DeadlinePassed: (_Field("timeout", "s", form.FLOAT), _EPOCH),
    f.Interrupted: (_Field("in_flight", "cut", form.TEXTS), _REASON),
    f.Ended: (
        _Field("status", "status", form.choice(ExecutionStatus)),
        _Field("error", "x", form.optional(form.ERROR)),
    ),
    f.RoundEnded: (
        _ROUND,
        _EPOCH,
        _Field("again", "again", form.BOOL),
        _REASON,
        _Field("by", "by", form.TEXT),
        _Field("error", "x", form.optional(form.ERROR)),
    ),
    f.RoundStarted: (_ROUND, _EPOCH),
    f.Checked: (_ROUND, _EPOCH, _Field("holds", "ok", form.BOOL)),
    f.Started: (_ROUND, _EPOCH, _ATTEMPT, _VERDICT),
    f.Opened: (
        _ROUND,
        _EPOCH,
        _ATTEMPT,
        _Field("length", "n", form.optional(form.INT)),
        _Field("set_back", "back", form.SET_BACK),
    ),
    f.Succeeded: (
        _ROUND,
        _EPOCH,
        _ATTEMPT,
        _Field("output", "o", form.VALUE, "the output of step {0.path!r}"),
        _Field("writes", "w", form.WRITES, "{1} set by step {0.path!r}"),
        _Field("targets", "to", form.optional(form.TEXTS)),
        _DURATION,
        _VERDICT,
    ),
    f.Failed: (
        _ROUND,
        _EPOCH,
        _ATTEMPT,
        _ERROR,
        _Field("after", "then", form.choice(f.After)),
        _Field("delay", "in", form.FLOAT),
        _DURATION,
        _Field("unknown", "u", form.BOOL),
        _Field("retryable", "again", form.BOOL),
        _Field("recovery", "rec", form.INT),
    ),
    f.Completed: (_ROUND, _EPOCH, _ATTEMPT),
    f.Skipped: (_ROUND, _EPOCH, _Field("reason", "why", form.choice(f.SkipReason)), _Field("origin", "of", form.TEXT)),
    f.Routed: (
        _ROUND,
        _EPOCH,
        _Field("targets", "to", form.TEXTS),
        _Field("source", "by", form.TEXT),
        _REASON,
        _Field("scores", "scores", form.SCORES),
        _Field("abstained", "not", form.TEXTS),
    ),
    f.Unrouted: (_ROUND, _EPOCH, _ERROR),
    f.Waiting: (_Field("paths", "on", form.TEXTS),),
    f.Asked: (
        _ROUND,
        _EPOCH,
        _ATTEMPT,
        _Field("key", "k", form.TEXT),
        _Field("message", "m", form.TEXT),
        _Field("payload", "p", form.VALUE, "the payload of the question {0.key!r} of step {0.path!r}"),
        _Field("cause", "of", form.choice(Cause)),
        _Field("on_reject", "no", form.choice(OnReject)),
    ),
    f.Answered: (
        _ROUND,
        _EPOCH,
        _ATTEMPT,
        _Field("key", "k", form.TEXT),
        _Field("action", "do", form.choice(AnswerAction)),
        _Field("value", "v", form.VALUE, "the answer to {0.key!r} of step {0.path!r}"),
        _Field("feedback", "f", form.TEXT),
    ),
    f.Continued: (_ROUND, _EPOCH, _ATTEMPT),
    Remembered: (
        _ROUND,
        _Field("born", "b", form.INT),
        _Field("key", "k", form.TEXT),
        _Field("value", "v", form.VALUE, "the result of once({0.key!r}) in step {0.path!r}"),
    ),
    ToolCalled: (
        _ROUND,
        _ATTEMPT,
        _Field("tool_name", "tool", form.TEXT),
        _Field("input", "in", form.SHOWN),
        _Field("output", "out", form.SHOWN),
        _DURATION,
        _Field("success", "ok", form.BOOL),
        _Field("error", "x", form.TEXT),
    ),
    Emitted: (
        _ROUND,
        _ATTEMPT,
        _Field("type", "t", form.TEXT),
        _Field("payload", "p", form.MAPPING, "the payload of event {0.type!r}"),
        _Field("module", "m", form.TEXT),
    ),
    Recorded: (
        _Field("writer", "by", form.TEXT),
        _Field("entry", "entry", form.ENTRY, "{1} recorded by plugin {0.writer!r}"),
    ),
}

#: What a field has that has no default of its own, in nearly every entry.
_USUAL: Final[dict[str, Any]] = {"round": 1, "epoch": 0, "attempt": 1, "born": 0, "holds": True, "success": True}

_ALWAYS = object()


class _Plan:
    """What encoding and decoding need to know of one class, laid out for speed."""

    __slots__ = ("cls", "columns", "has_path", "readers", "usual", "values_of")

    def __init__(self, cls: Any, fields: Iterable[_Field]) -> None:
        defaults = {a.name: a.default for a in attrs.fields(cls)}
        self.cls = cls
        self.has_path = "path" in defaults
        #: Values of what has no default in the class and may be left out of the text.
        self.usual: dict[str, Any] = {}
        #: (usual value, name in the text, write, label). Left out is what is this very object: what is only equal to
        #: it is written, which costs bytes and nothing else; nobody's ``==`` is called.
        self.columns: list[tuple[object, str, Callable[[Any, Codec], str], str]] = []
        for field in fields:
            default = defaults[field.attribute]
            if default is attrs.NOTHING:
                default = _USUAL.get(field.attribute, _ALWAYS)
                if default is not _ALWAYS:
                    self.usual[field.attribute] = default
            elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class, whatever its stub says
                default = _ALWAYS
            label = field.label or f"the {field.attribute} in {_label(cls)}"
            self.columns.append((default, f'"{field.name}":', field.form.write, label))
        self.readers = {field.name: (field.attribute, field.form.read) for field in fields}
        self.values_of = _getter([field.attribute for field in fields])


def _label(cls: Any) -> str:
    return _entry(cls.kind, "") + (" of step {0.path!r}" if "path" in {a.name for a in attrs.fields(cls)} else "")


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda entry: (get(entry),)
    return attrgetter(*names)


_PLANS: Final[dict[type, _Plan]] = {cls: _Plan(cls, fields) for cls, fields in _FIELDS.items()}
_BY_KIND: Final[dict[str, _Plan]] = {plan.cls.kind: plan for plan in _PLANS.values()}
