"""Plugins of strangers: what installed distributions offer under the entry-point group ``ares.plugins``.

An entry point names a class, or a function without arguments, that makes one plugin. Looking what there is imports
nothing of anybody's; making the plugins runs their code.

One that cannot be made is refused, and with it the Runtime that asked for all: a plugin that does not import cannot say
whether it is required, or decides who may do what, so a Runtime that went on without it might have lost its access
control without a word. One that is made and then does not start is another matter: it has said what it is, and the
rules of ``Runtime.start`` hold.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from ares.bus.call import describe
from ares.bus.card import read
from ares.errors import RegistrationError, UsageError
from ares.plugin.contracts import RuntimePlugin

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # is slow to import, and seldom used

#: Where a distribution offers its plugins.
GROUP: Final = "ares.plugins"
#: What ``Runtime(plugins=...)`` is given to have them all.
INSTALLED: Final = "installed"


@attrs.frozen
class InstalledPlugin:
    """A plugin that a distribution offers. Nothing of it has been imported.

    Attributes:
        name: of the entry point; the plugin may call itself otherwise.
        distribution: who offers it, "" if its metadata do not say.
        version: of the distribution, "" likewise.
        target: what makes it, as ``module:name``.
    """

    name: str
    distribution: str
    version: str
    target: str
    _entry_point: "EntryPoint" = attrs.field(repr=False, eq=False)

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip() or "a distribution without a name"
        return f"entry point {self.name!r} ({self.target}) of {origin}"

    def make(self) -> RuntimePlugin:
        """Import what makes the plugin, and have it make one.

        Raises:
            RegistrationError: it does not import, raises, or makes what cannot live on a bus; names the distribution,
                the entry point and the cause, which is attached.
        """
        factory = self._load()
        if not callable(factory):
            kind = type(factory).__name__
            raise self._refusal(f"names a {kind}; a class, or a function without arguments, is expected")
        try:
            made = factory()
        except (Exception, SystemExit) as error:
            raise self._refusal(f"makes no plugin: {describe(error)}") from error
        try:
            read(made)
        except RegistrationError as error:
            raise self._refusal(f"makes a plugin that cannot live on a bus: {error}") from error
        except SystemExit as error:  # of a property, say
            raise self._refusal(f"makes a plugin that exits when it is looked at: {describe(error)}") from error
        plugin: RuntimePlugin = made
        return plugin

    def _load(self) -> Any:
        try:
            return self._entry_point.load()
        except (Exception, SystemExit) as error:  # a module may do anything while it is imported
            raise self._refusal(f"cannot be imported: {describe(error)}") from error

    def _refusal(self, problem: str) -> RegistrationError:
        return RegistrationError(self.name, f"{self} {problem}")


def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """What is there, by distribution and entry point, in the order of their names: the same on every machine.

    Raises:
        UsageError: the metadata of some distribution cannot be read, so nobody can tell what is installed.
    """
    from importlib.metadata import entry_points

    try:
        found = [_described(point) for point in entry_points(group=GROUP)]
    except Exception as error:
        raise UsageError(f"cannot tell which plugins are installed: {_culprit(error)}") from error
    return tuple(sorted(found, key=lambda each: (_normal(each.distribution), each.name, each.target)))


def chosen(plugins: Iterable[RuntimePlugin] | Literal["installed"]) -> Iterable[RuntimePlugin]:
    """What ``Runtime(plugins=...)`` was given, with ``"installed"`` as all plugins that are.

    Raises:
        UsageError: another text than that.
        RegistrationError: one that is installed cannot be made.
    """
    if not isinstance(plugins, str):
        return plugins
    if plugins != INSTALLED:
        raise UsageError(f"plugins must be plugins, or {INSTALLED!r} for all that are installed, not {plugins!r}")
    return [each.make() for each in installed_plugins()]


def _described(point: "EntryPoint") -> InstalledPlugin:
    try:
        metadata: Any = None if point.dist is None else point.dist.metadata
    except FileNotFoundError:  # said instead of None by the backport of importlib.metadata, where it is installed
        metadata = None
    name, version = ("", "") if metadata is None else (metadata.get("Name"), metadata.get("Version"))
    return InstalledPlugin(point.name, name or "", version or "", point.value, point)


def _normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _culprit(error: Exception) -> str:
    """Which distribution it was, as far as that can be found out."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            _ = distribution.entry_points
        except Exception as its_own:
            return f"the entry points of {getattr(distribution, '_path', distribution)} are broken: {describe(its_own)}"
    return describe(error)
