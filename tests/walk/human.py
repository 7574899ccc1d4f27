"""A human who answers, wherever a shell asks for real, what the script says."""

import threading
from collections import Counter

from ares.questions import Approve, Cause, Question, Reject, RunAgain
from tests.walk.strategies import Case


class Human:
    """An ``interrupt_handler``."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._lock = threading.Lock()
        #: How often each outcome was unknown.
        self._outcomes: Counter[str] = Counter()

    def __call__(self, question: Question) -> Approve | Reject | RunAgain:
        with self._lock:
            self._outcomes[question.path] += question.cause is Cause.OUTCOME
            number = self._outcomes[question.path] - 1
        return self._case.script.reply(self._case.key_of(question.path), question, number)
