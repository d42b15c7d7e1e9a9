"""Writes a bill of materials, CycloneDX 1.6 as JSON: `make sbom` of this environment, `make wheelhouse` of its wheels.

python .ci/bill.py FILE [REQUIREMENT ...]    of what the requirements need here; every distribution by default
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from dependencies import OURS, Package, closure
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def bill_of(
    packages: Mapping[str, Package], sha256: Mapping[str, str] | None = None, subject: str = "collegium"
) -> str:
    """The bill of ``packages``, which must be closed: JSON of CycloneDX 1.6.

    The same packages give the same bill, byte for byte, where SOURCE_DATE_EPOCH says its time.

    Parameters
    ----------
    sha256 : of the wheels, by the packages' names.
    subject : the package that needs all the others.
    """
    parts = {name: _component(package, (sha256 or {}).get(name)) for name, package in packages.items()}
    bom = Bom(components=parts.values())
    for name, package in packages.items():
        bom.register_dependency(parts[name], [parts[other] for other in package.needs])
    whole = _component(packages[subject], None, ComponentType.APPLICATION)
    bom.metadata.component = whole
    bom.register_dependency(whole, [parts[subject]])
    named = "\n".join(sorted(str(part.purl) for part in parts.values()))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, named)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(package: Package, sha256: str | None, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL("pypi", name=package.name, version=package.version)
    return Component(
        type=kind,
        name=package.name,
        version=package.version,
        description=package.summary or None,
        purl=purl,
        bom_ref=str(purl) if kind is ComponentType.LIBRARY else f"the-{package.name}-of-this-bill",
        licenses=[LicenseFactory().make_from_string(package.licence)] if package.licence else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
    )


def main(file: str, *requirements: str) -> int:
    try:
        packages = closure(requirements or OURS)
    except LookupError as absent:
        print(absent, file=sys.stderr)
        return 2
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    subject = canonicalize_name(Requirement(requirements[0]).name) if requirements else "collegium"
    path.write_text(bill_of(packages, subject=subject) + "\n", encoding="utf-8")
    print(f"{path}: {len(packages)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
