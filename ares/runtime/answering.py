"""Questions and answers from outside of a walk: what is open, and how an answer is left for whoever walks."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from ares.engine.asking import Given, answered, body_of, name_of
from ares.engine.definitions import Definition
from ares.engine.driver import Driver
from ares.engine.results import question_of
from ares.errors import QuestionAnsweredError, QuestionNotFoundError, UsageError
from ares.events import EventType
from ares.journal.protocol import ExecutionRow, Journal, Store
from ares.questions import Question
from ares.records import ExecutionStatus
from ares.runtime.following import Following
from ares.runtime.reading import Reader
from ares.values import Codec
from ares.walk import facts as f

#: Reads the values of workflows that this Runtime has not seen.
_UNKNOWN: Final = Codec()
#: Where questions may be open.
_OPEN = (ExecutionStatus.WAITING, ExecutionStatus.RUNNING)


class Answering:
    """Finds open questions, and leaves answers in the inbox of their execution.

    Args:
        journal: where executions are kept.
        reader: reads them.
        known: the definition last seen under a workflow's id, which knows its classes.
        live: the walk of an execution in this process.
        following: knows what is open where answers come one by one.
        checks_values: whether values are refused that could not be stored, although references are kept.
    """

    def __init__(
        self,
        journal: Journal | Store,
        reader: Reader,
        known: Callable[[str], Definition | None],
        live: Callable[[str], Driver | None],
        following: Following,
        *,
        checks_values: bool,
    ) -> None:
        self._journal = journal
        self._reader = reader
        self._known = known
        self._live = live
        self._following = following
        self._checks_values = checks_values

    def questions(self, execution_id: str | None) -> Iterator[Question]:
        """The questions that nobody has answered, of one execution or of all, the oldest execution first.

        Raises:
            ExecutionNotFoundError: there is no such execution.
        """
        if execution_id is not None:
            rows = [self._journal.execution(execution_id)]
        else:
            rows = list(reversed(self._journal.executions(statuses=_OPEN)))
        for row in rows:
            for asked, at in self._unanswered(row):
                yield question_of(row.execution_id, asked, at)

    def answer(self, place: "Place", given: Given) -> None:
        """Leave an answer; committed when this returns.

        Raises:
            ExecutionNotFoundError: there is no such execution.
            QuestionNotFoundError: the step asks nothing, or something else.
            QuestionAnsweredError: somebody was faster.
            UsageError: it is no answer to such a question.
            SerializationError: its value cannot be stored.
        """
        execution_id = place.execution_id
        row = self._journal.execution(execution_id)
        known = self._known(row.workflow_id)
        codec = _UNKNOWN if known is None else known.codec
        asked = self._find(row, place, codec)
        fact = answered(asked, given)
        if not self._leave(execution_id, name_of(asked), self._body(fact, codec)):
            row = self._journal.execution(execution_id)
            if ExecutionStatus(row.status).is_final:
                self._find(row, place, codec)  # it ended just now, with this question answered or not
            raise QuestionAnsweredError(execution_id, asked.path, asked.key)

    def _body(self, fact: f.Answered, codec: Codec) -> Any:
        """What is left of an answer."""
        if self._journal.keeps_references:
            if self._checks_values:
                body_of(fact, codec)
            return fact
        return body_of(fact, codec)

    def _leave(self, execution_id: str, name: str, body: Any) -> bool:
        """Leave an answer, unless there is one. If the walk is in this process, whoever waits for it from now on waits
        for what follows."""
        driver = self._live(execution_id)
        if driver is not None:
            driver.expect_answer(name)
        left = False
        try:
            left = self._journal.request(execution_id, "answer", body, name)
        finally:
            if driver is not None and not left:
                driver.expect_no_answer(name)
        return left

    def _find(self, row: ExecutionRow, place: "Place", codec: Codec) -> f.Asked:
        if ExecutionStatus(row.status).is_final:
            self._following.leave(row.execution_id)
        else:
            asked = self._following.question(self._journal, row, codec, place.path)
            if asked is not None and place.key in (None, asked.key) and place.round in (None, asked.round):
                return asked
        key = self._answered(place)
        if key is not None:
            raise QuestionAnsweredError(row.execution_id, place.path, key)
        status = ExecutionStatus(row.status)
        why = f"the execution is {status.value}" if status.is_final else ""
        raise QuestionNotFoundError(row.execution_id, place.path, place.key, why)

    def _answered(self, place: "Place") -> str | None:
        """The key of what was answered there, in the round that is meant: the present one unless it is named."""
        in_round = place.round
        if in_round is None:
            states = self._reader.checkpoint(place.execution_id).step_states
            state = states.get(place.path) or states.get(place.path.rpartition("[")[0])
            in_round = None if state is None else state.round
        for event in self._reader.events(place.execution_id, 0):
            told = event.payload
            if event.type == EventType.INTERRUPT_RESOLVED and told["path"] == place.path:
                key: str = told["key"]
                if place.key in (None, key) and in_round in (None, told["round"]):
                    return key
        return None

    def _unanswered(self, row: ExecutionRow) -> list[tuple[f.Asked, int]]:
        found = self._reader.questions(row)
        if found and row.requests:
            taken = self._journal.named_requests(row.execution_id)
            found = [(asked, at) for asked, at in found if name_of(asked) not in taken]
        return found


@attrs.frozen
class Place:
    """Which question: of which execution and step; None for whichever key or round is open."""

    execution_id: str
    path: str
    key: str | None = None
    round: int | None = None


def place_of(question: Question | str, step: str | None, key: str | None, in_round: int | None) -> Place:
    """The place of a question, which may be given by itself or by name.

    Raises:
        UsageError: neither names a step.
    """
    if isinstance(question, Question):
        return Place(question.execution_id, question.path, question.key, question.round)
    if not isinstance(question, str):
        raise UsageError(f"answer() takes a Question or an execution's id, not {question!r}")
    if not step:
        raise UsageError("answer() by an execution's id needs step=, the path of the step that asks")
    return Place(question, step, key, in_round)
