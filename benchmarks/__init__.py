"""What is fast and what holds, measured by commands: ``python -m benchmarks.NAME --help``."""
