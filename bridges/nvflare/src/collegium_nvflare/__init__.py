"""Collegium over NVFlare's channel: the coordinator, parties, secure sums, policies and ledger of our own sessions."""
