"""What a step costs, beside what nobody can beat on the same machine. Run as ``python -m benchmarks``."""
