"""From the text of ``--input name=value`` and ``--inputs-json`` to the values that a workflow declares.

Knows where inputs come from and what is said about one that does not fit; how a text becomes a value of a type is the
business of ``conversion``.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ares.cli.conversion import Misfit, from_json, from_text, type_name
from ares.cli.text import cut
from ares.errors import UsageError
from ares.workflow import Input, Workflow


def read_inputs(workflow: Workflow, texts: Sequence[str], document: str | None) -> dict[str, Any]:
    """The inputs of a run.

    Args:
        workflow: what declares them.
        texts: each ``name=value``; they count more than the document.
        document: a JSON object, or ``@`` and the name of a file that holds one.

    Raises:
        UsageError: something that is no input, is missing, or does not fit.
    """
    found: dict[str, Any] = {}
    for name, value in _object(document).items():
        declared = workflow.inputs.get(name)
        found[name] = value if declared is None else _fitted(name, declared, value, from_json)
    for name, text in _pairs(texts).items():
        declared = workflow.inputs.get(name)
        found[name] = text if declared is None else _fitted(name, declared, text, from_text)
    # What is unknown or missing is said by the workflow, which knows what is permitted.
    return workflow.bind_inputs(found)


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in texts:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"input {each!r} is not of the form name=value")
        if name in found:
            raise UsageError(f"input {name!r} is given twice")
        found[name] = value
    return found


def _object(document: str | None) -> dict[str, Any]:
    if document is None:
        return {}
    text, where = document, "--inputs-json"
    if document.startswith("@"):
        where = f"--inputs-json {document}"
        try:
            text = Path(document[1:]).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise UsageError(f"{where}: the file cannot be read: {error}") from error
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where} must be a JSON object, {{name: value}}")
    return value


def _fitted(name: str, declared: Input, value: Any, convert: Callable[[Any, Any], Any]) -> Any:
    try:
        return convert(value, declared.type)
    except Misfit as misfit:
        kind = type_name(declared.type)
        raise UsageError(f"input {name!r}: {cut(repr(value), 200)} is no {kind}{misfit.why}") from misfit
