"""gRPC, imported in such a way that it uses TLS 1.3 only. Every module of Collegium takes ``grpc`` from here.

gRPC has no option for the version of TLS, but on import it reads from the environment which cipher suites of TLS 1.2
it may use. The suite named here needs an RSA certificate. Our certificates are ECDSA, so every TLS 1.2 handshake fails.
`channels.require_tls13` checks this on the open port. Afterwards the environment is as it was before.
"""

import os

_WHILE_LOADING = {
    "GRPC_SSL_CIPHER_SUITES": "ECDHE-RSA-AES256-GCM-SHA384",
    # Otherwise gRPC itself prints a line for every refused handshake.
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
