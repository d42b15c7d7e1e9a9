"""docs/upgrading.md names the versions of formats that the code writes, and no others."""

import re

from support.pages import ROOT

from collegium.coordinator.report import statement
from collegium.coordinator.run.run_record import RUN_FORMAT
from collegium.limits import PROTOCOL_VERSION
from collegium.models import whole_networks
from collegium.models.calibrated import CALIBRATED_FORMAT
from collegium.models.forests import FOREST_FORMAT
from collegium.models.kernel_student import KERNEL_FORMAT
from collegium.privacy.ledger import entry

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
