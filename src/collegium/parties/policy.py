"""The policy of an institution: which questions it answers. The party checks it before any record is looked at."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pydantic import Field

from collegium.clock import utc_now
from collegium.data.task import Task
from collegium.data.values import PoolChunk
from collegium.errors import (
    ConfigurationError,
    HoursRefused,
    MechanismRefused,
    ModeRefused,
    NoiseRefused,
    PoolRefused,
)
from collegium.protocol.messages import Request
from collegium.protocol.question import Question, own_kinds
from collegium.protocol.requests import Ask, HoldPool, RequestBody
from collegium.protocol.roster import Hex32
from collegium.settings import Frozen, read_config
from collegium_accounting.mechanisms import Mechanism, default_names

DEFAULT_RECORD_RHO = 0.01
"""What one record may spend over all runs unless the institution's policy says otherwise (ε = 0.6 at δ = 1e-5)."""


class PolicyConfig(Frozen):
    """The institution's policy file (TOML).

    Examples
    --------
    >>> import collegium as cg
    >>> cg.PolicyConfig(minimum_noise_votes=10).sum_modes
    ('masked', 'masked+noised')
    """

    mechanisms: tuple[str, ...] = Field(default_factory=default_names)
    """Mechanisms that may be applied to the sum that holds its votes; those of other installed packages by name."""
    questions: tuple[str, ...] = Field(default_factory=own_kinds)
    """Kinds of questions that it answers; those of other installed packages by name."""
    minimum_noise_votes: float = Field(default=0.0, ge=0)
    """Smallest noise scale of any stage (σ of a Gaussian, 1/γ of Laplace or Gumbel noise), in votes."""
    minimum_noise_sums: float | None = Field(default=None, ge=0)
    """Smallest σ of a sum over all records, in units of the largest contribution of one record (or of this party);
    ``minimum_noise_votes`` holds for such sums too where this is left out."""
    sum_modes: tuple[str, ...] = ("masked", "masked+noised")
    """Ways to sum that it takes part in; `clear` shows its votes to the coordinator."""
    pools: tuple[Hex32, ...] | None = None
    """SHA-256 of each pool whose inputs it answers about. None takes any pool; `collegium party serve` wants names."""
    few_parties: bool = False
    """Whether it takes part in exact sums (``masked``) of fewer than five parties, which may show single votes."""
    teacher_imports: tuple[str, ...] = ()
    """Teachers of its own by import path (``package.module:Class``) that the coordinator may name."""
    queries: int | None = Field(default=None, ge=1)
    """Queries that it answers altogether."""
    sums_kept_days: int = Field(default=30, ge=1)
    """For how long it keeps its part in a sum that was not opened, so that it may be opened later."""
    epsilon: float | None = Field(default=None, gt=0)
    """What its own votes may cost it altogether, at party level."""
    delta: float = Field(default=1e-5, gt=0, lt=1)
    """The δ at which ``epsilon`` and ``record_epsilon`` are counted."""
    record_rho: float = Field(default=DEFAULT_RECORD_RHO, gt=0)
    """Zero-concentrated privacy that one record may spend on neighbours over all runs, and twice what the party may
    spend where it is one voter. What began with voters of one kind goes on with that kind."""
    record_epsilon: float | None = Field(default=None, ge=0)
    """What sums, counts, votes of teachers and sampled neighbours may cost one record altogether."""
    seeded_noise: bool = False
    """Whether party.toml may set ``noise_seed``: for research on records that need no protection."""
    hours_utc: tuple[int, int] | None = None
    """Answers only from the first to before the second hour of the day, UTC; may span midnight."""

    @classmethod
    def read(cls, path: Path) -> "PolicyConfig":
        """Read the file at ``path``; StorageError or ConfigurationError says what is wrong with it."""
        return read_config(path, cls)

    def noise_floor(self, *, summed: bool) -> float:
        """The smallest noise of a sum over all records (``summed``), or of votes."""
        return self.minimum_noise_sums if summed and self.minimum_noise_sums is not None else self.minimum_noise_votes


