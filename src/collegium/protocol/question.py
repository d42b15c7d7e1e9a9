"""A question: what all parties are asked at once, and what both sides must know about it.

A kind of question is a frozen dataclass derived from `Question` and registered under a name. It says on which terms it
is asked, which entries an answer has, within which bounds they lie and what an answer costs. Nothing else in the
protocol, at the coordinator or in the template of a party knows one kind from another. A kind from another package
names its module under the entry-point group ``collegium.questions``.
"""

import dataclasses
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from collegium import limits
from collegium.data.values import IDENTIFIER, SHA256, require
from collegium.errors import CollegiumError, ConfigurationError, ProtocolViolation
from collegium.extras import INSTALLED_BY
from collegium_accounting.extras import Registry
from collegium_accounting.mechanisms.base import Mechanism, Stage
from collegium_accounting.mechanisms.parameters import fields_of
from collegium_accounting.mechanisms.registry import from_numbers, numbers_of
from collegium_accounting.mechanisms.whole_vector import VectorMechanism
from collegium_accounting.noise.distributed import AddedBy, NoiseShare
from collegium_accounting.units import Adjacency, IntArray, Unit

ENTRY_POINT_GROUP = "collegium.questions"

WHOLE_MECHANISM = ""
"""In terms: one sum serves every stage of the mechanism."""

QuestionClass = TypeVar("QuestionClass", bound="type[Question]")


@dataclass(frozen=True)
class QuestionTerms:
    """What will be done with the answers. The party's policy decides on the basis of these terms.

    Parameters
    ----------
    mechanism : its registered name.
    parameters : all of its parameters, by name.
    adjacency : under which the coordinator accounts for it.
    sum_mode : how the answers are added up.
    stage : the stage of the mechanism that the sum serves; empty where one sum serves all of them.
    honest_survivors : in the mode ``masked+noised``, the least number of honest parties whose noise is in any sum that
        is opened; 0 in the others.
    most_records : the cap on the records of one party in a vector about all records; see `RecordsQuestion.high`.
    """

    mechanism: str
    parameters: Mapping[str, float]
    adjacency: str = "replace"
    sum_mode: str = "clear"
    stage: str = WHOLE_MECHANISM
    honest_survivors: int = 0
    most_records: int = limits.MAX_RECORDS_PER_PARTY

    def __post_init__(self) -> None:
        require(1 <= self.most_records <= limits.MAX_RECORDS_PER_PARTY, "a party's records have a cap")
        require(IDENTIFIER.fullmatch(self.mechanism) is not None, "a mechanism has a name")
        require(len(self.parameters) <= 32, "a mechanism has at most 32 parameters")
        require(all(math.isfinite(value) for value in self.parameters.values()), "parameters are finite numbers")
        # A whole number would have another encoding, and so another key, than the same number once it was read.
        object.__setattr__(self, "parameters", {name: float(value) for name, value in self.parameters.items()})
        require(self.adjacency in ("replace", "add-remove"), "adjacency is replace or add-remove")
        require(self.sum_mode in ("clear", "masked", "masked+noised"), f"unknown sum mode {self.sum_mode[:32]!r}")
        require(len(self.stage) <= 64, "the name of a stage is short")
        least = 1 if self.noised else 0
        most = limits.MAX_PARTIES if self.noised else 0
        require(least <= self.honest_survivors <= most, "honest survivors are stated for masked+noised, and only there")

    @classmethod
    def of(cls, mechanism: Mechanism, sum_mode: str, stage: str = WHOLE_MECHANISM, honest: int = 0) -> "QuestionTerms":
        """The terms under which parties are asked to answer for ``mechanism``; ``honest`` survivors as above."""
        return cls(mechanism.name, numbers_of(mechanism), mechanism.adjacencies[0].value, sum_mode, stage, honest)

    def described(self) -> Mechanism:
        """The mechanism that the terms describe, from which check, charge and noise of an answer follow.

        Raises ConfigurationError for an unknown mechanism and for a wrong, missing or surplus parameter.
        """
        return from_numbers(self.mechanism, self.parameters)

    @property
    def added(self) -> AddedBy:
        """Who adds the noise."""
        return AddedBy(self.honest_survivors)

    @property
    def noised(self) -> bool:
        """Whether every answer carries fresh noise of its party, so that none is ever repeated."""
        return self.sum_mode == "masked+noised"


@dataclass(frozen=True)
class PoolRange:
    """Inputs of a pool, named by their positions."""

    pool_sha256: str
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        require(SHA256.fullmatch(self.pool_sha256) is not None, "a pool is named by 64 hexadecimal digits")
        require(0 < len(self.indices) <= limits.MAX_QUERIES_PER_ROUND, "a round has 1 to 100,000 queries")
        require(min(self.indices) >= 0, "positions in a pool are numbered from 0")


