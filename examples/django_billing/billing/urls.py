"""Where the views are."""

from billing.views import bills
from django.urls import path

urlpatterns = [path("bills/<str:month>", bills)]
