"""Audits the installed dependencies: `make audit`. Fails on a known vulnerability, and says so where none can be known.

An index without advisories (most mirrors) or no network at all is no failure: the line then says that nothing was
audited, and why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

LIMIT_S = 300.0


def verdict(dependencies: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """What to print of pip-audit's dependencies, and whether the audit failed."""
    audited = [entry for entry in dependencies if "vulns" in entry]
    lines = [
        f"{entry['name']} {entry['version']}: {found['id']}, "
        + (f"mended in {', '.join(found['fix_versions'])}" if found.get("fix_versions") else "not mended yet")
        for entry in audited
        for found in entry["vulns"]
    ]
    if not audited:
        return [f"nothing was audited: the index has no advisories on any of {len(dependencies)} packages"], False
    unknown = [entry["name"] for entry in dependencies if "vulns" not in entry]
    lines.append(
        f"audited {len(audited)} packages" + (f"; not known to the index: {', '.join(unknown)}" if unknown else "")
    )
    return lines, len(lines) > 1


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--skip-editable", "--progress-spinner", "off"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        dependencies = json.loads(run.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        print(f"nothing was audited: the index did not answer within {LIMIT_S:g} s")
        return 0
    except (ValueError, KeyError):
        why = run.stderr.strip().splitlines()[-1:] or ["pip-audit printed nothing"]
        print(f"nothing was audited: {why[0]}")
        return 0
    lines, failed = verdict(dependencies)
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
