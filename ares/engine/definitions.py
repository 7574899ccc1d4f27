"""The definitions that a Runtime has seen: validated, and every agent in them bound."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from ares.engine.driver import REPLACEMENT
from ares.engine.replay import Nodes, codec_for, nodes_of
from ares.errors import DefinitionError, ExecutionConflictError, UsageError
from ares.journal.protocol import ExecutionRow
from ares.values import Codec
from ares.workflow import Call, Graph, Workflow, bind_call
from ares.workflow.checks import did_you_mean, listed

#: How many are remembered: a program may make a workflow for each run.
MAX_DEFINITIONS = 256

Agents = Mapping[str, Callable[..., Any]]


@attrs.frozen(eq=False)
class Definition:
    """A workflow ready to be walked: its graph, its codec, its agents' calls."""

    graph: Graph
    codec: Codec
    calls: Mapping[Any, Call]
    #: The steps as facts keep them.
    nodes: Nodes

    @property
    def id(self) -> str:
        """The workflow's id."""
        return self.graph.workflow.id


class Definitions:
    """Any thread. ``agents``: what runs steps that have no function, by agent type. ``pools`` and ``executors``: those
    that steps may name."""

    def __init__(self, agents: Agents, pools: Collection[str] = (), executors: Collection[str] = ()) -> None:
        self._agents = agents
        self._pools = pools
        self._executors = executors
        self._lock = threading.Lock()
        #: The definition last seen under each workflow id, the least recently used first.
        self._seen: OrderedDict[str, Definition] = OrderedDict()

    def define(self, workflow: Workflow) -> Definition:
        """Validate a workflow, bind its agents, and look for its pools and executors.

        Raises:
            DefinitionError: it cannot run, here: it names an agent, pool or executor that there is not.
        """
        graph = workflow.graph()
        known = self.known(workflow.id)
        if known is not None and known.graph is graph:
            return known
        agents = self._bind_agents(graph)
        made = Definition(graph, codec_for(graph, agents.values()), agents, nodes_of(graph))
        with self._lock:
            self._seen[workflow.id] = made
            while len(self._seen) > MAX_DEFINITIONS:
                self._seen.popitem(last=False)
        return made

    def known(self, workflow_id: str) -> Definition | None:
        """The definition last seen under an id."""
        with self._lock:
            if workflow_id in self._seen:
                self._seen.move_to_end(workflow_id)
            return self._seen.get(workflow_id)

    def of(self, row: ExecutionRow, workflow: Workflow | None) -> Definition:
        """The definition that an execution goes on with: that of ``workflow``, or the one last seen.

        Raises:
            ExecutionConflictError: the execution is of another workflow.
            UsageError: none was given, and none was seen.
        """
        if workflow is not None:
            if workflow.id != row.workflow_id:
                raise ExecutionConflictError(row.execution_id, f"another workflow, {row.workflow_id!r}")
            return self.define(workflow)
        known = self.known(row.workflow_id)
        if known is None:
            raise UsageError(
                f"the definition of workflow {row.workflow_id!r} is needed for execution {row.execution_id!r}: "
                "pass it, or name it in Runtime(workflows=[...])"
            )
        return known

    def _bind_agents(self, graph: Graph) -> dict[Any, Call]:
        calls: dict[Any, Call] = {}
        waiting = [graph]
        while waiting:
            each = waiting.pop()
            for node in each.nodes:
                if node.child is not None:
                    continue
                self._check_executor(each, node.id, node.spec.executor)
                self._check_pool(each, node.id, node.spec.pool)
                if node.run is None:
                    fn = self._agent(each, node.id, "agent_type", node.spec.agent_type)
                    calls[node] = bind_call(fn, node, each)
                recovery = node.spec.recovery
                if recovery is not None and recovery.replacement_agent is not None:
                    fn = self._agent(each, node.id, "replacement_agent", recovery.replacement_agent)
                    calls[node, REPLACEMENT] = bind_call(fn, node, each)
            waiting.extend(each.children)
        return calls

    def _check_executor(self, graph: Graph, step_id: str, name: str | None) -> None:
        if name is not None and name not in self._executors:
            problem = f"executor {name!r} is not one of the Runtime's{did_you_mean(name, self._executors)} (executors: "
            raise DefinitionError(graph.workflow.id, f"{problem}{listed(self._executors)})", step_id)

    def _check_pool(self, graph: Graph, step_id: str, pool: str | None) -> None:
        if pool is not None and pool not in self._pools:
            problem = f"pool {pool!r} is not one of the Runtime's{did_you_mean(pool, self._pools)} (pools: "
            raise DefinitionError(graph.workflow.id, f"{problem}{listed(self._pools)})", step_id)

    def _agent(self, graph: Graph, step_id: str, field: str, name: str) -> Callable[..., Any]:
        fn = self._agents.get(name)
        if fn is None:
            names = ", ".join(map(repr, self._agents)) or "none"
            problem = f"{field} {name!r} is not registered (agents: {names})"
            raise DefinitionError(graph.workflow.id, problem, step_id)
        return fn
