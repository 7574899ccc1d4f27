"""Whether nothing was lost, doubled or stuck. Pure: evidence in, violations out, so that it can be shown to find them.

A process that is stopped may be in the middle of a body; when it goes on, its lease lost, it does the rest of that body
before it hears of that. No store can prevent this: it is what idempotency keys are for. So for each time that a process
was stopped, one body of each execution is let pass, under the same key; nothing else is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ares import EventType, ExecutionStatus
from benchmarks.soak.evidence import Evidence, Seen, Stop
from benchmarks.soak.plan import Plan
from benchmarks.soak.work import Effect, attempts_of, value_of


def violations(plan: Plan, evidence: Evidence) -> list[str]:
    """What is not as it must be, in words; nothing if all is well."""
    found = list(evidence.troubles)
    found += _unlike_the_plan(plan, evidence.executions)
    effects = _by_place(evidence.effects)
    found += _strangers(plan, effects)
    for execution in evidence.executions:
        for problem in (
            *_stuck(execution),
            *_numbers(execution),
            *_outputs(plan, execution),
            *_attempts(plan, execution),
        ):
            found.append(f"{execution.execution_id}: {problem}")
        found += _effects(plan, execution, effects, evidence.stops)
    found += _keys(effects)
    return found


# --- nothing is lost or stuck ----------------------------------------------------------------------------------------


def _unlike_the_plan(plan: Plan, executions: Iterable[Seen]) -> Iterator[str]:
    there = Counter(execution.execution_id for execution in executions)
    for id_ in plan.ids:
        if not there[id_]:
            yield f"{id_} is lost: the store does not know it"
    for id_, times in there.items():
        if id_ not in plan.ids:
            yield f"{id_} is nobody's: it was not to be"
        if times > 1:
            yield f"{id_} is there {times} times"


def _stuck(execution: Seen) -> Iterator[str]:
    if execution.status is not ExecutionStatus.COMPLETED:
        yield f"it is {execution.status}"
    if execution.owner:
        yield f"it is still claimed by {execution.owner}"


def _outputs(plan: Plan, execution: Seen) -> Iterator[str]:
    start = int(execution.execution_id[1:])
    for number in range(plan.steps):
        output = execution.outputs.get(f"s{number}")
        value = output.get("value") if isinstance(output, dict) else output
        if value != value_of(start, number):
            yield f"s{number} made {value!r}, not {value_of(start, number)}"
    if more := sorted(execution.outputs.keys() - {f"s{number}" for number in range(plan.steps)}):
        yield f"there are outputs of {', '.join(more)}"


# --- the journal is whole --------------------------------------------------------------------------------------------


def _numbers(execution: Seen) -> Iterator[str]:
    numbers = [event.seq for event in execution.events]
    for expected, number in enumerate(numbers, 1):
        if number != expected:
            yield f"event {expected} has the number {number}"
            break
    if len(numbers) != execution.last_seq:
        yield f"it has {len(numbers)} events, and a checkpoint of {execution.last_seq}"


def _attempts(plan: Plan, execution: Seen) -> Iterator[str]:
    """Where attempts are not numbered as they must be: one more for each that failed, the same for one cut short."""
    steps = {f"s{number}": _StepStory(attempts_of(number)) for number in range(plan.steps)}
    told: Counter[str] = Counter()
    for event in execution.events:
        if event.type in (EventType.WORKFLOW_INTERRUPTED, EventType.WORKFLOW_RESUMED):
            for path, story in steps.items():
                story.is_cut_short |= path in event.paths
        elif event.type in (EventType.WORKFLOW_STARTED, EventType.WORKFLOW_COMPLETED):
            told[event.type] += 1
        elif event.path in steps:
            for problem in steps[event.path].hear(event.type, event.attempt):
                yield f"{event.path}: {problem} (event {event.seq})"
        else:
            yield f"{event.type} {event.path!r}, which nothing should lead to (event {event.seq})"
    for type_ in (EventType.WORKFLOW_STARTED, EventType.WORKFLOW_COMPLETED):
        if told[type_] != 1:
            yield f"{type_} was told {told[type_]} times"
    for path, story in steps.items():
        yield from (f"{path}: {problem}" for problem in story.end())


class _StepStory:
    """What the events of one step may be."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._attempt = 1
        self._is_under_way = False
        self._completed = 0
        self._remembered = 0
        #: Whether it was found under way by whoever went on.
        self.is_cut_short = False

    def hear(self, type_: str, attempt: int) -> Iterator[str]:
        """What is wrong with the next event."""
        if self._completed:
            yield f"{type_} after it was completed"
        if type_ == EventType.STEP_REMEMBERED:
            self._remembered += 1
            return
        if attempt != self._attempt:
            yield f"{type_} of attempt {attempt}, where it was at {self._attempt}"
        if type_ == EventType.STEP_STARTED:
            if self._is_under_way and not self.is_cut_short:
                yield f"attempt {attempt} started twice, and nobody had taken it over"
            self._is_under_way, self.is_cut_short = True, False
        elif type_ == EventType.STEP_RETRYING:
            self._attempt += 1
            self._is_under_way = False
        elif type_ == EventType.STEP_COMPLETED:
            self._completed += 1
        else:
            yield f"{type_}, which nothing should lead to"

    def end(self) -> Iterator[str]:
        """What is wrong in the end."""
        if self._completed != 1:
            yield f"it was completed {self._completed} times"
        if self._attempt != self._attempts:
            yield f"it took {self._attempt} attempts, not {self._attempts}"
        if self._remembered != 1:
            yield f"its effect was recorded {self._remembered} times"


