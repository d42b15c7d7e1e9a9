"""Loaded before any test module: Collegium comes before gRPC, which reads its TLS settings once (see `collegium`)."""

import collegium  # noqa: F401