@dataclass(frozen=True)
class Cost:
    """What one row of an answer costs those who gave it; it follows from the question alone.

    Parameters
    ----------
    per_party : whether the party's own ledger is charged, in place of that of any one record.
    unit : how far the voters of that ledger can move the row.
    record : how far one record can move it.
    budgets_pay : each record near an input pays from its own budget instead; nothing is charged to a ledger.
    """

    per_party: bool
    unit: Unit
    record: Unit
    budgets_pay: bool = False


ONE_RECORD = Unit(1, Adjacency.ADD_REMOVE)
"""A record that is there or not."""
TURNED = Unit(1, Adjacency.REPLACE)
"""A record that turns one vote, or the one vector of its party, into another."""


# More than 15 methods: what a kind may say of its questions, most of it in a line.
@dataclass(frozen=True)
class Question(ABC):
    """What all parties are asked at once; derive a frozen dataclass and `register` it.

    Parameters
    ----------
    terms : what is done with the sum of the answers.
    ledger_id : the ledger and the study under which the sum is released and, for sums over all records whose noise the
        coordinator adds, the entry that pays: under another one, the same question has another answer.
    """

    kind: ClassVar[str]
    """The registered name."""
    serves: ClassVar[type]
    """The mechanisms that the answers' sum is for; see `fits`."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Parameters of the mechanism by which the question is answered."""
    per_stage: ClassVar[bool] = False
    """Whether every stage of the mechanism needs a sum of its own, such as of a new sample of the records."""
    fixed_voters: ClassVar[bool] = False
    """Whether those who vote stay the same, so that a record that comes or goes turns one vote into another."""
    needs_labels: ClassVar[bool] = True
    """Whether the answer depends on the classes of records; else it suits a task of any kind of labels."""
    whole_vector: ClassVar[bool] = False
    """Whether the sum is one vector about all records, rather than counts about inputs of a pool."""
    several_sums: ClassVar[bool] = False
    """Whether parties answer several sums about the same records, which only the complete graph keeps equal."""
    per_row: ClassVar[tuple[str, ...]] = ("inputs",)
    """Fields with one value for each row of the answer; `detail` tells them row by row."""

    terms: QuestionTerms
    ledger_id: str

    def __post_init__(self) -> None:
        require(IDENTIFIER.fullmatch(self.ledger_id) is not None, "a ledger has an id")

    @classmethod
    def fits(cls, mechanism: type[Mechanism]) -> bool:
        """Whether the answers' sum is what ``mechanism`` is for."""
        return issubclass(mechanism, cls.serves) and fields_of(mechanism).keys() >= set(cls.reads)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and entries per row of one party's answer; public."""

    @property
    @abstractmethod
    def high(self) -> int:
        """The largest entry of one party's answer; public. Larger ones are cut off there."""

    @property
    def to_come(self) -> int:
        """How many more of its kind the terms name after this one; a party bears the price of all, or refuses."""
        return 0

    @property
    def low(self) -> int:
        """The smallest entry of one party's answer; public. Smaller ones are cut off there."""
        return 0

    @abstractmethod
    def cost(self) -> Cost:
        """What one row of an answer costs."""

    @property
    def queries(self) -> PoolRange | None:
        """The inputs that the rows are about, one each; None for a vector about all records."""
        inputs: PoolRange | None = getattr(self, "inputs", None)
        return inputs

    @property
    def pool(self) -> str | None:
        """The pool that the question names, by its SHA-256; None where it needs none."""
        named: str | None = getattr(self, "pool_sha256", None)
        return named if self.queries is None else self.queries.pool_sha256

    def detail(self, row: int) -> bytes:
        """What this row is asked besides its input and what all rows are asked."""
        return b""

    @property
    def step(self) -> str:
        """Names this sum among those that are asked about one input on purpose: other steps are no repetitions."""
        return self.terms.stage

    def check(self, counts: IntArray, teachers: int) -> None:
        """Raise ProtocolViolation unless ``counts``, of `shape`, can be an exact answer, or an exact sum of answers.

        Parameters
        ----------
        counts : one party's counts, or the total of several.
        teachers : that stand behind them; 0 where records answered.
        """
        require(int(counts.min()) >= min(self.low, 0), "a count is too small")

    def stages(self) -> tuple[Stage, ...]:
        """The stages of the mechanism that this sum serves, as the terms say who adds their noise.

        Raises ConfigurationError where the terms describe no mechanism, or name no stage that is asked for by itself.
        """
        terms = self.terms
        mechanism, apart = terms.described(), self.per_stage or terms.noised
        if apart == (terms.stage == WHOLE_MECHANISM):
            wanted = "one stage at a time" if apart else "once for all of its stages"
            raise ConfigurationError(f"{mechanism.name} is asked for {wanted}; got the stage {terms.stage!r}")
        stages = mechanism.summed(terms.added)
        asked = tuple(stage for stage in stages if terms.stage in (WHOLE_MECHANISM, stage.name))
        if not asked:
            raise ConfigurationError(f"{mechanism.name} has no stage {terms.stage!r}")
        return asked

    @property
    def share(self) -> NoiseShare | None:
        """The noise that each party adds to the sum; None where the coordinator adds the noise."""
        return self.stages()[0].share

    @property
    def name(self) -> str:
        """The same name for the same question under whatever ledger: a round that is taken up again is recognised."""
        return "round-" + hashlib.sha256(encode(replace(self, ledger_id="any"))).hexdigest()[:32]

    @property
    def asked(self) -> bytes:
        """What is asked of every row, whatever the terms and the release: 32 bytes over all other fields."""
        apart = {"terms", "ledger_id", *self.per_row}
        names = sorted(field.name for field in dataclasses.fields(self) if field.name not in apart)
        return hashlib.sha256(_encoder.encode([self.kind, [(name, getattr(self, name)) for name in names]])).digest()


