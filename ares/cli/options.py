"""The arguments and options that commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class IfExists(StrEnum):
    """What to do when the id is taken."""

    ERROR = "error"
    RESUME = "resume"


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="path/to/file.py or package.module, with :name where the workflow is not called 'workflow'.",
        show_default=False,
    ),
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The execution; write -- before one that begins with -.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="FILE|URL", envvar="ARES_STORE", help="The store's file or URL.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", show_default=False)]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="How long it may walk: seconds, or like 15m.", show_default=False),
]
