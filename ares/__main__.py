"""``python -m ares`` is the ``ares`` command."""

import sys

from ares.cli import main

if __name__ == "__main__":
    sys.exit(main())
