"""The commands and their options, and nothing of what they do."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from ares.cli import asking, reading, showing, upkeep, walking
from ares.cli.durations import span, time_limit
from ares.cli.exits import EPILOGUE
from ares.cli.options import Id, IfExists, Json, Store, Target, Timeout
from ares.cli.session import Session
from ares.engine.options import Durability
from ares.records import ExecutionStatus

app = typer.Typer(
    name="ares",
    help="Runs workflows, and shows what became of them.",
    epilog=EPILOGUE,
    add_completion=False,
    # Help is plain text: importing what draws boxes costs as much as all else that help needs.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


routes_app = typer.Typer(
    help="Look again at what was decided at branch points.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)
app.add_typer(routes_app, name="routes")


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(version("ares-workflow"))
        except PackageNotFoundError:
            from ares import __version__

            typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    *,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Show ares's own log on stderr; twice: all of it.", show_default=False
        ),
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the command."""
    session: Session = ctx.obj
    session.debug = debug
    session.verbosity = verbose
    session.log_to_stderr()


@app.command()
def run(
    ctx: typer.Context,
    target: Target,
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="One input; may be repeated.", show_default=False),
    ] = None,
    inputs_json: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Inputs as a JSON object; --input counts more.", show_default=False),
    ] = None,
    store: Store = None,
    id: Annotated[
        str | None, typer.Option(metavar="ID", help="The execution's id; made up unless given.", show_default=False)
    ] = None,
    if_exists: Annotated[IfExists, typer.Option(help="When the id is taken.")] = IfExists.ERROR,
    timeout: Timeout = None,
    durability: Annotated[
        Durability | None, typer.Option(help="What is waited for before dependents start.", show_default="sync")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many steps run at once.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Run a workflow and show its progress. Without a store, nothing is kept."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    wanted = walking.Run(
        target=target,
        inputs=tuple(inputs or ()),
        inputs_json=inputs_json,
        store=store or None,
        execution_id=id,
        if_exists=str(if_exists),
        timeout=time_limit(timeout),
        durability=durability,
        workers=workers,
    )
    return walking.run(session, wanted)


@app.command()
def resume(
    ctx: typer.Context,
    id: Id,
    target: Target,
    *,
    rerun: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP",
            help="Run a step again, and what follows it; may be repeated. item_failures: what maps collected.",
            show_default=False,
        ),
    ] = None,
    reopen: Annotated[bool, typer.Option("--reopen", help="Go on with a cancelled one.")] = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although the workflow changed.")
    ] = False,
    timeout: Timeout = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Go on with an execution. Of one that completed, print the result; nothing runs."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    wanted = walking.Resume(
        execution_id=id,
        target=target,
        rerun=tuple(rerun or ()),
        reopen=reopen,
        accept_changes=accept_changes,
        timeout=time_limit(timeout),
        store=store,
    )
    return walking.resume(session, wanted)