# --- effects ---------------------------------------------------------------------------------------------------------

_Place = tuple[str, str]


def _by_place(effects: Iterable[Effect]) -> dict[_Place, list[Effect]]:
    found: dict[_Place, list[Effect]] = defaultdict(list)
    for effect in sorted(effects, key=lambda effect: effect.at):
        found[effect.execution_id, effect.step].append(effect)
    return found


def _strangers(plan: Plan, effects: dict[_Place, list[Effect]]) -> Iterator[str]:
    ids, steps = set(plan.ids), {f"s{number}" for number in range(plan.steps)}
    for id_, step in effects:
        if id_ not in ids or step not in steps:
            yield f"{id_} {step}: it left lines, and was not to be"


def _keys(effects: dict[_Place, list[Effect]]) -> Iterator[str]:
    places: dict[str, _Place] = {}
    for place, lines in effects.items():
        keys = {line.key for line in lines}
        if len(keys) != 1:
            yield f"{' '.join(place)}: its effect has {len(keys)} idempotency keys"
        for key in keys:
            other = places.setdefault(key, place)
            if other != place:
                yield f"{' '.join(place)}: its idempotency key is that of {' '.join(other)}, too"


def _effects(plan: Plan, execution: Seen, effects: dict[_Place, list[Effect]], stops: Iterable[Stop]) -> Iterator[str]:
    """Where an effect is not there, or was done again although it was recorded, or a step ran again that was over."""
    let_pass = _Leave(stops)
    for number in range(plan.steps):
        place = (execution.execution_id, f"s{number}")
        lines = effects.get(place, [])
        done = [line for line in lines if line.kind == "did"]
        output = execution.outputs.get(place[1])
        token = output.get("token") if isinstance(output, dict) else None
        recorded = next((line for line in done if line.token == token), None)
        if not done:
            yield f"{' '.join(place)}: its effect was never done"
        elif recorded is None:
            yield f"{' '.join(place)}: the effect on record is none of those that were done: {token!r}"
        else:
            for again in (line for line in done if line.at > recorded.at and not let_pass(line, recorded.at)):
                yield f"{' '.join(place)}: its effect was done again by {again.pid}, recorded by {recorded.pid}"
        after = effects.get((execution.execution_id, f"s{number + 1}"))
        if after is not None:
            for late in (line for line in lines if line.at > after[0].at and not let_pass(line, after[0].at)):
                yield f"{' '.join(place)}: it {late.kind} again in {late.pid} after the next step had begun"


class _Leave:
    """What may be late in one execution: one body for each stop of its process."""

    def __init__(self, stops: Iterable[Stop]) -> None:
        self._stops = list(stops)
        self._used: dict[Stop, tuple[str, int]] = {}

    def __call__(self, line: Effect, than: float) -> bool:
        """Whether a line may be later than what was there at a moment."""
        body = (line.step, line.attempt)
        return any(
            stop.pid == line.pid and stop.since < than and self._used.setdefault(stop, body) == body
            for stop in self._stops
        )
