"""The workflow, and the one Runtime of each process."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from billing.models import Customer, Invoice
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from ares import RetryPolicy, Runtime, StepContext, Workflow

bill = Workflow("bill", version="1", inputs={"month": str})


@bill.step
def write(month: str) -> list[int]:
    """Writes the invoices of a month. Those that are there stay, so it may run again."""
    Invoice.objects.bulk_create(
        [Invoice(customer=each, month=month) for each in Customer.objects.all()], ignore_conflicts=True
    )
    return list(Invoice.objects.filter(month=month).order_by("customer__name").values_list("pk", flat=True))


@bill.step(
    map_over=write,
    max_concurrency=4,
    timeout=settings.BILLING_MAIL_SECONDS,  # whatever hangs: the network, the mailer, the database
    retry=RetryPolicy(max_attempts=2),
)
def send(ctx: StepContext, item: int) -> str:
    """Mails one invoice. The mailer knows by the key what it has sent before."""
    invoice = Invoice.objects.select_related("customer").get(pk=item)
    headers = {"Idempotency-Key": ctx.idempotency_key}
    with urlopen(Request(f"{settings.BILLING_MAILER}/mail", invoice.customer.name.encode(), headers)):
        Invoice.objects.filter(pk=item).update(sent_at=timezone.now())
    return str(invoice.customer.name)


@contextmanager
def fresh_connections(_: StepContext) -> Iterator[None]:
    """What Django does around a request is done around a step: its thread has database connections of its own."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


runtime = Runtime(settings.BILLING_STORE, workflows=[bill], around_step=fresh_connections)
