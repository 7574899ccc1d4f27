"""From the TARGET of a command to the workflow it names, and from other such words to what they name.

A file is loaded as ``python file.py`` would run it: its folder is where it imports from. A module is imported as from
the current folder. Whatever goes wrong there is the caller's to put right, so it is a ``UsageError`` of one sentence.
"""

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from ares.cli.concealing import without_password
from ares.cli.exits import said
from ares.errors import UsageError
from ares.runtime import Runtime
from ares.workflow import Workflow
from ares.workflow.checks import did_you_mean

_DEFAULT_NAME = "workflow"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@attrs.frozen
class Program:
    """What a target holds: its workflow, and how it wants to be run."""

    #: The target as it was given, for messages and commands.
    target: str
    workflow: Workflow
    _make: Callable[[str], Any] | None

    def runtime(self, store: str, **options: Any) -> Runtime:
        """The Runtime to run it on: of the target's own making where it defines ``runtime(store)``.

        Args:
            store: the store's file or URL, or ``":memory:"``.
            options: further arguments of ``Runtime``; None: not given.

        Raises:
            UsageError: the target makes its own Runtime, and it fails or cannot take the options.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if self._make is None:
            return Runtime(store, **given)
        if given:
            names = " and ".join(f"--{name.removeprefix('max_')}" for name in given)
            raise UsageError(f"{names}: {self.target} decides that itself, in runtime(store)")
        try:
            made = self._make(store)
        except Exception as error:
            raise UsageError(f"runtime({without_password(store)!r}) of {self.target} raised {said(error)}") from error
        if not isinstance(made, Runtime):
            raise UsageError(f"runtime(store) of {self.target} gives {described(made)}, not a Runtime")
        return made


def load(target: str) -> Program:
    """Load the workflow that ``target`` names: ``path/to/file.py`` or ``package.module``, with ``:name`` if need be.

    Raises:
        UsageError: there is no such thing, or it cannot be loaded.
    """
    place, name = split(target)
    module = _module(place)
    found = getattr(module, name, None)
    if not isinstance(found, Workflow):
        raise UsageError(_not_found(place, module, name))
    make = getattr(module, "runtime", None)
    return Program(target, found, make if callable(make) else None)


def load_object(target: str, default: str) -> Any:
    """Load whatever ``target`` names, in the same way; ``default`` is its name where the target has none.

    Raises:
        UsageError: there is no such thing, or it cannot be loaded.
    """
    place, name = split(target, default)
    # A second time a file would define everything anew, and nothing would be an instance of it.
    module = (_files.get(Path(place).resolve()) if _is_path(place) else None) or _module(place)
    try:
        return getattr(module, name)
    except AttributeError:
        names = [each for each in vars(module) if not each.startswith("_")]
        raise UsageError(f"{place} has no {name!r}{did_you_mean(name, names)}") from None


def split(target: str, default: str = _DEFAULT_NAME) -> tuple[str, str]:
    """Split a target into its place and its name. A colon may be part of a path, or follow the letter of a drive."""
    place, colon, name = target.rpartition(":")
    is_drive = os.name == "nt" and len(place) == 1
    if not colon or not place or not name.isidentifier() or is_drive or Path(target).is_file():
        return target, default
    return place, name


def _is_path(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place or Path(place).is_file()


def _not_found(place: str, module: ModuleType, name: str) -> str:
    if hasattr(module, name):
        return f"{name!r} in {place} is {described(getattr(module, name))}, not a Workflow"
    others = [each for each, value in vars(module).items() if isinstance(value, Workflow)]
    if not others:
        return f"there is no workflow in {place}: it defines no Workflow"
    hint = did_you_mean(name, others) if name != _DEFAULT_NAME else ""
    return f"{place} has no {name!r}{hint}; name one of its workflows: {', '.join(f'{place}:{o}' for o in others[:20])}"


def described(value: object) -> str:
    """What kind of thing a value is: "an int"."""
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


# --- loading --------------------------------------------------------------------------------------------------


#: By its path, what was loaded of a file.
_files: dict[Path, ModuleType] = {}


def _module(place: str) -> ModuleType:
    return _load_file(place) if _is_path(place) else _load_module(place)


def _load_file(place: str) -> ModuleType:
    path = Path(place)
    try:
        if path.is_dir():
            raise UsageError(f"{place} is a folder; name a .py file in it")
        if not path.is_file():
            raise UsageError(f"there is no file {place}")
    except (OSError, ValueError) as error:
        raise UsageError(f"{place} cannot be looked at: {said(error)}") from error
    path = path.absolute()
    sys.path.insert(0, str(path.parent))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{place} is no Python file: its name has to end with .py")
    module = importlib.util.module_from_spec(spec)
    execute = spec.loader.exec_module

    def run() -> ModuleType:
        # What it defines is found again under this name, by dataclasses and the like.
        sys.modules[name] = module
        execute(module)
        return module

    _files[path.resolve()] = _loaded(place, str(path), run)
    return module


def _module_name(path: Path) -> str:
    """The name that importing the file would give it, unless that is already another module's."""
    there = sys.modules.get(path.stem)
    is_free = there is None or getattr(there, "__file__", None) == str(path)
    return path.stem if is_free and path.stem.isidentifier() else f"ares_target_{path.stem}"


def _load_module(place: str) -> ModuleType:
    if not _MODULE.fullmatch(place):
        raise UsageError(f"{place!r} is neither the path of a .py file nor the name of a module")
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _failed(place, "", error) from error
        spec = None
    except (Exception, SystemExit) as error:  # a package above it runs on the way there
        raise _failed(place, "", error) from error
    if spec is None:
        raise UsageError(f"there is no module {place!r} in {Path.cwd()} or where Python looks for modules")
    return _loaded(place, spec.origin or "", lambda: importlib.import_module(place))


def _loaded(place: str, file: str, run: Callable[[], ModuleType]) -> ModuleType:
    try:
        return run()
    except (Exception, SystemExit) as error:
        raise _failed(place, file, error) from error


def _failed(place: str, file: str, error: BaseException) -> UsageError:
    """Why loading failed, and the line of the target that did it."""
    if isinstance(error, SyntaxError) and error.filename:
        return UsageError(f"{_short_path(error.filename)}:{error.lineno or 1}: {type(error).__name__}: {error.msg}")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_machinery(f.filename)]
    # Without a line of its own: that of the package above it, say, which comes first.
    frame = next((f for f in reversed(frames) if f.filename == file), frames[0] if frames else None)
    where = place if frame is None else f"{_short_path(frame.filename)}:{frame.lineno}"
    if isinstance(error, SystemExit):
        return UsageError(f"{where}: it exits while it is loaded; guard it by: if __name__ == '__main__'")
    return UsageError(f"{where}: {said(error)}")


def _is_machinery(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen ") or file == importlib.__file__


def _short_path(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return file
