"""An institution as the protocol sees it: a request in, a reply out, no transport known.

The same object answers over a gRPC session and inside a simulation. A question of whatever kind takes the same steps:
validate, admit, compute, bound, charge, leave. What depends on the kind is in `parties.kinds`.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from collegium import limits
from collegium.data import Examples, PoolStore
from collegium.data.task import Task, TeacherSettings
from collegium.data.values import PoolChunk, PoolState, check_party_name
from collegium.errors import CollegiumError, ConfigurationError, DataError, ProtocolViolation, StorageError
from collegium.latest import Latest
from collegium.logs import event, raised_at
from collegium.models.devices import check_device
from collegium.parties.answer_book import AnswerBook
from collegium.parties.answers import Answer
from collegium.parties.kind import Asked, Institution, PartyKind, check_inputs, party_kinds
from collegium.parties.known_ledger import KnownLedger
from collegium.parties.policy import DEFAULT_RECORD_RHO, Policy, PolicyConfig, described, require_suits
from collegium.parties.summing import Membership, SecureSums
from collegium.parties.teachers.ensemble import TeacherEnsemble
from collegium.parties.teachers.kinds import OwnTeacher, settings_here
from collegium.parties.teachers.specs import TeacherFactory, TeacherStore, specs_of
from collegium.parties.teachers.splits import KEY_BYTES, load_or_create_key
from collegium.protocol.messages import Reply, Request
from collegium.protocol.question import Question
from collegium.protocol.replies import Counts, Description, Failure, Fitted, Prepared, ReplyBody
from collegium.protocol.requests import Ask, Describe, Fit, HoldPool, SecureSumStep, ShowLedger, ShowReleased
from collegium.version import SOFTWARE
from collegium_accounting.units import IntArray

_log = logging.getLogger(__name__)

_MAX_ENSEMBLES = 4

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
    disk_bytes : int
        What features of records may take in the folder for temporary files, between the rounds of class sums.
    persons : bool
        Whether the institution said that what counts as one record (a row, or the rows of a group) is a person.
    progress : callable or None
        Called with (teachers ready, teachers in all) while teachers are fitted.

    Raises
    ------
    DataError
        If there are no records or no labels, or they are not what the task needs.
    ConfigurationError, StorageError
        If the device, the threads, the key or the folder cannot be used.

    Examples
    --------
    >>> import collegium as cg
    >>> from collegium.data import PoolStore
    >>> from collegium.data.examples import examples_of
    >>> task = cg.Task.from_array([[0.0], [1.0]], classes=["low", "high"])
    >>> records = examples_of([[0.1], [0.9]], [0, 1], task)
    >>> cg.Party("ash", records, task, folder=None, pools=PoolStore(None), split_key=bytes(32)).name
    'ash'
    """

    def __init__(  # noqa: PLR0913 -- each is a decision of the institution, and most have a default
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
        disk_bytes: int = 0,
        persons: bool = False,
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

        self._task, self._pools, self._persons = task, pools, persons
        self._ledger = ledger or KnownLedger(None)
        store = TeacherStore(folder / "teachers" if folder is not None else None)
        report = progress or (lambda ready, wanted: None)

        def fit(settings: TeacherSettings) -> TeacherEnsemble:
            factory = TeacherFactory(settings_here(settings, own_teacher), task, tuple(allowed_imports))
            specs = specs_of(name, examples, factory, key=key, store=store)
            return TeacherEnsemble(
                specs, device=device, threads=threads, progress=lambda ready: report(ready, len(specs))
            )

        self._fit_anew, self._ensembles = fit, Latest[str, TeacherEnsemble](_MAX_ENSEMBLES)
        # Where nothing is counted (simulations), sums are this process's alone.
        self._counts, self._book = account is not None, account or AnswerBook(None, name, PolicyConfig(), None)
        self._roster: Mapping[str, bytes] = {} if membership is None else membership.roster
        self.sums = SecureSums(name, membership, self._book, self._asked, self._leave)
        book = cache(lambda: account or AnswerBook(folder, name, PolicyConfig(), None))
        kept = folder, device, self.ensembles, book, record_rho, disk_bytes
        self._own = Institution(name, examples, task, pools, key, *kept)
        self._kinds: dict[str, PartyKind[Any]] = {}
        self._handlers: dict[type, Callable[[Request], ReplyBody]] = {
            Describe: self._describe,
            HoldPool: self._take_pool,
            PoolChunk: self._take_pool,
            ShowLedger: self._follow,
            Ask: self._put,
            ShowReleased: self._show,
        }
        if not task.multilabel:  # teachers name one class a record
            self._handlers[Fit] = self._fit
        if membership is not None:
            self._handlers[SecureSumStep] = self.sums
        self._policy = policy
        self._lock = threading.Lock()

    def ensembles(self, settings: TeacherSettings) -> TeacherEnsemble:
        """The party's teachers under these settings, fitted now if they are not in memory."""
        return self._ensembles.of(settings.canonical_json(), lambda: self._fit_anew(settings))

    def handle(self, request: Request) -> Reply:
        """The answer to a request; one that comes again is not counted or charged again. Never raises.

        Requests are answered one at a time, whichever threads they come from.
        """
        with self._lock:
            return Reply(request.request_id, self._answer(request))

    def _follow(self, request: Request) -> ReplyBody:
        reply = self._ledger(request)
        assert isinstance(request.body, ShowLedger)
        self.sums.settle(request.body.settled)
        return reply

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

    # Questions: the same steps for every kind.

    def _put(self, request: Request) -> Counts | Prepared:
        """Answer a question: with counts in the clear mode, else with counts kept for the secure sum of its round."""
        ask, run_id = request.body, request.run_id
        assert isinstance(ask, Ask)
        question, kind = ask.question, self._kind(ask.question.kind)
        self._admit(question, kind)
        if (asked := self._asked(run_id, question, self._roster)) is not None:
            self._book.check(asked)
        if question.terms.sum_mode == "clear":
            counts = self._bounded(kind, ask, run_id)
            if asked is not None:
                counts, left_before = self._book.kept(asked, counts)
                self._book.leave(asked, counts, left_before)
            return Counts(counts)
        return self.sums.prepare(request, lambda: self._bounded(kind, ask, run_id))

    def _asked(self, run_id: str, question: Question, roster: Mapping[str, bytes]) -> Answer | None:
        """What the book is asked for an answer that is summed over ``roster``; None where nothing is counted."""
        return self._book.asked(run_id, question, roster, self._pools) if self._counts else None

    def _admit(self, question: Question, kind: PartyKind[Any]) -> None:
        """Raise unless the question suits the party, by what is public: no record is looked at."""
        mechanism = described(question)
        if question.needs_labels:
            require_suits(mechanism, self._task)
        (rows, entries), queries = question.shape, question.queries
        if rows * entries > limits.MAX_COUNTS_PER_ANSWER:
            raise ProtocolViolation(f"{rows} rows of {entries} counts each are too many at once: ask in parts")
        inputs = 0 if question.pool is None else len(self._pools.open(question.pool))
        if queries is not None and max(queries.indices) >= inputs:
            raise ProtocolViolation(f"a query lies outside the pool: its {inputs} inputs are numbered from 0")
        kind.validate(question)

    def _bounded(self, kind: PartyKind[Any], ask: Ask, run_id: str) -> IntArray:
        """What the records say, within the question's bounds.

        Cutting off moves two neighbouring answers no further apart, and the range of a sum is public.
        """
        question = ask.question
        counts = kind.compute(question, Asked(run_id, ask.round_id))
        if counts.shape != question.shape:
            raise TypeError(f"{question.kind} answers with another shape than it says")
        records, most = len(self._own.examples), question.terms.most_records
        if question.whole_vector and records > most:
            fields = event("records-over-cap", party=self.name)
            _log.warning(
                "party %s has %d records, over the consortium's cap of %d (budget.records_per_party): what "
                "passes it is cut off; let data in party.toml take a part of them",
                self.name,
                records,
                most,
                extra=fields,
            )
        return np.clip(counts.astype(np.int64, copy=False), question.low, question.high)

    def _leave(self, run_id: str, ask: Ask) -> None:
        """Note that a masked answer is about to leave."""
        self._kind(ask.question.kind).leave(ask.question, Asked(run_id, ask.round_id))

    def _show(self, request: Request) -> Prepared:
        """Take in what was released; the reply tells nothing of what the own records say to it."""
        assert isinstance(request.body, ShowReleased)
        self._kind(request.body.kind).shown(request.body)
        return Prepared(request.body.round_id)

    def _kind(self, name: str) -> PartyKind[Any]:
        if name not in self._kinds:
            known = party_kinds()
            if name not in known:
                raise ProtocolViolation(f"this party answers no questions of the kind {name[:64]!r}")
            self._kinds[name] = known[name](self._own)
        return self._kinds[name]

    # What is no question.

    def _describe(self, request: Request) -> Description:
        """Who the party is and which teachers it has ready; nothing of its records."""
        asked_last, head = next(reversed(self._ensembles), None), self._ledger.head()
        latest = None if asked_last is None else TeacherSettings.model_validate_json(asked_last)
        return Description(
            party=self.name,
            software=SOFTWARE,
            teachers=latest.per_party if latest else 0,
            teacher_kind=latest.kind[:64] if latest else "",
            ledger_head="" if head is None else str(head),
            persons=self._persons,
        )

    def _take_pool(self, request: Request) -> PoolState:
        """Take the pool in, once, if it is made of inputs of the task."""
        assert isinstance(request.body, HoldPool | PoolChunk)
        check_inputs(self._task, request.body.pool)
        if isinstance(request.body, PoolChunk):
            return self._pools.accept(request.body)
        return self._pools.state(request.body.pool)

    def _fit(self, request: Request) -> Fitted:
        """Have the teachers ready."""
        assert isinstance(request.body, Fit)
        return Fitted(teachers=len(self.ensembles(request.body.teacher)))


def _internal(name: str, request: Request, error: Exception) -> Failure:
    """A failure of ours: where it happened, never its text, which may quote a record."""
    where = raised_at(error)
    _log.error("party %s: %s failed: %s at %s", name, type(request.body).__name__, type(error).__name__, where)
    return Failure("internal", "the party met an unexpected error: its own log says where")


def _check_examples(name: str, examples: Examples, task: Task) -> None:
    if len(examples) == 0:
        raise DataError(f"party {name} has no records: check its file or frame, and the part of it that is taken")
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
