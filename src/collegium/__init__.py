"""Collegium: institutions that may not share data train one publishable classifier together."""

__version__ = "0.1.0"
