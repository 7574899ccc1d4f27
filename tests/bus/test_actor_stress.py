"""No question without an answer, while the one who is asked comes to an end."""

import itertools
import threading
from typing import Any

import pykka
import pytest

from ares.bus.call import Call, Latch
from ares.bus.card import read
from ares.bus.executions import Executions
from ares.bus.health import PluginState
from ares.bus.resident import House, Resident
from ares.context import NoExecution, NoJournal
from tests.bus.players import LONG, Servant, in_thread

THREADS = 16


def new_resident() -> Resident:
    resident = Resident(read(Servant("servant")), House("", LONG, Executions(), NoJournal(), lambda *_: None))
    resident.move(PluginState.RUNNING)
    resident.actor.begin()
    return resident


def ends(resident: Resident, by_abandoning: bool) -> None:
    if by_abandoning:
        resident.move(PluginState.ABANDONED)
        resident.abandon()
    else:
        resident.actor.end()


@pytest.mark.parametrize("by_abandoning", [True, False])
def test_no_ask_is_left_without_an_answer_while_the_actor_is_stopped(by_abandoning: bool) -> None:
    """16 threads ask and tell while the actor is stopped, 100,000 times. What was answered was either executed or
    refused, and never both."""
    per_thread = 25
    rounds = 100_000 // (THREADS * per_thread)
    for number in range(rounds):
        resident = new_resident()
        start = threading.Barrier(THREADS + 1)
        executed = itertools.count()
        answers: list[list[Call]] = [[] for _ in range(THREADS)]

        def ask(mine: list[Call], resident: Resident = resident, start: Any = start, executed: Any = executed) -> None:
            start.wait(LONG)
            for count in range(per_thread):
                told = count % 3 == 0
                call = resident.call("do", (next, executed), "", NoExecution(), None if told else Latch(1))
                resident.send(call)
                mine.append(call)
                if call.latch is not None and count % 3 == 1:
                    assert call.latch.wait(LONG), "an ask was never answered"

        joins = [in_thread(ask, mine) for mine in answers]
        start.wait(LONG)
        if number % 4:
            threading.Event().wait(0.0005 * (number % 4))
        ends(resident, by_abandoning)
        for join in joins:
            join()
        assert resident.actor.join(LONG)

        calls = list(itertools.chain.from_iterable(answers))
        assert len(calls) == THREADS * per_thread
        assert all(call.is_done for call in calls)
        assert next(executed) == sum(1 for call in calls if call.error is None)
        assert resident.health().mailbox_depth == 0


def test_the_same_through_pykkas_own_ref() -> None:
    """Nobody but ares has it; the seam holds all the same."""
    for _ in range(60):
        resident = new_resident()
        ref = resident.actor.actor_ref
        start = threading.Barrier(THREADS + 1)

        def ask(ref: Any = ref, start: Any = start) -> int:
            start.wait(LONG)
            answered = 0
            for count in range(25):
                try:
                    if count % 2:
                        ref.ask("hello", timeout=LONG)
                    else:
                        ref.tell("hello")
                except pykka.ActorDeadError:
                    pass
                answered += 1
            return answered

        joins = [in_thread(ask) for _ in range(THREADS)]
        start.wait(LONG)
        resident.actor.end()

        assert [join() for join in joins] == [25] * THREADS
        assert resident.actor.join(LONG)
