"""The soak: processes that walk executions on one store while everything goes wrong, and the proof that nothing did.

    python -m benchmarks soak [--processes 4] [--executions 500] [--steps 20] [--fault NAME:EVERY[:LASTS[:TIMES]]]...

Every step has an effect, done through ``ctx.once`` and left as a line in a file. Meanwhile processes are killed and
replaced, stopped past their lease, the store is taken away and given back, the disk is full, the wall clock jumps. At
the end nothing may be lost, doubled or stuck, by the journal and by those lines: ``proof`` says what is.

``plan`` says what is to be done and when what goes wrong, repeatable by a seed. ``work`` is what the processes do,
``crew`` keeps so many of them alive, ``faults`` are what goes wrong, ``disk`` and ``wall_clock`` what two of them need,
``places`` where executions are kept. ``stage`` sets all of it up, ``conductor`` has it happen, ``evidence`` is what was
left, ``proof`` judges it, ``command`` is the command.
"""
