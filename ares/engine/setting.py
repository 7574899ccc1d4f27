"""What a walk is given to work with."""

from collections.abc import Mapping, Sequence
from contextvars import Context as ContextVars
from typing import Any

import attrs

from ares.engine.histories import Histories
from ares.engine.options import Options
from ares.engine.places import Places
from ares.engine.pool import WorkerPool
from ares.journal.protocol import ExecutionLog
from ares.plugin.engine_bus import EngineBus
from ares.values import Codec
from ares.walk import facts as f
from ares.walk.walk import Walk
from ares.workflow import Call


@attrs.define(eq=False)
class Setting:
    """What a walk is given to work with.

    ``warnings`` are the journal's, ``variables`` the caller's context. ``is_bounded``: something else may end the walk,
    the timeout of a step that it is nested in, so that its own thread must not get stuck in a body.
    """

    execution_id: str
    walk: Walk
    log: ExecutionLog
    codec: Codec | None
    options: Options
    pool: WorkerPool
    bus: EngineBus
    calls: Mapping[Any, Call]
    metadata: Mapping[str, str]
    variables: ContextVars
    remembered: dict[tuple[str, int, int, str], Any]
    keeps_references: bool
    #: The slots of each named pool.
    pools: Mapping[str, Places] = attrs.field(factory=dict)
    warnings: Sequence[str] = ()
    is_submitted: bool = False
    is_bounded: bool = False
    after_crash: bool = False
    #: What is journaled of the execution already and was not told yet, with the number of the first.
    opening: tuple[int, Sequence[f.Fact]] = (1, ())
    histories: Histories | None = None
    #: Knows the classes of the workflow, whether or not anything is encoded; and when the open questions were asked.
    reader: Codec = attrs.field(factory=Codec)
    asked_at: Mapping[str, int] = attrs.field(factory=dict)
