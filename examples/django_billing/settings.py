"""As little as Django needs. Two files: Django's own, and the store of ares."""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("BILLING_FOLDER", Path(__file__).parent))
SECRET_KEY = os.environ.get("BILLING_SECRET_KEY", "only for trying it out")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["billing"]
ROOT_URLCONF = "billing.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "billing.db",
        "ATOMIC_REQUESTS": True,
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # steps write from several threads
    }
}

BILLING_STORE = FOLDER / "ares.db"
BILLING_MAILER = os.environ.get("BILLING_MAILER", "http://127.0.0.1:8001")
BILLING_MAIL_SECONDS = float(os.environ.get("BILLING_MAIL_SECONDS", "30"))
