"""gRPC, loaded such that it speaks TLS 1.3 alone. Every module of Collegium takes ``grpc`` from here.

gRPC has no option for the version of TLS, but when it is loaded it reads from the environment which cipher suites of
TLS 1.2 it may use. The one named here needs an RSA certificate; ours are ECDSA, so every TLS 1.2 handshake fails.
`channels.require_tls13` checks the effect on the open port. The environment is put back as it was.
"""

from __future__ import annotations

import os

_WHILE_LOADING = {
    "GRPC_SSL_CIPHER_SUITES": "ECDHE-RSA-AES256-GCM-SHA384",
    # Every refused handshake would otherwise be printed by gRPC itself, between a user's lines.
    "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE"),
}
_before = {name: os.environ.get(name) for name in _WHILE_LOADING}
os.environ.update(_WHILE_LOADING)
try:
    import grpc
    import grpc.aio
    from grpc.aio import EOF  # type: ignore[attr-defined]
finally:
    for name, value in _before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value

__all__ = ["EOF", "grpc"]
