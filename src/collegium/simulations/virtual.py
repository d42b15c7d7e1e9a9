"""A virtual party: the same `Party` object that a real process serves, made from the run's folder."""

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collegium.data import PoolStore, load
from collegium.errors import ConfigurationError, StorageError
from collegium.parties.party import Party, unrestricted
from collegium.parties.summing import Membership
from collegium.parties.teachers.splits import simulated_key
from collegium.protocol.identities import read_signing_key
from collegium.protocol.roster import Roster
from collegium.simulations.cohort import ROSTER, CohortMember, find
from collegium.simulations.config import SimulationConfig

SETTINGS = "simulation.json"


def write_settings(config: SimulationConfig, folder: Path, data_root: Path | None) -> None:
    """Leave the settings where virtual parties, in whatever process, find them."""
    root = None if data_root is None else str(data_root.resolve())
    settings = {"data_root": root, "simulation": config.model_dump(mode="json")}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1))


@functools.lru_cache(maxsize=4)
def read_settings(folder: Path) -> SimulationConfig:
    """The settings that `write_settings` wrote."""
    return SimulationConfig.model_validate(_settings(folder)["simulation"])


def read_data_root(folder: Path) -> Path | None:
    """Where the run that was prepared in ``folder`` found its data files."""
    root = _settings(folder)["data_root"]
    return None if root is None else Path(root)


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text())
    except OSError as error:
        raise StorageError(
            f"{folder} holds no prepared run: collegium simulate CONFIG --run {folder} --prepare-only"
        ) from error
    return settings


@functools.lru_cache(maxsize=1024)
def virtual_party(folder: Path, index: int) -> Party:
    """Party number ``index`` of the run in ``folder``, kept for the life of this process."""
    config = read_settings(folder)
    cohort = find(folder)
    if not 0 <= index < len(cohort):
        raise ConfigurationError(f"party {index} of {len(cohort)}: the engine has too many nodes")
    member = cohort[index]
    return Party(
        member.name,
        load(member.source, config.task, data_root=None),
        config.task,
        folder=member.folder,
        pools=PoolStore(folder / "pools"),
        device=config.engine.device,
        threads=config.engine.threads,
        allowed_imports=(config.teachers.kind,),  # whoever wrote the configuration plays the institutions too
        record_rho=math.inf,  # a simulation asks what a run would give; the run's own budget per record holds
        split_key=None if config.seed is None else simulated_key(config.seed, member.name),
        membership=_membership(folder, member, config.votes.collusion),
        policy=unrestricted,
    )


def _membership(folder: Path, member: CohortMember, collusion: float) -> Membership:
    """The virtual party among the others.

    Its secrets of a round follow from its key and the round's id, so that whichever process plays the
    party next has the same ones. A real party draws them from the operating system and keeps them to itself.
    """
    roster = Roster.load(folder / ROSTER)
    key = read_signing_key(member.credentials)
    secret = key.private_bytes_raw()

    def random_bytes(round_id: str) -> Callable[[int], bytes]:
        counter = itertools.count()

        def draw(size: int) -> bytes:
            text = b"collegium simulated round\0" + round_id.encode() + next(counter).to_bytes(8, "big")
            return hashlib.shake_256(secret + text).digest(size)

        return draw

    return Membership(roster.consortium, roster.signing_keys(), key.sign, collusion, random_bytes=random_bytes)
