"""Who is billed, and for what."""

from django.db import models


class Customer(models.Model):
    """Somebody who gets an invoice each month."""

    name = models.CharField(max_length=100, unique=True)


class Invoice(models.Model):
    """One customer's invoice for one month."""

    customer = models.ForeignKey(Customer, on_delete=models.CASCADE)
    month = models.CharField(max_length=7)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        """No customer is billed twice for a month."""

        unique_together = ("customer", "month")