@dataclass(frozen=True)
class RecordsQuestion(Question):
    """Asks for one vector of whole numbers: what all of the party's records add up to.

    Parameters
    ----------
    per_party : whether the answer protects the party as a whole, and costs it what the mechanism charges, in place of
        each of its records.
    """

    serves: ClassVar[type] = VectorMechanism
    whole_vector: ClassVar[bool] = True
    several_sums: ClassVar[bool] = True

    per_party: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.length <= limits.MAX_SUM_LENGTH, f"a sum has 1 to {limits.MAX_SUM_LENGTH} entries")

    @property
    @abstractmethod
    def length(self) -> int:
        """The entries of the vector."""

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.length

    @property
    @abstractmethod
    def of_one(self) -> int:
        """The largest that a single record, or under ``per_party`` the party, makes any entry."""

    @property
    def high(self) -> int:
        """What as many records as the terms allow a party make an entry at most."""
        return min(self.of_one * (1 if self.per_party else self.terms.most_records), limits.MAX_SUM_ENTRY)

    @property
    def low(self) -> int:
        return -self.high

    def cost(self) -> Cost:
        # A record may turn the one vector of a party as far as another party's would: shares change with the number of
        # records.
        return Cost(self.per_party, ONE_RECORD, TURNED if self.per_party else ONE_RECORD)


@dataclass(frozen=True)
class Keys:
    """What one question is, in the relations in which both sides know it again; 32 bytes each.

    Parameters
    ----------
    subjects : of each row, its input's content and the step: whatever the terms, a second answer repeats the first.
    rows : of each row, everything that its answer depends on: the same row has the same answer.
    samples : what these and other sums tell about the same records: masked sums that share one are opened with the
        same parties, as the difference would show a single party.
    """

    subjects: tuple[bytes, ...]
    rows: tuple[bytes, ...]
    samples: tuple[bytes, ...]


def keys(question: Question, contents: Sequence[bytes], run_id: str, roster: bytes = b"") -> Keys:
    """The keys of a question that is asked within a run.

    Parameters
    ----------
    contents : digest of the input of each row, by what it is: a pool that was reversed, or changed in another place,
        holds the same inputs. Empty for a vector about all records.
    roster : digest of the parties with which exact answers are summed.
    """
    terms, step = question.terms, question.step.encode()
    about = list(contents) or [question.asked]
    subjects = tuple(hashlib.sha256(b"%s:%s" % (row, step)).digest() for row in about)
    samples = [b"sample near %s" % row for row in about] if question.several_sums else []
    if terms.noised:
        # Every answer has its own noise and is paid: a party that joins or leaves stands in the way of none.
        roster, terms = b"", replace(terms, honest_survivors=1)
    common = _encoder.encode([run_id, question.ledger_id, terms]) + question.asked + roster
    rows = [hashlib.sha256(common + subject + question.detail(row)).digest() for row, subject in enumerate(subjects)]
    return Keys(subjects, tuple(rows), () if terms.sum_mode != "masked" else tuple(samples))


# The wire.


def _encoded(value: Any) -> object:
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return {"dtype": value.dtype.name, "shape": value.shape, "data": little.tobytes()}
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    plain = " (make it a plain int, float or bool)" if isinstance(value, np.generic) else ""
    raise ConfigurationError(f"a question holds no {type(value).__name__}{plain}: its kind's package must mend that")


