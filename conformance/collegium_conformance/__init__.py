"""Conformance suites: whoever writes a mechanism, teacher, student or data source runs one function on it.

Each function returns None where the part keeps every promise that Collegium relies on, and raises AssertionError
with the promise that is broken otherwise. Nothing is skipped silently. Where a check is statistical, a part that
keeps its promises fails it with probability at most 1e-6. Collegium's own parts run through the same functions.
"""

from collegium_conformance.mechanisms import check_mechanism
from collegium_conformance.sources import check_source
from collegium_conformance.students import check_student
from collegium_conformance.teachers import check_teacher

__all__ = ["check_mechanism", "check_source", "check_student", "check_teacher"]
