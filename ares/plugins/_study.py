"""What an evolution plugin has learnt, as studies of Optuna: asked for proposals, told what came of them.

There is a study for each branch point, with three objectives: success, duration and cost. It is asked, and told, in
memory. What was told, and nothing else, is added to a study of the same name in a file, and what other processes added
there is told to the one in memory. So the file holds finished trials only: a process that is killed leaves none that
somebody would have to close, and agents can be added and removed, which Optuna does not allow within one study.

*How agents are chosen.* Optuna's samplers take the value of a trial for a property of its parameters. That of one run
of an agent is mostly luck: TPE and NSGA-II go after the agents that were lucky, and find the best of five within 60
runs no more often than chance does (``python -m benchmarks strategies``). So the agent is drawn by a sampler of our
own, from what is believed of its mean (``_bandit``), and TPE is left with what it is good at: the parameters of that
agent.

This is the one module that imports Optuna, and it is imported when a plugin starts.
"""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import attrs
import optuna
from optuna import Study, Trial
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from ares.errors import UsageError
from ares.plugins._bandit import Run, beliefs, chance, drawn, utilities
from ares.plugins._choices import Agents, Proposal, Range, Setting, Value
from ares.plugins._objectives import is_number
from ares.plugins._quiet import quiet
from ares.plugins._study_file import ReplacedError, StudyFile

T = TypeVar("T")

#: The name of the parameter that is the agent. Those of an agent are called by its name, a slash, and theirs.
_AGENT: Final = "agent"
_DIRECTIONS: Final = (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE, StudyDirection.MINIMIZE)
#: What a study in the file is marked by, with the names of its objectives.
_MARK: Final = "ares.objectives"
_OBJECTIVES: Final = ("success", "duration", "cost")

#: How many times what counts is kept, before the rest is dropped: in memory and in the file.
_SLACK: Final = 4
#: Trials of a study that a file keeps at least.
_KEPT: Final = 500
#: Runs of an agent, the newest, by which its parameters are chosen; TPE takes its time with many.
_TUNED: Final = 100
#: How often a file may be found replaced, one time after another.
_REPLACED: Final = 10


def _distributions(agents: Agents, agent: str) -> dict[str, BaseDistribution]:
    """That of the agent, and those of its parameters, by what they are called in a trial."""
    found: dict[str, BaseDistribution] = {_AGENT: CategoricalDistribution(list(agents))}
    found.update((f"{agent}/{name}", _distribution(among)) for name, among in agents[agent].items())
    return found


def _distribution(among: Range) -> BaseDistribution:
    if not isinstance(among, tuple):
        return CategoricalDistribution(among)
    low, high = among
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high)
    return FloatDistribution(low, high)


