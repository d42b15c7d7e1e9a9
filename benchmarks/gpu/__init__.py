"""The GPU kit: everything that runs on CUDA, measured and checked, on a machine that has PyTorch and no package index.

``python -m benchmarks.gpu`` measures and checks; ``python -m benchmarks.gpu.pack`` makes the one file to carry there.
"""
