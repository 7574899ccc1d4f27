"""Executors: where the bodies of steps run that do not run on the Runtime's own workers.

``named`` keeps those of a Runtime, ``place`` one of them, ``pool`` what is behind that at the moment; ``dask`` makes a
Dask cluster one, and is imported only by who uses it. The engine knows ``ares.remote.protocol`` and none of these.
"""

from ares.remote.there import end_with_home

__all__ = ["end_with_home"]
