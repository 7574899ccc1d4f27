"""The Django project: its command and its view in processes of their own, on SQLite files of Django's and of ares's."""

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.examples.partner import Partner
from tests.examples.programs import ROOT, Program, Site, eventually, steps_done

#: They start programs that import much.
pytestmark = pytest.mark.timeout(180)

MANAGE = ROOT / "examples" / "django_billing" / "manage.py"

Command = Callable[..., Program]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Django's file, with its tables."""
    folder = tmp_path_factory.mktemp("billing")
    with Program([MANAGE, "migrate", "--run-syncdb"], folder, BILLING_FOLDER=str(folder)) as migrate:
        assert migrate.finish() == 0, migrate.said
    return folder / "billing.db"


@pytest.fixture
def folder(tables: Path, tmp_path: Path) -> Path:
    """Where the files are."""
    shutil.copy(tables, tmp_path)
    return tmp_path


@pytest.fixture
def command(folder: Path, partner: Partner) -> Iterator[Command]:
    """Starts ``manage.py`` with some words; killed in the end."""
    with ExitStack() as started:

        def start(*words: str, **more: str) -> Program:
            settings = {"BILLING_FOLDER": str(folder), "BILLING_MAILER": partner.url, **more}
            return started.enter_context(Program([MANAGE, *words], folder, **settings))

        yield start


def add_customers(folder: Path, *names: str) -> None:
    with closing(sqlite3.connect(folder / "billing.db")) as db, db:
        db.executemany("INSERT INTO billing_customer (name) VALUES (?)", [(name,) for name in names])


def sent(folder: Path) -> list[str]:
    """Whose invoices are sent, by Django's own file."""
    query = """SELECT name FROM billing_invoice JOIN billing_customer ON customer_id = billing_customer.id
               WHERE sent_at IS NOT NULL ORDER BY name"""
    with closing(sqlite3.connect(folder / "billing.db")) as db:
        return [name for (name,) in db.execute(query)]


def test_the_command_bills_everybody_once_however_often_it_is_called(
    command: Command, folder: Path, partner: Partner
) -> None:
    add_customers(folder, *"ABCDEF")

    first = command("bill", "2026-11")
    assert first.finish() == 0, first.said
    again = command("bill", "2026-11")
    assert again.finish() == 0, again.said

    assert first.said == again.said == "billed: A, B, C, D, E, F\n"
    assert sorted(partner.heard("mail")) == list("ABCDEF")
    assert sent(folder) == list("ABCDEF")


def test_a_killed_command_is_gone_on_with_and_what_was_sent_is_not_sent_again(
    command: Command, folder: Path, partner: Partner
) -> None:
    add_customers(folder, *"ABCDEF")

    with partner.holding("mail F"):
        first = command("bill", "2026-11")
        eventually(lambda: sent(folder) == list("ABCDE"))
        partner.wait_for("mail", 6)
        eventually(lambda: steps_done(folder / "ares.db", "bill-2026-11") == 6)
        second = command("bill", "2026-11")
        assert second.finish() == 1
        assert "CommandError: it is under way: " in second.said
        first.kill()
    third = command("bill", "2026-11")

    assert third.finish() == 0, third.said
    assert third.said == "billed: A, B, C, D, E, F\n"
    assert sorted(partner.heard("mail")) == list("ABCDEFF")
    assert len(partner.keys("mail")) == 6


def test_a_mailer_that_hangs_costs_its_timeouts_and_is_tried_again_by_the_next_call(
    command: Command, folder: Path, partner: Partner
) -> None:
    add_customers(folder, "A")

    with partner.holding("mail"):
        first = command("bill", "2026-11", BILLING_MAIL_SECONDS="0.2")
        assert first.finish() == 1
    again = command("bill", "2026-11")

    assert "still running after 0.2 s" in first.said
    assert again.finish() == 0, again.said
    assert partner.heard("mail") == ["A", "A", "A"]
    assert len(partner.keys("mail")) == 1
    assert sent(folder) == ["A"]


def test_the_view_begins_what_the_request_has_committed_and_tells_how_far_it_is(folder: Path, partner: Partner) -> None:
    words = ["-m", "gunicorn", "--chdir", MANAGE.parent, "--bind", "127.0.0.1:0", "--workers", "2", "--threads", "4"]
    settings = {"DJANGO_SETTINGS_MODULE": "settings", "BILLING_FOLDER": str(folder), "BILLING_MAILER": partner.url}

    with Site([*words, "django.core.wsgi:get_wsgi_application()"], folder, **settings) as site:
        assert site.ask("GET", "/bills/2026-11")[0] == 404
        with partner.holding("mail Bob"):
            for _ in range(3):
                assert site.ask("POST", "/bills/2026-11", {"customers": ["Ann", "Bob"]})[0] == 202
            eventually(lambda: site.ask("GET", "/bills/2026-11")[1] == {"status": "RUNNING", "sent": ["Ann"]})
        eventually(lambda: site.ask("GET", "/bills/2026-11")[1] == {"status": "COMPLETED", "sent": ["Ann", "Bob"]})
        site.signal(signal.SIGTERM)
        assert site.finish() == 0, site.said

    assert partner.repeated("mail") == {}
    assert "Error" not in site.said
