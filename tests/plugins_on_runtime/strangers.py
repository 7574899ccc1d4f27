"""Distributions as pip leaves them behind, but for the work of installing them."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

#: A plugin that tells by an event that it saw a step.
WITNESS = """
    from ares import Plugin

    class Witness(Plugin):
        name = "{name}"

        def start(self, ctx, bus):
            self.bus = bus

        def after_step(self, ctx, execution_id, result):
            self.bus.emit(execution_id, "{name}.saw", self.name, {{"path": result.path}})
"""


def install(folder: Path, distribution: str, points: Mapping[str, str], version: str = "1.0", **modules: str) -> Path:
    """Lay a distribution into a folder of the search path.

    Args:
        folder: where to.
        distribution: its name.
        points: its entry points of the group ``ares.plugins``.
        version: its version.
        modules: the source of its modules, by name.
    """
    folder.mkdir(exist_ok=True)
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    info.joinpath("entry_points.txt").write_text("\n".join(["[ares.plugins]", *lines, ""]))
    info.joinpath("top_level.txt").write_text("\n".join([*modules, ""]))
    for name, source in modules.items():
        folder.joinpath(f"{name}.py").write_text(textwrap.dedent(source))
    return info


def witness(folder: Path, distribution: str, name: str, module: str, version: str = "1.0") -> Path:
    """Lay a distribution with one ``WITNESS`` into a folder."""
    return install(folder, distribution, {name: f"{module}:Witness"}, version, **{module: WITNESS.format(name=name)})
