"""An institution as the protocol sees it: a request in, a reply out, no transport known.

The same object answers over a gRPC session and inside a simulation. It only chooses who answers:
every kind of request has its own handler.
"""

import functools
import itertools
import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from collegium.data import Examples, PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import PoolChunk, check_party_name
from collegium.errors import (
    CollegiumError,
    ConfigurationError,
    CostRefused,
    DataError,
    ProtocolViolation,
    StorageError,
)
from collegium.logs import event, raised_at
from collegium.models.devices import check_device
from collegium.parties.answer_book import AnswerBook
from collegium.parties.class_sums import ClassSumsHandler, RecordsOfClasses
from collegium.parties.evaluation import CountCoverageHandler, EvaluateHandler, OwnEvaluation
from collegium.parties.gate import AnswerGate
from collegium.parties.handlers import (
    CastVotesHandler,
    DescribeHandler,
    EnsembleCache,
    PoolHandler,
    check_inputs,
)
from collegium.parties.held_sums import HeldSums
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.neighbours.budgets import RecordBudgets
from collegium.parties.neighbours.counting import CountNearestHandler, SampledRecords
from collegium.parties.neighbours.handler import CastNeighboursHandler, NeighbourIndex
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership, SumHandler
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.kinds import OwnTeacher, settings_here
from collegium.parties.teachers.specs import TeacherStore
from collegium.parties.teachers.splits import KEY_BYTES, load_or_create_key
from collegium.parties.terms import DEFAULT_RECORD_RHO
from collegium.protocol.messages import Reply, Request
from collegium.protocol.replies import Failure, ReplyBody
from collegium.protocol.requests import (
    CastNeighbours,
    CastVotes,
    CountCoverage,
    CountNearest,
    Describe,
    Evaluate,
    Fit,
    HoldPool,
    SecureSumStep,
    ShowEvaluation,
    ShowLedger,
    SumClasses,
)

_log = logging.getLogger(__name__)

PolicyCheck = Callable[[Request], None]
"""Raises Refused, before anything is done, for a request that the institution does not agree to."""

SAFE_POLICY = PolicyConfig(
    minimum_noise_votes=20.0, minimum_noise_sums=1.0, queries=1000, epsilon=8.0, record_epsilon=8.0
)
"""The policy of a party that was given none: masked sums alone, with noise and limits as the papers have them."""


def unrestricted(request: Request) -> None:
    """The policy of a simulation, where no institution's records are at stake: every request is answered."""


