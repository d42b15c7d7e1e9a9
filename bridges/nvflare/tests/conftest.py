"""Loaded before the tests of the bridge. Those that run whole jobs are slow: `make check` leaves them out."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import collegium.protocol.grpc_tls13  # noqa: F401  before anything else loads gRPC
