"""exp(−x) as a table of whole numbers: the same on every machine, and for a number whatever stands beside it."""

import numpy as np

KERNEL_ONE = 2**18
"""The whole number that stands for 1."""
STEPS = 2**14
"""Steps of the exponent from one whole number to the next."""
TABLE = np.rint(KERNEL_ONE * np.exp(-np.arange(16 * STEPS) / STEPS))
"""exp(−x) by x in steps of 2^-14: whole numbers in double precision, and 0 beyond the last."""
TABLE[-1] = 0.0
