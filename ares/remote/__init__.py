"""What crosses to an executor and back: a body with its arguments there, what it came to on the way back.

Both sides are told here, because both must agree: ``errand`` packs a call at home, ``there`` unpacks and runs it,
``returned`` is what comes back, ``marks`` settles who may begin. Nothing in here knows an engine or an executor.
"""
