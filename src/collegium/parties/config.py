"""An institution's own settings, party.toml, and what follows from them: its policy, its roster, its part in sums."""

from pathlib import Path

from pydantic import Field, model_validator

from collegium.data.loading.sources import DataSource
from collegium.errors import ConfigurationError
from collegium.limits import FEW_PARTIES
from collegium.parties.answer_book import AnswerBook
from collegium.parties.known_roster import KnownRoster
from collegium.parties.policy import PolicyConfig
from collegium.parties.summing import Membership
from collegium.parties.teachers.kinds import OwnTeacher
from collegium.protocol.identities import Credentials
from collegium.protocol.question import about_all_records
from collegium.protocol.roster import PartyName
from collegium.settings import Frozen, read_config
from collegium.whole_files import make_private
from collegium_accounting.mechanisms import mechanism_named


class OwnRecords(DataSource):
    """An institution's own records, and whose their rows are."""

    one_row_each: bool | None = None
    """Where no ``group`` names the person of a row: whether each row is another person. Where a person may have several
    rows, what is promised is promised for each row alone."""

    @property
    def persons(self) -> bool | None:
        """Whether what counts as one record is a person; None where the institution has not said."""
        return True if self.group is not None else self.one_row_each

    @model_validator(mode="after")
    def _said_once(self) -> "OwnRecords":
        if self.group is not None and self.one_row_each is not None:
            raise ValueError("group names the person of a row: leave one_row_each out")
        return self

    def require_decision(self) -> None:
        """ConfigurationError unless the institution has said whose a row is."""
        if self.persons is None:
            raise ConfigurationError(WHOSE)


WHOSE = (
    'whose is a row? Write below [data] in party.toml group = "COLUMN", which names the person of a row; or '
    "one_row_each = true where each row is another person, = false where a person may have several rows, which no "
    "column names"
)


class PartyConfig(Frozen):
    """The party's TOML file. Relative paths start at the folder of the file."""

    coordinator: str
    """``host:port``; the host is the name that the coordinator's certificate carries."""
    credentials: Path
    """Folder with certificate and keys."""
    data: OwnRecords
    """The party's own records."""
    folder: Path
    """Where fitted teachers, the split key and pools are kept."""
    roster: Path | None = None
    """The consortium's roster; without it the party takes no part in secure sums."""
    collusion: float = Field(default=0.1, ge=0, lt=1)
    """Share of the parties that may collude with the coordinator without learning this party's votes."""
    parties: tuple[PartyName, ...] = ()
    """Whom a person of this institution agreed to be summed with; nobody else is, and each by the key that it had
    first. This party itself need not be among them. ``collusion`` is a share of them."""
    minimum_parties: int = Field(default=3, ge=1)
    """No announced roster with fewer parties is taken over."""
    policy: Path | None = None
    """What the institution agrees to; masked sums of known mechanisms without further limits where there is none."""
    data_root: Path | None = None
    teacher: OwnTeacher | None = None
    """What it fits where the consortium's kind of teacher is ``own-choice``."""
    noise_seed: int | None = None
    """For research, where the policy allows it: the party's share of noise follows from this, and protects nobody."""
    device: str = "auto"
    threads: int = Field(default=1, ge=1)
    """CPU cores: for predicting, and for fitting several teachers side by side."""
    features_disk_gb: float = Field(default=0.0, ge=0)
    """GB that features of records may take in the folder for temporary files (``TMPDIR``) between the rounds of class
    sums, 4 bytes for each record and landmark, until the process ends; where they do not fit, every round computes them
    again."""

    @classmethod
    def read(cls, path: Path) -> "PartyConfig":
        """Read the file; StorageError or ConfigurationError says what is wrong with it."""
        config = read_config(path, cls)
        base = path.resolve().parent
        named = {name: getattr(config, name) for name in ("credentials", "folder", "data_root", "roster", "policy")}
        places = {name: base / place for name, place in named.items() if place is not None}
        return config.model_copy(update=places)


def known_roster(config: PartyConfig, credentials: Credentials) -> KnownRoster | None:
    """The roster as this party has it; None where the file names none.

    Raises IdentityError when it is not on it, and ConfigurationError when the institution names nobody.
    """
    if config.roster is None:
        return None
    if not config.parties:
        raise ConfigurationError("party.toml names nobody under parties: write there whom you agreed to be summed with")
    trusted, names = credentials.authority_pem, {*config.parties, credentials.name}
    known = KnownRoster(config.roster, trusted, vouched=names, minimum_parties=config.minimum_parties)
    known.roster.admit(credentials.subject)
    return known


def membership_of(config: PartyConfig, credentials: Credentials, known: KnownRoster | None) -> Membership | None:
    """The party among the others, as its own roster has them; None where the file names no roster."""
    if known is None:
        return None
    return Membership(
        known.roster.consortium,
        known,
        credentials.signing_key.sign,
        config.collusion,
        len(known.vouched),
        unnamed=lambda: known.unnamed,
        noise_seed=config.noise_seed,
    )


def policy_of(config: PartyConfig) -> PolicyConfig:
    """What the policy file says, or the default."""
    return PolicyConfig() if config.policy is None else PolicyConfig.read(config.policy)


def book_of(config: PartyConfig, policy: PolicyConfig, credentials: Credentials) -> AnswerBook:
    """The party's answer book, in its folder; StorageError, LedgerCorrupt or ConfigurationError if it is no use."""
    make_private(config.folder)
    return AnswerBook(config.folder, credentials.name, policy, credentials.signing_key)


def require_limits(policy: PolicyConfig, parties: int) -> None:
    """ConfigurationError unless the policy limits the noise, the pools, and the number of answers or their ε.

    With ``parties`` (those that the institution vouches for, 0 where it names none) below five, exact sums need a word.
    """
    kinds = {about_all_records(mechanism_named(name)) for name in policy.mechanisms}
    missing = [] if all(policy.noise_floor(summed=summed) for summed in kinds) else ["minimum_noise_votes"]
    missing += ["pools"] if policy.pools is None else []
    if policy.queries is None and policy.epsilon is None and policy.record_epsilon is None:
        missing.append("queries or epsilon")
    if missing:
        raise ConfigurationError(
            f"the policy sets no limit by {' and '.join(missing)}: write them into the policy file that party.toml "
            "names; a party without them would answer anything"
        )
    if 0 < parties < FEW_PARTIES and policy.sum_modes == ("masked",) and not policy.few_parties:
        raise ConfigurationError(
            f"the exact sum of {parties} parties may show what each voted: write few_parties = true into the policy "
            "file if this institution agrees to that, or ask the consortium for the mode masked+noised"
        )
