"""A view that begins a workflow, and one that tells how far it is."""

import json
from contextlib import suppress

from billing.models import Customer, Invoice
from billing.workflows import bill, runtime
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods

from ares.errors import ExecutionBusyError, ExecutionNotFoundError


@require_http_methods(["GET", "POST"])
def bills(request: HttpRequest, month: str) -> HttpResponse:
    """The bills of a month. A POST begins them, and may be repeated."""
    if request.method == "POST":
        for name in json.loads(request.body)["customers"]:
            Customer.objects.get_or_create(name=name)
        # The steps run on other threads, in transactions of their own: they see what is committed.
        transaction.on_commit(lambda: begin(month))
        return JsonResponse({}, status=202)
    try:
        status = runtime.execution(f"bill-{month}").status
    except ExecutionNotFoundError as error:
        return JsonResponse({"error": str(error)}, status=404)
    sent = Invoice.objects.filter(month=month, sent_at__isnull=False).values_list("customer__name", flat=True)
    return JsonResponse({"status": status, "sent": sorted(sent)})


def begin(month: str) -> None:
    """Begins, or goes on; once this returns, it is stored that it is to be done."""
    with suppress(ExecutionBusyError):  # it is under way, in this process or in another
        runtime.submit(bill, {"month": month}, execution_id=f"bill-{month}", if_exists="resume")