class Party:
    """Answers the coordinator's requests from the institution's own records.

    Parameters
    ----------
    name : str
        The party's name in the roster.
    examples : Examples
        Its records with their class numbers; at least one.
    task : Task
        What the consortium agreed to learn.
    folder : Path or None
        Where its key and its fitted teachers are kept; None keeps nothing and needs ``split_key``.
    pools : PoolStore
        Where public inputs are kept.
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.
    threads : int
        CPU cores: threads for predicting, and processes of one thread each for fitting several teachers.
    split_key : bytes or None
        32 bytes that decide which record teaches whom; None takes the folder's own secret key.
    policy : callable or None
        Called before every request; raises Refused for one that must not be answered. None takes `SAFE_POLICY`, and
        a book in ``folder`` (or, without a folder, in memory) that keeps its limits.
    account : AnswerBook or None
        Counts and charges every answer before it leaves. None counts nothing where a policy is given, beyond the
        budgets of records, whose book is in ``folder``.
    allowed_imports : collection of str
        Teachers by import path (``package.module:Class``) that the coordinator may name.
    own_teacher : OwnTeacher or None
        What it fits where the consortium leaves the kind of teacher to each party.
    record_rho : float
        Zero-concentrated privacy that one record may spend on neighbours over all runs; its own file keeps count.
        Where the party is one voter, it may spend half of that.
    membership : Membership or None
        Who it is among the others, for secure sums; without it the party answers in the clear mode alone.
    ledger : KnownLedger or None
        What it was shown of the coordinator's ledger; None follows every ledger.
    progress : callable or None
        Called with (teachers ready, teachers in all) while teachers are fitted.

    Raises
    ------
    DataError
        If there are no records or no labels, or they are not what the task needs.
    ConfigurationError, StorageError
        If the device, the threads, the key or the folder cannot be used.
    """

    def __init__(
        self,
        name: str,
        examples: Examples,
        task: Task,
        *,
        folder: Path | None,
        pools: PoolStore,
        device: str = "auto",
        threads: int = 1,
        split_key: bytes | None = None,
        policy: PolicyCheck | None = None,
        account: AnswerBook | None = None,
        allowed_imports: Collection[str] = (),
        own_teacher: OwnTeacher | None = None,
        record_rho: float = DEFAULT_RECORD_RHO,
        membership: Membership | None = None,
        ledger: KnownLedger | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.name = check_party_name(name)
        _check_examples(name, examples, task)
        check_device(device)
        if threads < 1:
            raise ConfigurationError(f"threads must be at least 1, not {threads}")
        key = _split_key(split_key, folder)
        if policy is None:
            policy = Policy(SAFE_POLICY)
            account = account or AnswerBook(folder, name, SAFE_POLICY, None)

        gate = AnswerGate(account, pools, membership.roster if membership is not None else {})
        store = TeacherStore(folder / "teachers" if folder is not None else None)
        report = progress or (lambda ready, wanted: None)

        def fit(settings: TeacherSettings) -> TeacherEnsemble:
            return TeacherEnsemble(
                name,
                examples,
                task,
                settings_here(settings, own_teacher),
                key=key,
                store=store,
                device=device,
                threads=threads,
                allowed_imports=allowed_imports,
                progress=lambda ready: report(ready, settings.per_party),
            )

        self.ensembles = ensembles = EnsembleCache(fit)
        pool_handler = PoolHandler(task, pools)
        # Where nothing is counted (simulations), sums are this process's alone.
        sums = account or AnswerBook(None, name, PolicyConfig(), None)
        self.rounds = rounds = HeldSums(sums)

        book = functools.cache(lambda: account or AnswerBook(folder, name, PolicyConfig(), None))

        @functools.cache
        def neighbourhood(per_party: bool) -> tuple[NeighbourIndex, RecordBudgets]:
            if per_party:  # all records are one voter, whatever they are
                # A record that changes the party's votes costs up to twice what the party costs.
                everybody = itertools.repeat(b"", len(examples))
                budgets = RecordBudgets(book(), "party", key, everybody, "party", record_rho / 2.0)
            else:
                identities, scheme = examples.lasting_identities(task.model_dump_json())
                budgets = RecordBudgets(book(), "records", key, identities, scheme, record_rho)
            return NeighbourIndex(examples, task.inputs, budgets.person, device), budgets

        def voters(per_party: bool) -> tuple[NeighbourIndex, RecordBudgets]:
            if book().rho_allowed("records" if per_party else "party"):
                raise CostRefused("policy: what a record may spend is kept for the other kind of voters")
            return neighbourhood(per_party)

        self._ledger = ledger or KnownLedger(None)
        sampled = functools.cache(lambda: SampledRecords(examples, task.inputs, key, device))
        own = OwnEvaluation(name, examples, task, folder, device)
        near = CastNeighboursHandler(task, pools, voters, rounds, gate)
        self._handlers: dict[type, Callable[[Request], ReplyBody]] = {
            Describe: DescribeHandler(name, ensembles, self._ledger),
            HoldPool: pool_handler,
            PoolChunk: pool_handler,
            ShowLedger: self._ledger,
            Fit: ensembles,
            CastVotes: CastVotesHandler(task, pools, ensembles, rounds, gate),
            CastNeighbours: near,
            CountNearest: CountNearestHandler(task, pools, sampled, rounds, gate),
            SumClasses: ClassSumsHandler(task, pools, RecordsOfClasses(examples, task, device), rounds, gate),
            Evaluate: EvaluateHandler(task, pools, own, rounds, gate),
            CountCoverage: CountCoverageHandler(task, pools, own, rounds, gate),
            ShowEvaluation: own.compare,
        }
        if task.multilabel:
            # Teachers, records within a radius, class sums and evaluations name one class a record.
            for asked in (Fit, CastVotes, CastNeighbours, SumClasses, Evaluate):
                del self._handlers[asked]
        if membership is not None:
            self._handlers[SecureSumStep] = SumHandler(name, membership, sums, rounds, gate, near.leave)
        self._policy = policy
        self._lock = threading.Lock()

    def handle(self, request: Request) -> Reply:
        """The answer to a request; one that comes again is not counted or charged again. Never raises.

        Requests are answered one at a time, whichever threads they come from.
        """
        with self._lock:
            try:
                return Reply(request.request_id, self._answer(request))
            except CollegiumError as error:
                return Reply(request.request_id, Failure.of(error))
            except Exception as error:
                return Reply(request.request_id, _internal(self.name, request, error))

    def _answer(self, request: Request) -> ReplyBody:
        try:
            handler = self._handlers.get(type(request.body))
            if handler is None:
                raise ProtocolViolation(f"this party does not answer {type(request.body).__name__} requests")
            self._ledger.check(request)
            self._policy(request)
            return handler(request)
        except CollegiumError as error:
            asked = type(request.body).__name__
            fields = event("not-answered", party=self.name, request=asked, code=error.code)
            _log.warning("party %s: %s: %s: %s", self.name, asked, error.code, error, extra=fields)
            if isinstance(error, StorageError):
                # Its text names a path on this machine, which others need not know.
                return Failure(error.code, f"party {self.name} cannot use its own storage: its log says why")
            return Failure.of(error)
        except Exception as error:
            return _internal(self.name, request, error)


def _internal(name: str, request: Request, error: Exception) -> Failure:
    """A failure of ours: where it happened, never its text, which may quote a record."""
    where = raised_at(error)
    _log.error("party %s: %s failed: %s at %s", name, type(request.body).__name__, type(error).__name__, where)
    return Failure("internal", "the party met an unexpected error: its own log says where")


def _check_examples(name: str, examples: Examples, task: Task) -> None:
    if len(examples) == 0:
        raise DataError(f"party {name} has no records: check its data file and the part of it that is taken")
    if examples.y is None:
        raise DataError(f"party {name} has records without labels: name the label column (data.label in party.toml)")
    try:
        check_inputs(task, examples.x)
    except DataError:
        # The original text names a shape, whose first size is the number of records.
        wanted = f"{task.inputs.dtype} with {list(task.inputs.shape)} values a record, all of them finite"
        raise DataError(f"the records of party {name} do not fit the task: it needs {wanted}") from None
    if examples.y.shape != (len(examples),) or examples.y.dtype.kind not in "iu":
        raise DataError(f"party {name} needs one whole class number per record")
    if examples.y.min() < 0 or examples.y.max() >= task.label_numbers:
        raise DataError(f"party {name} has a label outside the task's {len(task.classes)} classes")


def _split_key(given: bytes | None, folder: Path | None) -> bytes:
    if given is not None:
        if len(given) != KEY_BYTES:
            raise ConfigurationError(f"a split key has {KEY_BYTES} bytes, not {len(given)}")
        return given
    if folder is None:
        raise ConfigurationError("a party without a folder needs a split key")
    return load_or_create_key(folder)
