"""A Django project whose invoices are written and sent by a workflow, which is in ``billing/workflows.py``.

python manage.py migrate --run-syncdb
python manage.py bill 2026-11          again, if it was cut short: it goes on where it was
DJANGO_SETTINGS_MODULE=settings gunicorn --threads 4 "django.core.wsgi:get_wsgi_application()"

POST /bills/2026-11    {"customers": ["Ann", "Bob"]}
GET  /bills/2026-11
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
