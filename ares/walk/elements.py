"""How the elements of a map come and go.

An element is made when its work is asked for, and reduced to a few bytes when it ends: a map of 100,000 costs what is
under way. The map stands in the queue of ready work once, for the first element that may begin.
"""

import heapq

from ares.walk import facts as f
from ares.walk.agenda import Agenda, CutShort, Work, WorkKind
from ares.walk.beginning import give_up, may_run, open_child, reconcile, retry
from ares.walk.conclude import map_verdict
from ares.walk.instance import CUTTING, Instance
from ares.walk.parts import NEW, Parts
from ares.walk.questions import close, is_told, may_go_on, wait
from ares.walk.stopping import may_begin, may_retry, takes_elements
from ares.walk.table import FINAL, Phase


def take_up(agenda: Agenda, owner: Instance) -> None:
    """Queue what is due of a map that opens, or that was open when its process ended."""
    parts = _parts(owner)
    parts.due = []
    parts.next = 0
    parts.holding.clear()
    parts.unsettled.clear()
    parts.queued = False
    for i, element in sorted(parts.active.items()):
        element.snapshot = owner.snapshot
        if element.phase is Phase.PENDING:
            heapq.heappush(parts.due, i)
            continue
        if element.phase not in (Phase.WAITING, Phase.ANSWERED) and not is_told(element):
            parts.holding[i] = element
        agenda.follow(element)
    offer(agenda, owner)
    conclude(agenda, owner)


def offer(agenda: Agenda, owner: Instance) -> None:
    """Queue the map, once, while an element of it may begin."""
    parts = _parts(owner)
    limit = owner.node.spec.max_concurrency
    if parts.queued or owner.phase is not Phase.OPEN or (limit is not None and len(parts.holding) >= limit):
        return
    i = first(owner)
    if i is not None:
        parts.queued = True
        agenda.push(WorkKind.ELEMENT, owner, i)


def take(agenda: Agenda, owner: Instance) -> Work | None:
    """The work of the first element that may begin; None if there is none, or it has no body to run."""
    if owner.phase is not Phase.OPEN:
        return None
    parts = _parts(owner)
    parts.queued = False
    i = first(owner)
    if i is None:
        conclude(agenda, owner)
        return None
    if parts.due:
        heapq.heappop(parts.due)  # it is the first of these
    else:
        parts.next = i + 1
    element = parts.active.get(i) or agenda.state.new_element(owner, i)
    parts.holding[i] = element
    offer(agenda, owner)
    if element.has_child:
        open_child(agenda, element)
    elif element.phase is Phase.ANSWERED or may_run(agenda, element):
        return Work(WorkKind.BODY, element, element.epoch)
    return None


def put_back(agenda: Agenda, element: Instance) -> None:
    """An element's work was taken and not begun."""
    owner, i = element.map_step, element.index
    assert i is not None
    parts = owner.parts
    if parts is not None and parts.holding.get(i) is element:
        del parts.holding[i]
        heapq.heappush(parts.due, i)
        offer(agenda, owner)


def due(agenda: Agenda, element: Instance) -> None:
    """The delay before an element's retry is over."""
    assert element.index is not None
    heapq.heappush(element.siblings.due, element.index)
    offer(agenda, element.map_step)


def settle(agenda: Agenda, element: Instance) -> None:
    """Draw the consequences of where an element stands."""
    owner, i = element.map_step, element.index
    parts = owner.parts
    if parts is None or i is None:
        return
    if element.phase in FINAL:
        parts.holding.pop(i, None)
        parts.unsettled.discard(i)
        if element.phase is Phase.FAILED and not takes_elements(owner):
            _withdraw_pending(parts)
    elif element.phase is Phase.RETRYING:
        parts.holding.pop(i, None)
        retry(agenda, element)
    elif element.phase is Phase.RECONCILING:
        reconcile(agenda, element)
        return
    elif element.phase is Phase.WAITING:
        parts.holding.pop(i, None)
        wait(agenda, element)
    elif element.phase is Phase.PENDING or (element.phase is Phase.ANSWERED and may_go_on(agenda, element)):
        parts.holding.pop(i, None)  # if its answer came before its question was settled
        heapq.heappush(parts.due, i)
    offer(agenda, owner)
    conclude(agenda, owner)


def conclude(agenda: Agenda, owner: Instance) -> None:
    """End a map step whose elements have all ended, or will not begin any more."""
    parts = _parts(owner)
    over = parts.ended == parts.length or (not parts.active and not takes_elements(owner))
    if over and not parts.unsettled and owner.phase is Phase.OPEN:
        agenda.emit(map_verdict(owner), owner)


def stop(agenda: Agenda, owner: Instance, reason: f.SkipReason) -> None:
    """No element begins any more; unless it is fail_fast, what runs is cut short."""
    parts = _parts(owner)
    for i, element in list(parts.active.items()):
        if element.phase is Phase.PENDING:
            parts.withdraw(i)
        elif element.phase is Phase.RETRYING and not may_retry(element):
            give_up(agenda, element)
        elif element.phase is Phase.WAITING:
            close(agenda, element)
        elif element.phase is Phase.ANSWERED and not may_retry(element):
            may_go_on(agenda, element)
        elif element.phase is Phase.OPEN:
            continue
        if reason in CUTTING:
            agenda.command(CutShort(element, element.epoch, reason))
    conclude(agenda, owner)


def _withdraw_pending(parts: Parts) -> None:
    """No element begins any more, nor does one that was cut short begin again, though its work was taken."""
    for i in [i for i, element in parts.active.items() if element.phase is Phase.PENDING]:
        parts.withdraw(i)
        parts.holding.pop(i, None)


def first(owner: Instance) -> int | None:
    """The first element that may begin now."""
    parts = _parts(owner)
    while parts.due:
        i = parts.due[0]
        element = parts.active.get(i)
        if element is not None:
            if element.phase in (Phase.PENDING, Phase.RETRYING, Phase.ANSWERED) and may_begin(element):
                return i
            if element.phase is Phase.PENDING:
                parts.withdraw(i)
        elif parts.states[i] == NEW and takes_elements(owner):
            return i
        heapq.heappop(parts.due)
    if not takes_elements(owner):
        return None
    i = parts.states.find(NEW, parts.next)
    parts.next = parts.length if i < 0 else i
    return None if i < 0 else i


def _parts(owner: Instance) -> Parts:
    assert owner.parts is not None
    return owner.parts
