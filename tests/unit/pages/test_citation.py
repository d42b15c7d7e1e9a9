"""The citation file is read by machines, and names the version that this is."""

from __future__ import annotations

import yaml
from support.pages import ROOT

from collegium import __version__


def test_the_citation_has_what_the_format_asks_for_and_our_version_and_licence() -> None:
    held = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= held.keys()  # what version 1.2.0 of the format requires
    assert str(held["version"]) == __version__ and held["license"] == "Apache-2.0"


def test_the_contact_for_reports_says_that_it_is_a_placeholder() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "placeholder" in text and "example.org" in text
