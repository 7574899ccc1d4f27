"""Who lives on a bus: how they come, in which order they move in and out, and who is there."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from ares.bus.card import read
from ares.bus.exchange import Exchange
from ares.bus.health import PluginState
from ares.bus.hooks import Hooks
from ares.bus.lifecycle import Lodging
from ares.bus.ordering import Order, resolve
from ares.bus.resident import House, Resident, current_resident
from ares.bus.view import Services
from ares.errors import PluginError, RegistrationError, UsageError
from ares.events import EventType


class Population:
    """See above. Any thread."""

    def __init__(self, house: House, exchange: Exchange, services: Services) -> None:
        self._house = house
        self._exchange = exchange
        self._services = services
        #: Guards what follows, which is replaced and not changed; held for moments.
        self._lock = threading.RLock()
        #: In order of registration.
        self._lodgings: tuple[Lodging, ...] = ()
        #: In the same order, from when they have started until they are stopped.
        self._running: Mapping[str, Resident] = {}
        self._hooks = Hooks(resolve(()), {}, house.executions)
        self._is_started = False
        self._is_stopping = False
        #: Held by the one who moves plugins in or out.
        self._moving = threading.Lock()

    # --- who is there --------------------------------------------------------------------------------

    @property
    def plugins(self) -> tuple[Any, ...]:
        """All plugins that were registered. Takes no lock, which in the child of a fork may be held for ever."""
        return tuple(lodging.resident.card.plugin for lodging in self._lodgings)

    @property
    def residents(self) -> tuple[Resident, ...]:
        """All that were registered, whatever became of them."""
        with self._lock:
            return tuple(lodging.resident for lodging in self._lodgings)

    @property
    def running(self) -> tuple[Resident, ...]:
        """All that have started and were not stopped."""
        with self._lock:
            return tuple(self._running.values())

    @property
    def hooks(self) -> Hooks:
        """Who is called when. Nobody is before all have moved in."""
        return self._hooks

    @property
    def is_stopping(self) -> bool:
        """Whether nobody is let in any more, and those who are in go."""
        with self._lock:
            return self._is_stopping

    def is_inside(self) -> bool:
        """Whether the calling thread is the one of a plugin in here."""
        resident = current_resident()
        return resident is not None and any(resident is mine for mine in self.residents)

    # --- how they come ---------------------------------------------------------------------------------

    def register(self, plugins: tuple[object, ...]) -> None:
        """Let plugins in, all or none.

        Raises:
            RegistrationError: one of them cannot live here.
        """
        cards = [read(plugin) for plugin in plugins]
        with self._lock:
            if cards and self._is_started:
                raise RegistrationError(cards[0].name, "comes too late: the bus has been started")
            taken = {resident.name for resident in self.residents}
            for card in cards:
                if card.name in taken:
                    raise RegistrationError(card.name, "is the name of another plugin on this bus")
                taken.add(card.name)
            residents = [Resident(card, self._house) for card in cards]
            added = (Lodging(resident, self._services, self._exchange) for resident in residents)
            self._lodgings = (*self._lodgings, *added)
            for card in cards:
                self._house.faults.admit(card)

    def start(self) -> None:
        """Move all in, in order of registration.

        Raises:
            HookOrderError: the order they ask for cannot be; nobody was started.
            ExceptionGroup: of the PluginErrors of those that did not start. The others run, unless one was required.
        """
        if self.is_inside():
            raise UsageError("a plugin cannot start the bus that it lives on")
        with self._moving:
            order = self._open()
            failures: list[PluginError] = []
            try:
                for lodging in self._lodgings:
                    self._check_not_stopping()
                    if (error := self._move_in(lodging)) is not None:
                        failures.append(error)
                        if lodging.resident.card.is_required:
                            raise ExceptionGroup(f"required plugin {error.plugin!r} did not start", failures)
                self._check_not_stopping()
            except BaseException:
                with self._lock:
                    self._is_stopping = True
                self._move_all_out(None)
                raise
            with self._lock:
                self._hooks = Hooks(order, self._running, self._house.executions)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of {len(self._lodgings)} plugins did not start", failures)

    def _open(self) -> Order:
        """Nobody is let in any more. Returns the order of those who are."""
        with self._lock:
            self._check_not_stopping()
            if self._is_started:
                raise UsageError("the bus has been started already")
            order = resolve([resident.card for resident in self.residents])
            self._is_started = True
            return order

    def _check_not_stopping(self) -> None:
        with self._lock:
            if self._is_stopping:
                raise UsageError("the bus has been stopped")

    def _move_in(self, lodging: Lodging) -> PluginError | None:
        resident = lodging.resident
        error = lodging.move_in()
        if error is None:
            with self._lock:
                self._running = {**self._running, resident.name: resident}
            self._house.announce(EventType.PLUGIN_STARTED, resident.name, "", "")
        else:
            self._house.executions.complain_to_all(str(error), error.__cause__)
            self._house.announce(EventType.PLUGIN_FAILED, resident.name, "", str(error))
        return error

    # --- how they go -----------------------------------------------------------------------------------

    def stop(self, timeout: float | None) -> tuple[PluginError, ...]:
        """Move all out, in reverse, within so many seconds. Returns why some did not stop in good order. If another
        thread is moving them in or out for longer than that, it sees to it.

        Raises:
            UsageError: called by a plugin in here, which would have to wait for itself.
        """
        if self.is_inside():
            raise UsageError("a plugin cannot stop the bus that it lives on")
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._is_stopping = True
        if not self._moving.acquire(timeout=self._longest() if timeout is None else max(timeout, 0)):
            return ()
        try:
            return self._move_all_out(until)
        finally:
            self._moving.release()

    def _longest(self) -> float:
        """Seconds after which whoever moves plugins is done, or was interrupted and never will be."""
        return sum(2 * resident.timeout for resident in self.residents) + 1

    def _move_all_out(self, until: float | None) -> tuple[PluginError, ...]:
        errors = []
        for lodging in reversed(self._lodgings):
            resident = lodging.resident
            if resident.state not in (PluginState.RUNNING, PluginState.UNRESPONSIVE):
                continue
            seconds = resident.timeout if until is None else until - time.monotonic()
            error = lodging.move_out(seconds)
            with self._lock:
                self._running = {name: other for name, other in self._running.items() if other is not resident}
            if error is not None:
                errors.append(error)
                self._house.executions.say("ERROR", str(error), error.__cause__)
                self._house.announce(EventType.PLUGIN_FAILED, resident.name, "", str(error))
            self._house.announce(EventType.PLUGIN_STOPPED, resident.name, "", "")
        return tuple(errors)
