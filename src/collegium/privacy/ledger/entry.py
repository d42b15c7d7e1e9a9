"""What a ledger's entry says, and the canonical line of JSON that it is written as.

Reading is strict: a line that means anything else than one of the four contents is refused.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collegium.errors import CollegiumError, LedgerCorrupt
from collegium.privacy.ledger.steps import Parameter, Step
from collegium_accounting.game.laws import Law, RenyiLaw, VectorLaw
from collegium_accounting.game.winner import RoundLaw
from collegium_accounting.renyi import WIDE_ORDERS
from collegium_accounting.units import Adjacency

FORMAT = 5
ABSTENTION = -1
"""What a ledger holds for a query that was charged and got no label (⊥)."""

ProtectedUnit = tuple[str, str]
"""A privacy unit (``record``, ``party``) and the adjacency (``replace``, ``add-remove``) it is protected under."""


@dataclass(frozen=True)
class Settings:
    """Entry 0: what every later entry is measured by; none of it may change.

    Parameters
    ----------
    name : whose ledger this is (a consortium's run, a party).
    delta : δ of every ε.
    public_key : 32 bytes, Ed25519; empty for a ledger that is not signed.
    """

    name: str
    delta: float
    public_key: bytes


@dataclass(frozen=True)
class Block:
    """Rounds of one kind that may be charged.

    Parameters
    ----------
    laws : what one round releases, for each privacy unit that its cost is stated for. Empty where a round costs
        nothing, because another block pays for the run as a whole.
    rounds : the most rounds that may be charged; None where the budget alone limits them. Blocks of the same terms
        that state a number are fixed together: answers may decide how much is used of each.
    fixed : that number counts in full and is never raised once something was charged, so that another block of the
        same terms may cost what was used of it.
    step : what a round does, from which anybody can compute the laws again. None where they are laws of nothing that
        is known: reports, parties and auditors refuse them then.
    """

    laws: Mapping[str, Law]
    rounds: int | None = None
    fixed: bool = False
    step: Step | None = None


@dataclass(frozen=True)
class Terms:
    """What charges are made under until other terms follow; charges made before keep theirs.

    Parameters
    ----------
    unit : ``record`` or ``party``: the privacy unit in which the budget is counted.
    votes_per_unit : how many votes each unit may change.
    adjacency : ``replace`` or ``add-remove``: what neighbouring data sets are.
    noise : ``system`` (fresh, from the operating system), ``parties`` (the same, drawn by the parties) or ``seeded``
        (follows from a seed: not private).
    epsilon_budget : no charge may take ε past it; None for no limit.
    honest_survivors : where parties draw the noise, the least number of honest ones whose noise is in any sum that is
        opened; 0 where they draw none.
    fixed_voters : whether those who vote stay the same, so that a record that comes or goes turns one vote: what is
        stated for ``replace`` then holds for ``add-remove`` as well.
    mechanism : name and parameters of what runs; empty where every charge may be of another mechanism (a party's own
        ledger).
    source : the paper and theorem behind the charges of that mechanism; empty without one.
    blocks : what may be charged, by the purpose that a charge names.
    """

    unit: str = "record"
    votes_per_unit: Mapping[str, int] = field(default_factory=lambda: {"record": 1})
    adjacency: str = "replace"
    noise: str = "system"
    honest_survivors: int = 0
    fixed_voters: bool = False
    epsilon_budget: float | None = None
    mechanism: Mapping[str, Parameter] = field(default_factory=dict)
    source: str = ""
    blocks: Mapping[str, Block] = field(default_factory=dict)

    @property
    def seeded(self) -> bool:
        """Whether the noise follows from a seed."""
        return self.noise == "seeded"


@dataclass(frozen=True)
class Charge:
    """Rounds of the block ``purpose`` of the terms in force, paid before any answer is given.

    ``queries_sha256`` names the queries where the caller listed them, else it is empty.
    """

    purpose: str
    queries: int
    queries_sha256: str


@dataclass(frozen=True)
class Release:
    """Labels given out under one earlier charge: query key to class, or ``ABSTENTION``.

    Of what is no label, counts or class sums, one key says that it was released; see `released_key`. One without labels
    says that a sum which parties made noisy is opened; its labels follow under the same charge.

    Parameters
    ----------
    sum : names the secure sum that is opened, in hexadecimal, where parties made it noisy: no other sum is opened under
        this charge. Empty where the coordinator adds the noise.
    """

    charge: int
    labels: Mapping[str, int]
    sum: str = ""


_RELEASED = ":released"


def released_key(charge: int) -> str:
    """The key which says that what entry ``charge`` paid for was released; no query has such a key."""
    return f"entry {charge}{_RELEASED}"


def names_an_input(key: str) -> bool:
    """Whether a released key is a query's, with a label, and not one of `released_key`."""
    return not key.endswith(_RELEASED)


Content = Settings | Terms | Charge | Release


def queries_digest(queries: Sequence[str]) -> str:
    """SHA-256, in hex, of the query keys in the order given."""
    return hashlib.sha256(_canonical(list(queries))).hexdigest()


def encode(content: Content, time_utc: str) -> bytes:
    """The canonical line of an entry. Floats that are counted with are written in hexadecimal, exactly."""
    body = {"kind": type(content).__name__.lower(), "time_utc": time_utc, **vars(content)}
    match content:
        case Settings():
            body |= {"format": FORMAT, "delta": content.delta.hex(), "public_key": content.public_key.hex()}
        case Terms():
            budget = None if content.epsilon_budget is None else float(content.epsilon_budget).hex()
            body |= {"epsilon_budget": budget, "blocks": _written(content.blocks)}
    return _canonical(body)


def _written(blocks: Mapping[str, Block]) -> dict[str, object]:
    return {
        purpose: {
            "laws": {unit: law_as_json(law) for unit, law in block.laws.items()},
            "rounds": block.rounds,
            "fixed": block.fixed,
            "step": None if block.step is None else asdict(block.step),
        }
        for purpose, block in blocks.items()
    }


def decode(body: bytes, settings: Settings | None) -> tuple[Content, str]:
    """The content and time of an entry; ``settings`` is None for the first one alone."""
    read = json.loads(body)
    time_utc = str(read["time_utc"])
    kind = read["kind"]
    if (kind == "settings") != (settings is None):
        raise LedgerCorrupt("the settings must be the first entry and only that")
    if settings is None:
        return _decode_settings(read), time_utc
    if kind == "charge":
        queries = _whole(read["queries"], at_least=1)
        return Charge(str(read["purpose"]), queries, str(read["queries_sha256"])), time_utc
    if kind == "terms":
        terms = Terms(
            unit=str(read["unit"]),
            votes_per_unit={unit: _whole(votes, at_least=1) for unit, votes in read["votes_per_unit"].items()},
            adjacency=str(read["adjacency"]),
            noise=str(read["noise"]),
            honest_survivors=_whole(read["honest_survivors"], at_least=0),
            fixed_voters=read["fixed_voters"] is True,
            epsilon_budget=None if read["epsilon_budget"] is None else float.fromhex(read["epsilon_budget"]),
            mechanism=dict(read["mechanism"]),
            source=str(read["source"]),
            blocks={str(purpose): _block(block) for purpose, block in read["blocks"].items()},
        )
        return terms, time_utc
    if kind == "release":
        labels = {query: _whole(label, at_least=ABSTENTION) for query, label in read["labels"].items()}
        return Release(_whole(read["charge"], at_least=0), labels, str(read["sum"])), time_utc
    raise LedgerCorrupt(f"its kind {kind!r} is unknown; it was written by a newer version of collegium")


def read_terms(line: bytes) -> Terms:
    """The terms that an entry's line states; LedgerCorrupt where it states none."""
    try:
        content, _ = decode(line, Settings("", 0.5, b""))
    except (CollegiumError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        content = None
    if not isinstance(content, Terms):
        raise LedgerCorrupt("an entry states no terms that can be read")
    return content


def _decode_settings(read: dict[str, Any]) -> Settings:
    if read["format"] != FORMAT:
        raise LedgerCorrupt(f"the ledger has format {read['format']}, this version of collegium reads {FORMAT}")
    return Settings(
        name=str(read["name"]),
        delta=float.fromhex(read["delta"]),
        public_key=bytes.fromhex(read["public_key"]),
    )


def _block(read: Mapping[str, Any]) -> Block:
    rounds = None if read["rounds"] is None else _whole(read["rounds"], at_least=0)
    laws = {unit: law_from_json(law) for unit, law in read["laws"].items()}
    return Block(laws, rounds, read["fixed"] is True, None if read["step"] is None else Step.read(read["step"]))


def law_as_json(law: Law) -> dict[str, Any]:
    """``law`` for an entry of the ledger; numbers in hexadecimal, exactly."""
    if isinstance(law, RenyiLaw):
        values, orders = ([number.hex() for number in numbers] for numbers in (law.values, WIDE_ORDERS))
        return {"kind": "renyi", "orders": orders, "values": values, "delta": law.delta.hex()}
    kind = "winner" if isinstance(law, RoundLaw) else "vector"
    held = {name: value.hex() if isinstance(value, float) else value for name, value in asdict(law).items()}
    return {"kind": kind, **held}


def law_from_json(read: Mapping[str, Any]) -> Law:
    """The law that `law_as_json` wrote; raises LedgerCorrupt for anything else."""
    held = {name: value for name, value in read.items() if name != "kind"}
    if read["kind"] == "renyi":
        law = RenyiLaw(tuple(float.fromhex(value) for value in held["values"]), float.fromhex(held["delta"]))
        known = tuple(float.fromhex(order) for order in held["orders"]) == WIDE_ORDERS
        if known and len(law.values) == len(WIDE_ORDERS) and all(value >= 0.0 for value in (*law.values, law.delta)):
            return law
    elif read["kind"] == "vector":
        vector = VectorLaw(float.fromhex(held.pop("mu")), float.fromhex(held.pop("slack")))
        if not held and 0.0 < vector.mu < math.inf and 0.0 <= vector.slack < math.inf:
            return vector
    elif read["kind"] == "winner":
        scale, rate = float.fromhex(held.pop("scale")), float.fromhex(held.pop("sampling_rate"))
        return RoundLaw(scale=scale, sampling_rate=rate, adjacency=Adjacency(held.pop("adjacency")), **held)
    raise LedgerCorrupt("it states no law that this version of collegium knows")


def _whole(value: object, *, at_least: int) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"not a whole number of {at_least} or more")
    return value


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