class Studies:
    """The studies of a file. One thread.

    Args:
        path: Of the file.
        setting: What there is to choose from.

    Raises:
        UsageError: the file cannot be written, or is no study file.
    """

    def __init__(self, path: str, setting: Setting) -> None:
        self._path = path
        self._setting = setting
        self._sampler = _Sampler(setting)
        self._places: dict[str, _Place] = {}
        self._open()

    def ask(self, name: str) -> Proposal:
        """What to run next.

        Args:
            name: That of the study.

        Raises:
            UsageError: the file is broken by now, or holds something else by that name.
        """
        place = self._synced(name)
        trial = place.study.ask()
        agents = list(self._setting.agents)
        agent = trial.suggest_categorical(_AGENT, agents)
        for key, distribution in _distributions(self._setting.agents, agent).items():
            _suggest(trial, key, distribution)
        parameters = {key.removeprefix(f"{agent}/"): value for key, value in trial.params.items() if key != _AGENT}
        believed = beliefs(agents, self._runs(place), self._setting.weights)
        return Proposal(agent, parameters, chance(believed, agents.index(agent)), trial)

    def tell(self, name: str, proposal: Proposal, run: Run, about: Mapping[str, Value]) -> None:
        """What came of a proposal; ``about`` is kept with it. It may have been followed many times.

        Raises:
            UsageError, OSError, TimeoutError: it cannot be written. In this process it is known all the same.
        """
        place = self._places[name]
        mark = uuid.uuid4().hex
        finished = self._finished(proposal, run, {**about, "id": mark})
        place.own.add(mark)
        trial, proposal.trial = proposal.trial, None
        if trial is not None and trial.study is place.study:
            place.study.tell(trial, finished.values)
        else:
            place.study.add_trial(finished)
        first = iter((True,))
        self._retried(lambda: self._append(name, finished, is_there=not next(first, False)))

    def drop(self, proposal: Proposal) -> None:
        """Nothing is to be learnt of a proposal."""
        trial, proposal.trial = proposal.trial, None
        if trial is not None:
            trial.study.tell(trial, state=TrialState.FAIL)

    def runs(self, name: str) -> tuple[Run, ...]:
        """Those that count, the newest last."""
        return tuple(self._runs(self._synced(name)))

    def _runs(self, place: "_Place") -> list[Run]:
        return [_run(trial) for trial in _finished(place.study, self._setting.window)]

    # --- between memory and the file --------------------------------------------------------------------------------

    def _synced(self, name: str) -> "_Place":
        return self._retried(lambda: self._sync(name))

    def _sync(self, name: str) -> "_Place":
        """A study in memory that knows what is in the file."""
        window = self._setting.window
        stored = self._storage.get_all_trials(self._stored(name), deepcopy=False)
        place = self._places.get(name)
        if place is None or place.seen < 0 or len(place) > _SLACK * window:
            with quiet():
                study = optuna.create_study(directions=_DIRECTIONS, sampler=self._sampler)
            place = self._places[name] = _Place(study, seen=max(0, len(stored) - window))
        for trial in stored[place.seen :]:
            mark = trial.user_attrs.get("id")
            if mark in place.own:
                place.own.discard(mark)
            elif (taken := self._taken(trial)) is not None:
                place.study.add_trial(taken)
        place.seen = len(stored)
        return place

    def _taken(self, trial: FrozenTrial) -> FrozenTrial | None:
        """A trial of the file as one of today: with the agents that there are now. None if it has no part in it."""
        agent, values = trial.params.get(_AGENT), trial.values
        if trial.state is not TrialState.COMPLETE or not isinstance(agent, str) or not _are_proper(values):
            return None
        if agent not in self._setting.agents:
            return None
        there = _distributions(self._setting.agents, agent)
        params = {key: trial.params[key] for key in there if key in trial.params}
        try:
            return create_trial(values=values, params=params, distributions={key: there[key] for key in params})
        except ValueError:  # its parameters are out of today's ranges; of the agent it tells all the same
            return create_trial(values=values, params={_AGENT: agent}, distributions={_AGENT: there[_AGENT]})

    def _finished(self, proposal: Proposal, run: Run, about: Mapping[str, Value]) -> FrozenTrial:
        agent = proposal.agent
        params = {_AGENT: agent, **{f"{agent}/{name}": value for name, value in proposal.parameters.items()}}
        values = (run.success, run.duration, run.cost)
        return create_trial(
            values=values,
            params=params,
            distributions=_distributions(self._setting.agents, agent),
            user_attrs=dict(about),
        )

    # --- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        for _ in range(_REPLACED):
            self._file = StudyFile(self._path)
            self._file.open()
            with suppress(ReplacedError):
                self._storage = _storage(self._file)
                break
        else:
            raise UsageError(f"the study file {self._path!r} is being replaced, again and again")
        self._most = _SLACK * _KEPT
        self._ids: dict[str, int] = {}
        for place in self._places.values():
            place.seen = -1

    def _retried(self, do: Callable[[], T]) -> T:
        """Do something with the file, anew if it has been replaced."""
        for _ in range(_REPLACED):
            try:
                return do()
            except ReplacedError:
                self._open()
        raise UsageError(f"the study file {self._path!r} is being replaced, again and again")

    def _stored(self, name: str) -> int:
        """The number of a study in the file, which is made if there is none."""
        if name not in self._ids:
            try:
                number = self._storage.get_study_id_from_name(name)
            except KeyError:
                number = _made(self._storage, name)
            if tuple(self._storage.get_study_directions(number)) != _DIRECTIONS:
                raise UsageError(f"study {name!r} in {self._path!r} is of something else: it has other objectives")
            self._ids[name] = number
        return self._ids[name]

    def _append(self, name: str, finished: FrozenTrial, *, is_there: bool) -> None:
        """Write a trial. It may be there already, if it was written just before the file was replaced."""
        stored = self._stored(name)
        if is_there:
            mark = finished.user_attrs["id"]
            there = self._storage.get_all_trials(stored, deepcopy=False)
            if any(trial.user_attrs.get("id") == mark for trial in there):
                return
        self._storage.create_new_trial(stored, template_trial=finished)
        if self._file.lines > self._most:
            self._compact()

    def _compact(self) -> None:
        """Leave out old trials, if they are most of the file."""
        kept = max(_KEPT, self._setting.window)
        studies = self._storage.get_all_studies()
        trials = [len(self._storage.get_all_trials(_number(study), deepcopy=False)) for study in studies]
        self._most = 2 * self._file.lines  # if it is not worth it, or fails, there is time until then
        if self._file.lines > _SLACK * sum(min(kept, each) + 2 for each in trials):
            self._file.rewrite(lambda beside: _copy(self._storage, beside, kept))
            self._open()


