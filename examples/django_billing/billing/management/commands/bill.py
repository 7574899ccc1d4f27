"""``python manage.py bill 2026-11``."""

from typing import Any

from billing.workflows import bill, runtime, send
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ares.errors import ExecutionBusyError


class Command(BaseCommand):
    """Runs the workflow to its end, and says what came of it by its exit code."""

    help = "Writes and mails the invoices of a month; goes on where an earlier run was cut short or failed."

    def add_arguments(self, parser: CommandParser) -> None:
        """The month."""
        parser.add_argument("month", help="for instance 2026-11")

    def handle(self, *_: Any, month: str, **options: Any) -> None:  # noqa: ARG002 - Django's own options
        """An id that says what is done makes it safe to call this again, and from two terminals."""
        try:
            result = runtime.run(bill, {"month": month}, execution_id=f"bill-{month}", if_exists="resume")
        except ExecutionBusyError as busy:
            raise CommandError(f"it is under way: {busy}") from busy
        if result.status != "COMPLETED":
            raise CommandError(str(result.error))
        self.stdout.write(f"billed: {', '.join(result.output(send))}")
