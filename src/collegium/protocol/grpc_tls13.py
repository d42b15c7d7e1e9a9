"""gRPC, imported in such a way that it uses TLS 1.3 only. Every module of Collegium takes ``grpc`` from here.

gRPC has no option for the version of TLS, but on import it reads from the environment which cipher suites of TLS 1.2
it may use. The suite named here needs an RSA certificate. Our certificates are ECDSA, so every TLS 1.2 handshake fails.
`channels.require_tls13` checks this on the open port. Afterwards the environment is as it was before.
"""

from __future__ import annotations

import os

_SUITES = "GRPC_SSL_CIPHER_SUITES"
_before = os.environ.get(_SUITES)
os.environ[_SUITES] = "ECDHE-RSA-AES256-GCM-SHA384"
try:
    import grpc
    import grpc.aio
    from grpc.aio import EOF  # type: ignore[attr-defined]
finally:
    if _before is None:
        del os.environ[_SUITES]
    else:
        os.environ[_SUITES] = _before

__all__ = ["EOF", "grpc"]
