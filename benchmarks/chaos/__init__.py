"""Faults on purpose: a real consortium whose processes are killed and stalled and whose network is cut while it labels.

``python -m benchmarks.chaos --faults 500 --seed 1`` does it and prints what came of it.
"""
