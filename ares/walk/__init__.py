"""What happens next: the walk of a DAG as a pure state machine. Facts in, work out; no thread, no clock, no I/O.

The theory is at the head of ``ares.walk.walk``; ``docs/walk.md`` has the table. From the bottom up:

``facts``       what can happen                      ``table``       which of it may happen when
``instance``    what is kept                         ``stopping``    what may not begin any more
``rewind``      how instances are set back           ``state``       what facts add up to
``readiness``   whether a step runs                  ``judge``       what follows a failed attempt
``route``       which branches a decision takes      ``conclude``    how things with parts end
``setback``     what a resume or retry sets back     ``agenda``      what is to be done
``beginning``   how what is ready begins             ``elements``    how the elements of a map come and go
``rounds``      whether there is another round       ``walk``        the whole
``invariants``  what is always true of it
"""