@attrs.define(eq=False)
class _Place:
    """A study in memory; ``seen`` is how many trials of the one in the file it has been told, less than 0 if it must be
    made anew; ``own`` which of those to come it knows already, because they are of this process."""

    study: Study
    seen: int
    own: set[str] = attrs.field(factory=set)

    def __len__(self) -> int:
        return len(self.study.get_trials(deepcopy=False))


def _finished(study: Study, window: int) -> list[FrozenTrial]:
    """The newest trials of which the outcome is known."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))[-window:]


def _run(trial: FrozenTrial) -> Run:
    return Run(trial.params[_AGENT], *trial.values)


def _are_proper(values: Sequence[float] | None) -> bool:
    if values is None or len(values) != len(_DIRECTIONS) or not all(map(is_number, values)):
        return False
    success, duration, cost = values
    return 0 <= success <= 1 and duration >= 0 and cost >= 0


def _suggest(trial: Trial, key: str, among: BaseDistribution) -> None:
    if isinstance(among, CategoricalDistribution):
        trial.suggest_categorical(key, among.choices)
    elif isinstance(among, IntDistribution):
        trial.suggest_int(key, among.low, among.high)
    elif isinstance(among, FloatDistribution):
        trial.suggest_float(key, among.low, among.high)


# --- the storage of Optuna's ------------------------------------------------------------------------------------------


def _storage(file: StudyFile) -> JournalStorage:
    try:
        return JournalStorage(cast("BaseJournalBackend", file))
    except (ReplacedError, UsageError, OSError):
        raise
    except Exception as error:  # lines as Optuna writes them, which make no sense
        raise UsageError(f"{file.path!r} is no study file, or is broken: {type(error).__name__}: {error}") from error


def _made(storage: JournalStorage, name: str) -> int:
    try:
        with quiet():
            number = storage.create_new_study(_DIRECTIONS, name)
    except DuplicatedStudyError:  # another process was faster
        return storage.get_study_id_from_name(name)
    storage.set_study_user_attr(number, _MARK, list(_OBJECTIVES))
    return number


def _number(study: Any) -> int:
    """What a storage knows a study by."""
    number: int = study._study_id  # noqa: SLF001 - there is no public name for it
    return number


def _copy(storage: JournalStorage, path: str, kept: int) -> None:
    """Write what is in a storage to a file; of studies of ours, only the newest trials."""
    file = StudyFile(path)
    file.open()
    new = _storage(file)
    for study in storage.get_all_studies():
        with quiet():
            number = new.create_new_study(study.directions, study.study_name)
        for key, value in study.user_attrs.items():
            new.set_study_user_attr(number, key, value)
        for key, value in study.system_attrs.items():
            new.set_study_system_attr(number, key, value)
        trials = storage.get_all_trials(_number(study), deepcopy=False)
        for trial in trials[-kept:] if _MARK in study.user_attrs else trials:
            new.create_new_trial(number, template_trial=trial)


# --- the sampler ------------------------------------------------------------------------------------------------------


class _Sampler(BaseSampler):
    """Draws an agent from what is believed of each (Thompson sampling), and its parameters by TPE from the runs of that
    agent alone, by their utility."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._rng = random.Random(setting.seed)
        self._otherwise = RandomSampler(seed=setting.seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002 - a contract's word
        """The agent, and the parameters of each."""
        return {
            key: each
            for agent in self._setting.agents
            for key, each in _distributions(self._setting.agents, agent).items()
        }

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,  # noqa: ARG002 - a contract's word
        search_space: dict[str, BaseDistribution],  # noqa: ARG002
    ) -> dict[str, Any]:
        """An agent, and its parameters."""
        agents = list(self._setting.agents)
        trials = _finished(study, self._setting.window)
        runs = [_run(each) for each in trials]
        agent = agents[drawn(beliefs(agents, runs, self._setting.weights), self._rng)]
        found: dict[str, Any] = {_AGENT: agent}
        among = _distributions(self._setting.agents, agent)
        del among[_AGENT]
        if among:
            worth = zip(trials, utilities(runs, self._setting.weights), strict=True)
            own = [each for each in worth if each[0].params[_AGENT] == agent]
            found.update(self._parameters(among, own[-_TUNED:]))
        return found

    def _parameters(
        self, among: dict[str, BaseDistribution], trials: Sequence[tuple[FrozenTrial, float]]
    ) -> dict[str, Any]:
        sampler = TPESampler(seed=self._rng.randrange(2**31))
        with quiet():
            study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial, worth in trials:
            if among.keys() <= trial.params.keys():
                params = {key: trial.params[key] for key in among}
                study.add_trial(create_trial(value=worth, params=params, distributions=among))
        return study.ask(among).params

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Whatever was not asked for before: anything."""
        return self._otherwise.sample_independent(study, trial, param_name, param_distribution)