@app.command()
def recover(ctx: typer.Context, target: Target, *, store: Store = None, as_json: Json = False) -> int:
    """Go on with all that processes left which are gone. Ends when that has ended or waits."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    from ares.cli import recovering

    return recovering.recover(session, target, store)


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[
        ExecutionStatus | None,
        typer.Option(case_sensitive=False, help="Only those that stand like this.", show_default=False),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those of this workflow.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the newest ones.", show_default=False)
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List the executions of a store, newest first."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return reading.list_executions(session, store, status=status, workflow_id=workflow, limit=limit)


@app.command()
def show(
    ctx: typer.Context,
    id: Id,
    *,
    all_: Annotated[bool, typer.Option("--all", help="List every map element, not only the failed ones.")] = False,
    routes: Annotated[
        bool, typer.Option("--routes", help="List every decision at a branch point: candidates, scores, who abstained.")
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Show one execution and its steps."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return showing.show(session, store, id, in_full=all_, with_routes=routes)


@app.command()
def events(
    ctx: typer.Context,
    id: Id,
    *,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Only what is numbered above N.")] = 0,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Show the history of one execution, in order."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return reading.events(session, store, id, after=after)


@app.command()
def watch(
    ctx: typer.Context,
    id: Id,
    *,
    after: Annotated[int, typer.Option(min=0, metavar="N", help="Only what is numbered above N.")] = 0,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Follow the events of one execution, whichever process walks it, until it ends, waits, or nobody walks it."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    from ares.cli import watching

    return watching.watch(session, store, id, after=after)


@app.command()
def cancel(
    ctx: typer.Context,
    id: Id,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; is kept.", show_default=False)] = "",
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Cancel an execution, whichever process walks it."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return upkeep.cancel(session, store, id, reason)


@app.command()
def questions(
    ctx: typer.Context,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only those of this execution.", show_default=False)
    ] = None,
    *,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List the questions that wait for a human, those of all executions unless one is named."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return asking.questions(session, store, id)


@app.command()
def answer(
    ctx: typer.Context,
    id: Id,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that asks, as ares questions shows it.")],
    *,
    approve: Annotated[bool, typer.Option("--approve", help="Yes.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="No.")] = False,
    run_again: Annotated[
        bool, typer.Option("--run-again", help="Of an unknown outcome: it did not happen, run it again.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Which of its questions; the open one.", show_default=False)
    ] = None,
    feedback: Annotated[str, typer.Option(metavar="TEXT", help="In words; is kept.", show_default=False)] = "",
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="The value that the step is given.", show_default=False)
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Answer a question, whichever process walks its execution. The first answer counts."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    said = asking.Said(approve=approve, reject=reject, run_again=run_again, feedback=feedback, data=data)
    return asking.answer(session, store, id, step, key, said)


@app.command()
def plugins(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]",
            help="As for run; one that makes its own Runtime has plugins of its own. Built-in ones without.",
            show_default=False,
        ),
    ] = None,
    *,
    installed: Annotated[
        bool,
        typer.Option("--installed", help="Also those that installed distributions offer; this runs code of theirs."),
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """List the plugins: version, capabilities, state, and in which order they are called."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    from ares.cli.plugins import plugins

    return plugins(session, target, store, installed=installed)


@app.command()
def doctor(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]", help="As for run: what importing it does, and its plugins.", show_default=False
        ),
    ] = None,
    *,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Say whether the host, the store and the target are as they should be. Changes nothing."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    from ares.cli.doctor import doctor

    return doctor(session, target, store)


@routes_app.command()
def replay(
    ctx: typer.Context,
    target: Target,
    *,
    router: Annotated[
        str,
        typer.Option(
            metavar="ROUTER",
            help="path/to/file.py or package.module, with :name where it is not called 'router': a router plugin, "
            "a list of plugins, or a function that makes them.",
            show_default=False,
        ),
    ],
    id: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this execution; may be repeated.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the newest executions.", show_default=False)
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="List only the choices that are not the same.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long one answer may take; 30 s unless given.", show_default=False),
    ] = None,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Ask another router about the choices of past executions. Nothing runs, and nothing is written."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    from ares.cli import rerouting

    wanted = rerouting.Replay(target, router, tuple(id or ()), limit, changed, time_limit(timeout), store)
    return rerouting.replay(session, wanted)


@app.command()
def graph(ctx: typer.Context, target: Target, *, as_json: Json = False) -> int:
    """Print a workflow's graph as Mermaid."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return reading.graph(session, target)


@app.command()
def prune(
    ctx: typer.Context,
    *,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Like 90s, 15m, 12h, 30d, 2w; counted from the end of each.")
    ],
    compact: Annotated[
        bool, typer.Option("--compact", help="Give the freed space back; others have to wait meanwhile.")
    ] = False,
    store: Store = None,
    as_json: Json = False,
) -> int:
    """Delete what ended long ago. Those that have not ended stay, however old they are."""
    session: Session = ctx.obj
    session.begin(as_json=as_json)
    return upkeep.prune(session, store, span(older_than), compact=compact)
