"""A party in a rehearsal: invented records, books of its own that are thrown away, and no way to the real ones.

What protects the institution is not what the coordinator says but what this process has: it is started by the
institution for a rehearsal alone, and knows neither where the records are nor the answer book. It answers under another
consortium's name, which is a part of all that it signs for sums, and signs what it saw of a ledger with a key that is
thrown away: nothing of it is of any use outside. A party that serves its real records knows no rehearsal at all.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.data import Examples
from collegium.data.invented import invented
from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.parties.config import OwnRecords, PartyConfig
from collegium.parties.enrolment import enrolled_tasks
from collegium.parties.opening import Opening
from collegium.protocol.identities import Credentials
from collegium.protocol.rehearsals import rehearsal_of


def without_records(config: PartyConfig, folder: Path) -> PartyConfig:
    """The settings of a party whose files are all in ``folder``, and that knows nothing of its institution's records.

    The roster is a copy: what a rehearsal announces changes nothing.
    """
    if config.roster is None:
        raise ConfigurationError("party.toml names no roster: without it this party takes no part in sums")
    roster = folder / "roster.json"
    shutil.copyfile(config.roster, roster)
    nothing = OwnRecords(source="invented records", one_row_each=False)
    return config.model_copy(update={"data": nothing, "data_root": None, "folder": folder / "state", "roster": roster})


class RehearsalOpening(Opening):
    """Opens the party with invented records.

    Parameters
    ----------
    file : party.toml, beside which the tasks lie that the institution enrolled for.
    config : what `without_records` made of it.
    records : how many are invented.

    Raises
    ------
    ConfigurationError
        If the institution never enrolled: it has agreed to no task to invent records of.
    """

    def __init__(self, file: Path, config: PartyConfig, credentials: Credentials, records: int) -> None:
        if not enrolled_tasks(file.parent):
            raise ConfigurationError(f"{file.parent} was never enrolled: there is no task to rehearse")
        config.folder.mkdir(mode=0o700, parents=True)
        super().__init__(file, config, credentials)
        self._number = records
        assert self._membership is not None  # there is a roster
        self._membership = replace(self._membership, consortium=rehearsal_of(self._membership.consortium))

    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.generate()

    def _records(self, task: Task) -> Examples:
        return invented(task, self._number, np.random.default_rng())
