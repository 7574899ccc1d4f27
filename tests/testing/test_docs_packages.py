"""What the pages about plugins and tests tell an author to write works, as it stands there, in a package of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by name: the last word before a block, if it is one."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return dict(re.findall(r"`([\w.]+\.\w+)`:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        folder.joinpath(name).write_text(text, "utf-8")


@attrs.frozen
class Installed:
    """The package of the page, as pip has installed it, and the folder of a program that has it."""

    site: Path
    home: Path

    def run(self, *arguments: str) -> str:
        """What Python says to these arguments, away from the package's source; it must end well."""
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.home,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
                "PYTHONPATH": f"{self.site}:{ROOT}",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """The package of the page, installed by pip."""
    files = files_of("writing_plugins.md")
    write(tmp_path / "source", {name: files[name] for name in ("pyproject.toml", "ares_stopwatch.py")})
    write(tmp_path / "home", {name: files[name] for name in ("program.py", "test_stopwatch.py")})
    site = tmp_path / "site"
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--no-cache-dir"]
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", site, tmp_path / "source"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return Installed(site, tmp_path / "home")


def test_a_plugin_written_from_the_page_alone_is_installed_found_run_shown_and_passes_its_tests(
    installed: Installed,
) -> None:
    """One test, since installing takes most of the time."""
    tests = ["-m", "pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "_ares_pytest"]
    with ThreadPoolExecutor(2) as pool:
        program = pool.submit(installed.run, "program.py")
        command = pool.submit(installed.run, "-m", "ares", "plugins", "--installed")
        suite = pool.submit(installed.run, *tests, "-p", "no:cacheprovider", "test_stopwatch.py")

        assert re.fullmatch(r"slowest: (fetch|total)\n", program.result())
        shown = [line.split() for line in command.result().splitlines()]
        assert ["stopwatch", "ares-stopwatch", "1.2.0", "running"] in shown
        assert ["after_step", "stopwatch"] in shown
        assert re.search(r"^\d\d passed", suite.result(), re.MULTILINE)


def test_the_tests_on_the_page_about_tests_pass(tmp_path: Path) -> None:
    write(tmp_path / "home", files_of("testing.md"))

    options = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "_ares_pytest", "-p", "no:cacheprovider"]
    said = Installed(tmp_path, tmp_path / "home").run("-m", "pytest", *options)

    assert re.search(r"^6 passed", said, re.MULTILINE), said
