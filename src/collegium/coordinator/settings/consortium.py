"""The consortium's TOML file, and what lies where in its folder."""

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from collegium.coordinator.membership.members import MembersFile
from collegium.coordinator.settings.run_config import RunConfig
from collegium.data.loading.sources import data_root as find_data_root
from collegium.data.task import Task
from collegium.errors import ConfigurationError
from collegium.protocol.channels import is_loopback, split_address
from collegium.protocol.rehearsals import SUFFIX, is_rehearsal, rehearsal_of
from collegium.protocol.roster import PartyName
from collegium.settings import Frozen, line_of, read_config, read_toml, validate_config
from collegium_accounting.mechanisms import SumMode

STUDY_FILE = "study.toml"
"""In the folder of a study: the sections in which it differs from the consortium's file."""


class ConsortiumSettings(Frozen):
    """The parties, and the coordinator's addresses."""

    address: str
    """``host:port`` that parties dial; the coordinator's certificate is made for this host."""
    enrolment: str
    """``host:port`` where parties enrol; on the same host."""
    listen: str | None = None
    """Interface to listen on; by default all of them, or this machine alone where the host is localhost."""
    parties: tuple[PartyName, ...] = Field(min_length=1)
    study: PartyName | None = None
    """Which of the consortium's studies is meant; the command line says it. None is that of this file alone."""
    rehearsal: bool = False
    """Whether this is a rehearsal with invented records, in a folder of its own; the command line says it."""
    folder: Path
    """Keys, roster, ledger and labels; a relative path starts at the folder of this file."""
    data_root: Path | None = None
    """Where the pool's file lies; the folder of this file by default."""
    code_hours: float = Field(default=168.0, gt=0)
    certificate_days: int = Field(default=365, ge=1, le=3650)
    status: str | None = None
    """``host:port`` where the live page is shown, such as 127.0.0.1:8080; none by default."""
    status_hosts: tuple[str, ...] = ()
    """Further names under which the live page may be asked for, such as that of a Kubernetes service."""
    device: str = "auto"
    threads: int = Field(default=1, ge=1)

    @field_validator("address", "enrolment", "status")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                split_address(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _names_differ(self) -> "ConsortiumSettings":
        twice = sorted({name for name in self.parties if self.parties.count(name) > 1})
        if twice:
            raise ValueError(f"every party needs its own name: {', '.join(twice)} is used twice")
        return self

    @property
    def host(self) -> str:
        return split_address(self.address)[0]

    def bound(self, address: str) -> str:
        """Where to listen for what is dialled as ``address``."""
        host, port = split_address(address)
        interface = self.listen or (host if is_loopback(host) else "0.0.0.0")
        return f"[{interface}]:{port}" if ":" in interface else f"{interface}:{port}"


class ConsortiumConfig(RunConfig):
    """One run, and the consortium that does it."""

    consortium: ConsortiumSettings

    @field_validator("name")
    @classmethod
    def _is_no_rehearsal(cls, name: str) -> str:
        if is_rehearsal(name):
            raise ValueError(f"a name that ends in {SUFFIX} is that of a rehearsal: take another")
        return name

    @model_validator(mode="after")
    def _seed_fits(self) -> "ConsortiumConfig":
        counted = self.evaluation is not None or self.pool_check is not None or bool(self.counts)
        noised = self.votes.mode == SumMode.MASKED_AND_NOISED or (counted and self.votes.mode != SumMode.CLEAR)
        if self.seed is not None and noised:
            raise ValueError("seed: institutions draw their noise from no seed of the coordinator: leave seed out")
        return self

    @property
    def place(self) -> "ConsortiumFolder":
        """Where everything of this study lies."""
        return ConsortiumFolder(self.consortium.folder, self.consortium.study, rehearsal=self.consortium.rehearsal)

    @property
    def run(self) -> RunConfig:
        """The configuration of the run, without the consortium's own settings."""
        values = {name: getattr(self, name) for name in RunConfig.model_fields}
        return RunConfig(**values | ({"name": rehearsal_of(self.name)} if self.consortium.rehearsal else {}))


def read_consortium(path: Path, study: str | None = None) -> ConsortiumConfig:
    """Read the file, its relative paths resolved, with the sections of a study in place of its own.

    Raises
    ------
    ConfigurationError
        If there is no such study, or its file has a section that all studies share; see `read_config` for others.
    """
    config = read_config(path, ConsortiumConfig)
    if study is not None:
        config = _of_study(path, config, study)
    base, settings = path.resolve().parent, config.consortium
    if len({split_address(address)[0] for address in (settings.address, settings.enrolment)}) != 1:
        raise ConfigurationError(f"{path}: consortium.enrolment must be on the host of consortium.address")
    places = {"folder": base / settings.folder, "data_root": base / (settings.data_root or ".")}
    return config.model_copy(update={"consortium": settings.model_copy(update=places)})


def _of_study(path: Path, config: ConsortiumConfig, study: str) -> ConsortiumConfig:
    place = path.resolve().parent / config.consortium.folder
    file = ConsortiumFolder(place, study).run / STUDY_FILE
    if not file.exists():
        raise ConfigurationError(f"there is no study {study!r}: collegium study list {path} names those that there are")
    own, text = read_toml(file)
    for shared in {"name", "consortium"} & own.keys():
        raise ConfigurationError(f"{file}: line {line_of(text, [shared])}: all studies share {shared}: leave it out")
    values, _ = read_toml(path)
    values["consortium"]["study"] = study
    return validate_config(values | own, ConsortiumConfig, str(file), text)


def all_tasks(config: ConsortiumConfig) -> tuple[Task, ...]:
    """What the consortium means to learn, over all of its studies."""
    found = [config.task]
    for study in config.place.named():
        file = config.place.studies / study / STUDY_FILE
        values, text = read_toml(file)
        if "task" in values:
            found.append(validate_config(values["task"], Task, f"{file}: task", text))
    return tuple(task for number, task in enumerate(found) if task not in found[:number])


def public_root(config: ConsortiumConfig, option: Path | None) -> Path | None:
    """The folder of the public data: the option, or for a named set that of the environment, or what the file says."""
    named = find_data_root(None) if config.pool is not None and config.pool.is_named else None
    return option or named or config.consortium.data_root


class ConsortiumFolder:
    """Everything that the coordinator keeps, below ``path``.

    Parameters
    ----------
    study : whose labels, student and report lie in ``run``; None for the study of the consortium's own file.
    rehearsal : whether ledger and run are those of the rehearsal, which is made anew each time.
    """

    def __init__(self, path: Path, study: str | None = None, *, rehearsal: bool = False) -> None:
        self.path, self.study = path, study
        kept = path / "rehearsal" if rehearsal else path
        self.ledger = kept / "ledger.sqlite"
        """The one account of the records, over all studies."""
        self.studies = path / "studies"
        self.members = MembersFile(path)
        self.authority = path / "authority"
        self.identity = path / "coordinator"
        """The coordinator's own keys and certificate."""
        self.requests = path / "requests.pem"
        self.certificates = path / "certificates.pem"
        """What an authority that is kept apart has to sign, and what it signed."""
        self.run = self.studies / study if study is not None and not rehearsal else kept / "run"
        self.begin = self.run / "begin"
        """Where there is such a file, a coordinator that stays up begins this study, or goes on with it."""
        self.status = kept / "status.json"
        """Who is connected and what goes on, as the serving process last wrote it."""
        self.lock = path / ".serving.lock"
        """Held by the process that serves."""

    def begun(self) -> list[str]:
        """The named studies that a coordinator that stays up is to serve, in the order in which they were begun."""
        places = [ConsortiumFolder(self.path, study) for study in self.named()]
        due = [(place.begin.stat().st_mtime_ns, str(place.study)) for place in places if place.begin.exists()]
        return [study for _, study in sorted(due)]

    def named(self) -> list[str]:
        """The studies beside the consortium's own, sorted."""
        return sorted(file.parent.name for file in self.studies.glob(f"*/{STUDY_FILE}"))
