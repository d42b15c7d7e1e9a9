"""docs/upgrading.md names the versions of formats that the code writes, and no others."""

import hashlib
import json
import re
from dataclasses import fields

from support.pages import ROOT

from collegium.coordinator.report import statement
from collegium.coordinator.run.run_record import RUN_FORMAT
from collegium.limits import PROTOCOL_VERSION
from collegium.models import whole_networks
from collegium.models.calibrated import CALIBRATED_FORMAT
from collegium.models.forests import FOREST_FORMAT
from collegium.models.kernel_student import KERNEL_FORMAT
from collegium.privacy.ledger import entry
from collegium.protocol.question import own_kinds, question_named
from collegium_accounting.mechanisms.class_sums import bound_squared, code_one, count_of_one

PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (.+?) \| (.+?) \|", PAGE, re.MULTILINE))


def test_the_table_has_the_versions_of_the_code() -> None:
    known = {
        "wire protocol (`collegium.v1`)": f"{PROTOCOL_VERSION}",
        "`ledger.sqlite` and the two ledgers of a party": f"{entry.FORMAT}",
        "`run.json`": f"{RUN_FORMAT}",
        "signed statement": f"{statement.FORMAT}",
        "student: class sums": f"`{KERNEL_FORMAT}`",
        "student: forest": f"`{FOREST_FORMAT}`",
        "student: network": f"`{whole_networks.FORMAT}`",
        "student: calibrated": f"`{CALIBRATED_FORMAT}`",
    }
    assert known.items() <= ROWS.items()


def test_what_both_sides_must_read_alike_does_not_change_under_one_number_of_the_protocol() -> None:
    """Where this fails, raise `PROTOCOL_VERSION` unless the version before still reads all of it; note the digest."""
    units = [(code_one(classes), count_of_one(classes), bound_squared(classes)) for classes in range(2, 11)]
    asked = [[kind, [field.name for field in fields(question_named(kind))]] for kind in own_kinds()]
    digest = hashlib.sha256(json.dumps([units, asked]).encode()).hexdigest()[:8]
    assert (PROTOCOL_VERSION, digest) == (2, "a252465f")
