"""Collegium: institutions that may not share data train one publishable classifier together."""

import os

__version__ = "0.1.0"

# TLS 1.3 only. gRPC has no option for it but lets the TLS 1.2 suites be chosen, once, when it is first
# imported: the one below needs an RSA certificate, ours are ECDSA, so every TLS 1.2 handshake fails.
# `protocol.channels.require_tls13` checks the effect on the open port.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES256-GCM-SHA384"
# Every refused handshake would otherwise be printed by gRPC itself, between a user's lines.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
