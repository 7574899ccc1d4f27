"""What happens next: the walk of a DAG as a pure state machine. Facts in, work out; no thread, no clock, no I/O."""
