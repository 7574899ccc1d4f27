"""A plugin, as other plugins and the application call it."""

from typing import Any

from ares.bus.awaiting import PendingAnswer
from ares.bus.call import Latch
from ares.bus.executions import Executions
from ares.bus.resident import Resident, current_resident
from ares.errors import UsageError
from ares.plugin.capabilities import Capability


class Ref:
    """A ``PluginRef``. A call made while serving an execution belongs to that execution."""

    __slots__ = ("_executions", "_resident")

    def __init__(self, resident: Resident, executions: Executions) -> None:
        self._resident = resident
        self._executions = executions

    def __repr__(self) -> str:
        return f"<PluginRef {self.name!r}>"

    @property
    def name(self) -> str:
        """Who it is."""
        return self._resident.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it is good for."""
        return self._resident.card.capabilities

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Have it run ``method(ctx, *args, **kwargs)`` and wait for what it returns; see ``PluginRef``."""
        return self._send(method, args, kwargs).result()

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> PendingAnswer:
        """As ``call``, without waiting."""
        return self._send(method, args, kwargs)

    def _send(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> PendingAnswer:
        if not method.isidentifier() or method.startswith("_") or method in ("start", "stop"):
            raise UsageError(f"{method!r} of plugin {self.name!r} is not for others to call")
        caller = current_resident()
        mine = None if caller is None else caller.current
        execution_id = "" if mine is None else mine.context.execution_id
        call = self._resident.call(method, args, execution_id, self._executions.port(execution_id), Latch(1))
        call.kwargs = kwargs
        self._resident.send(call)
        return PendingAnswer(self._resident, call)
