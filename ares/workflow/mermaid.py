"""A workflow as a Mermaid flowchart, for ``ares graph`` and for documents.

Knows Mermaid's text. Trusts no name: whatever a label holds, it stays text inside its quotes, on its line, without
control characters; ids of nodes are numbers.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ares.workflow.policies import Trigger

if TYPE_CHECKING:
    from ares.workflow.graph import Graph, Node

#: What may stand in a quoted label as it is, besides letters and digits of any script.
_PLAIN = frozenset(" -_.,:/()+='")


def escape(text: str) -> str:
    """Make ``text`` safe inside a quoted Mermaid label: entities for punctuation, escapes for the unprintable."""
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    if char.isalnum() or char in _PLAIN:
        return char
    if char.isprintable():
        return f"#{ord(char)};" if char.isascii() else char
    # The backslash too is an entity: Mermaid makes a line break of a literal \n.
    return "#92;" + char.encode("unicode_escape", "surrogatepass").decode("ascii").removeprefix("\\")


def mermaid(graph: "Graph") -> str:
    """Draw ``graph``.

    Returns:
        The text of a flowchart, a line per step and per dependency: stacked boxes are maps, diamonds branch points,
        frames sub-workflows; branches are dotted and labelled, order without data is dotted.
    """
    lines = ["flowchart TD"]
    # Each entry is the rest of a frame: iterators in a list, so that nesting costs no recursion.
    frames = [_frame(graph, "n")]
    while frames:
        found = next(frames[-1], None)
        if found is None:
            frames.pop()
            if frames:
                lines.append("    " * len(frames) + "end")
            continue
        line, child, prefix = found
        lines.append("    " * len(frames) + line)
        if child is not None:
            frames.append(_frame(child, prefix))
    return "\n".join(lines) + "\n"


def _frame(graph: "Graph", prefix: str) -> Iterator[tuple[str, "Graph | None", str]]:
    """Give the lines of one workflow, and with each that opens a frame what belongs in it."""
    for node in graph.nodes:
        name = f"{prefix}{node.index}"
        if node.child is not None:
            yield f'subgraph {name}["{_label(graph, node)}"]', node.child, f"{name}_"
        else:
            yield _box(name, graph, node), None, ""
    for node in graph.nodes:
        values = _values(node)
        for dep in node.deps:
            order = "-. branch .->" if node.branch_of == dep else "-.->"
            arrow = "-->" if dep in values and node.branch_of != dep else order
            yield f"{prefix}{dep} {arrow} {prefix}{node.index}", None, ""


def _values(node: "Node") -> set[int | None]:
    """Give the steps whose outputs a node takes."""
    taken: set[int | None] = {node.map_source}
    for call in (node.run, node.condition, node.router, node.reconcile):
        if call is not None:
            taken.update(b.index for b in call.bindings)
    taken.update(b.index for b in node.child_inputs)
    return taken


def _box(name: str, graph: "Graph", node: "Node") -> str:
    label = _label(graph, node)
    if node.map_source is not None:
        return f'{name}@{{ shape: st-rect, label: "{label}" }}'
    if node.branches:
        return f'{name}{{"{label}"}}'
    return f'{name}["{label}"]'


def _label(graph: "Graph", node: "Node") -> str:
    """Give what a box says: the name, the id where it differs, and what the shape cannot show."""
    spec = node.spec
    parts = [escape(node.id if spec.name == node.id else f"{spec.name} ({node.id})")]
    if spec.run is None and spec.agent_type:
        parts.append(f"agent {escape(spec.agent_type)}")
    if node.map_source is not None:
        parts.append(f"for each of {escape(graph.nodes[node.map_source].id)}")
    if node.condition is not None:
        parts.append("if")
    if spec.trigger is Trigger.ALWAYS:
        parts.append("always")
    return " · ".join(parts)
