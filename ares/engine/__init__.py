"""How a walk becomes work: threads, timers and attempts around the pure walk. Knows the protocols ``Bus`` and
``Journal``, and no plugin and no store."""