def _decoded(kind: Any, value: Any) -> object:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        require(isinstance(value, str) and len(value) <= limits.MAX_JSON_BYTES, "settings are a short JSON text")
        return kind.model_validate_json(value)
    array: _Array = msgspec.convert(value, _Array)
    return array.read()


@dataclass(frozen=True)
class _Array:
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def read(self) -> NDArray[Any]:
        require(self.dtype in ("float32", "int32", "int64"), "an array holds float32, int32 or int64")
        require(len(self.shape) <= limits.MAX_DIMENSIONS and all(size >= 0 for size in self.shape), "an array's sizes")
        dtype = np.dtype(self.dtype)
        size = math.prod(self.shape) * dtype.itemsize
        require(len(self.data) == size, "an array of another size than it announces")
        return np.frombuffer(self.data, dtype=dtype.newbyteorder("<")).astype(dtype).reshape(self.shape)


_encoder = msgspec.msgpack.Encoder(enc_hook=_encoded, order="sorted")


def encode(question: Question) -> bytes:
    """The one encoding of a question: MessagePack, fields by name in sorted order."""
    return _encoder.encode(_by_field(question))


def _by_field(value: Any) -> Any:
    """Every field of a dataclass by name; the encoder alone leaves out those that a message left to their defaults."""
    if not dataclasses.is_dataclass(value):
        return value
    return {field.name: _by_field(getattr(value, field.name)) for field in dataclasses.fields(value)}


def decode(kind: str, data: bytes) -> Question:
    """The question that ``data`` holds; ProtocolViolation where it is none, or is not written as `encode` writes it."""
    require(len(data) <= limits.MAX_MESSAGE_BYTES, f"a question has at most {limits.MAX_MESSAGE_BYTES} bytes")
    asked = question_named(kind)
    try:
        question: Question = _decoder(asked).decode(data)
    except CollegiumError:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolViolation(f"bytes that are no question of the kind {kind}: {str(error)[:200]}") from error
    require(encode(question) == data, f"a question of the kind {kind} in another form than the only one")
    return question


# Until msgspec has read all fields of a class, another thread that meets the class takes the process down.
_reading_fields = Lock()
msgspec.convert({"dtype": "int32", "shape": (), "data": b""}, _Array)


def _decoder(kind: type[Question]) -> "msgspec.msgpack.Decoder[Question]":
    with _reading_fields:
        return _decoder_of(kind)


@cache
def _decoder_of(kind: type[Question]) -> "msgspec.msgpack.Decoder[Question]":
    return msgspec.msgpack.Decoder(kind, dec_hook=_decoded)


# Kinds by name.

_by_name: Registry[type[Question]] = Registry(
    ENTRY_POINT_GROUP, "the question", "two kinds of questions are called", "collegium.protocol.kinds", INSTALLED_BY
)


def register(kind: QuestionClass) -> QuestionClass:
    """Class decorator: make a kind of question known by its ``kind``.

    Raises ConfigurationError when the class is no frozen dataclass derived from `Question`, or another one has the
    name already.
    """
    parameters = vars(kind).get("__dataclass_params__")  # its own: a base class has them too
    if parameters is None or not parameters.frozen or not IDENTIFIER.fullmatch(getattr(kind, "kind", "")):
        raise ConfigurationError(f"{kind.__qualname__} is no kind of question: a frozen dataclass with a name (kind)")
    _by_name.add(kind.kind, kind)
    return kind


def question_named(name: str) -> type[Question]:
    """The kind registered as ``name``; ProtocolViolation where this installation has none."""
    require(
        name in _by_name.loaded(),
        f"a question of the unknown kind {name[:64]!r}: update Collegium, or install its package",
    )
    return _by_name[name]


def question_for(mechanism: type[Mechanism]) -> type[Question] | None:
    """The kind of question whose sums ``mechanism`` is for; None where this installation has none.

    Of several, it is the one that `serves` the narrowest class of mechanisms, and of these one of this package: a
    package that brings a kind for mechanisms of its own changes no others.
    """
    fitting = [kind for _, kind in sorted(_by_name.loaded().items()) if kind.fits(mechanism)]
    return min(fitting, key=lambda kind: (-len(kind.serves.__mro__), not _is_own(kind)), default=None)


def about_all_records(mechanism: type[Mechanism]) -> bool:
    """Whether the mechanism is for vectors about all records, which are charged as a whole."""
    question = question_for(mechanism)
    return question is not None and question.whole_vector


def own_kinds() -> tuple[str, ...]:
    """The kinds of this package, sorted: what a policy agrees to unless it names others."""
    return tuple(sorted(name for name, kind in _by_name.loaded().items() if _is_own(kind)))


def _is_own(kind: type[Question]) -> bool:
    return kind.__module__.partition(".")[0] == "collegium"
