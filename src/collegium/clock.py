"""The system's clock, as everything that takes a clock has it by default."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The time now, with its zone."""
    return datetime.now(UTC)