class Policy:
    """Raises Refused for a pool or a request for votes that the institution did not agree to."""

    def __init__(self, config: PolicyConfig, clock: Callable[[], datetime] = utc_now) -> None:
        self._config = config
        self._clock = clock

    def __call__(self, request: Request) -> None:
        self._check_pool(request.body)
        if not isinstance(request.body, Ask):
            return
        question, allowed = request.body.question, self._config
        terms = question.terms
        if question.kind not in allowed.questions:
            raise MechanismRefused(f"policy: questions of the kind {question.kind!r} are not agreed to (questions)")
        if terms.sum_mode not in allowed.sum_modes:
            raise ModeRefused(
                f"policy: sums in the mode {terms.sum_mode!r} are not agreed to, only {allowed.sum_modes}"
            )
        if terms.mechanism not in allowed.mechanisms:
            raise MechanismRefused(
                f"policy: the mechanism {terms.mechanism!r} is not agreed to, only {allowed.mechanisms}"
            )
        noise, floor = described(question).noise_votes, allowed.noise_floor(summed=question.whole_vector)
        if noise < floor:
            unit = "contributions" if question.whole_vector else "votes"
            raise NoiseRefused(f"policy: noise of {noise:g} {unit} is less than the {floor:g} agreed to")
        if allowed.hours_utc is not None and not _within(self._clock().hour, *allowed.hours_utc):
            first, last = allowed.hours_utc
            raise HoursRefused(f"policy: answers are given from {first} to {last} o'clock UTC")

    def _check_pool(self, body: RequestBody) -> None:
        """Refuse a pool before it is stored, and questions about one that this machine holds from before."""
        sha256: str | None = None
        if isinstance(body, HoldPool | PoolChunk):
            sha256 = body.pool.sha256
        elif isinstance(body, Ask):
            sha256 = body.question.pool
        if self._config.pools is not None and sha256 is not None and sha256 not in self._config.pools:
            raise PoolRefused(
                f"policy: the pool {sha256} is not agreed to: ask the consortium, and add it to pools if it is theirs"
            )


def described(question: Question) -> Mechanism:
    """The mechanism that a question's terms describe: its charge and its noise are what the party reckons with.

    The floor of the policy, the party's own charge and the noise that it adds before masking are asked of the same
    object, so that they cannot differ. Nothing here looks at records: a refusal tells no more than the question itself.

    Raises
    ------
    MechanismRefused
        If the terms describe no mechanism that a party can answer by such a question: its name or a parameter is
        unknown, missing, surplus or not finite, it protects nobody, or it is about other voters, another adjacency
        or another stage; or if the parties' shares of the noise would be too small.
    ModeRefused
        If it does not work in the way of summing that is asked for; under ``masked+noised`` only a mechanism whose
        noise the parties can share does.
    """
    terms = question.terms
    try:
        mechanism = terms.described()
    except ConfigurationError as error:
        raise MechanismRefused(f"policy: the terms describe no mechanism that this party knows: {error}") from error
    if not mechanism.private:
        raise MechanismRefused(f"policy: the mechanism {mechanism.name} protects nobody")
    if not question.fits(type(mechanism)):
        raise MechanismRefused(f"policy: {mechanism.name} is not for questions of the kind {question.kind!r}")
    if terms.adjacency not in mechanism.adjacencies:
        raise MechanismRefused(f"policy: {mechanism.name} is not accounted for under {terms.adjacency} adjacency")
    # An exact vector about all records would tell far more than what is paid for it.
    if terms.sum_mode not in mechanism.sum_modes or (question.whole_vector and terms.sum_mode == "masked"):
        raise ModeRefused(f"policy: {mechanism.name} is not answered in the mode {terms.sum_mode!r}")
    try:
        _ = [stage.share for stage in question.stages()]
    except ConfigurationError as error:
        raise MechanismRefused(f"policy: the terms describe no release that this party knows: {error}") from error
    return mechanism


def require_suits(mechanism: Mechanism, task: Task) -> None:
    """Raise MechanismRefused unless the mechanism is about as many classes, and labels a record, as the task has."""
    if mechanism.several_labels != task.multilabel:
        held = "any of the classes" if task.multilabel else "one class each"
        raise MechanismRefused(f"{mechanism.name} does not suit this task, whose records hold {held}")
    counted = {name: mechanism.parameters().get(name) for name in ("classes", "labels")}
    if any(number not in (None, len(task.classes)) for number in counted.values()):
        raise MechanismRefused(f"the terms of {mechanism.name} are about another number of classes than the task has")


def _within(hour: int, first: int, last: int) -> bool:
    return first <= hour < last if first <= last else hour >= first or hour < last
