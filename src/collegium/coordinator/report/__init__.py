"""The report: one self-contained HTML page, rendered from run.json alone."""

from __future__ import annotations

from collegium.coordinator.report.page import render, write_report

__all__ = ["render", "write_report"]
