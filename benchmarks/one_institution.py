"""What one institution of several can do to the student of a default run, and what groups cost.

``python -m benchmarks.one_institution --sets digits,hearts --parties 9 --seeds 3 --json out.json`` deals each set's
records to the institutions at random, and plays runs in this process: the real coordinator and real parties, with the
settings that ``collegium init`` leaves to defaults (``[evaluation]`` and ``[pool_check]`` with a tenth of ε each), of
which the first party sends something else. Its evaluation says that all of its records, as many as its sums count, are
answered right. A row says of every attack how good the student is on test records, beside that of the other
institutions alone; what the report says of it, and in percent of the runs: that is false; nothing was published; the
liar's group was named, or an honest one blamed; the pool check flagged the records; this institution, or another, was
warned by the first sum, or by its own figure at the end.

* ``--play careless`` gives the first institution wrong records in place of lies; it follows the protocol.
* ``--play later`` has it lie from the second or the fifth round on.
* ``--groups 3`` (or 1) sets ``votes.groups``, and ``--capped`` the cap on the records of one institution.
* ``--by hospital`` makes an institution of every value of that column, in place of equal ones drawn at random.
* ``--rounds 1`` takes one class sum, as ``collegium study new --trial`` does.
* ``--records`` takes a sample of the private records of each set, for sets that are slow.
* ``--cost 9,25,250`` prints what groups cost where all are honest: the student of as many rounds as the default has,
  with the noise that these parties add in one sum and by groups, without masks, which change no number.
"""

import argparse
import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier import SETS, Methods, Split
from collegium.coordinator.contradictions import counted_by_sums
from collegium.coordinator.journal import Part
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.factories import configured_mechanism, division
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.run_record import RunRecord
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples
from collegium.data.task import NumberColumn, TableInputs
from collegium.errors import Contradiction
from collegium.models.codes import Weights
from collegium.models.noisy_sums import Round
from collegium.models.students import read_student
from collegium.parties.kind import PartyKind
from collegium.parties.kinds.class_sums import PartyClassSums
from collegium.parties.kinds.evaluation import Evaluation
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.question import Question
from collegium.protocol.requests import Ask
from collegium.protocol.secure_sum.groups import group_of, plan_groups
from collegium.protocol.secure_sum.plan import plan_graph
from collegium.settings import validate_config
from collegium.simulations.local import LocalParties
from collegium_accounting.mechanisms.class_sums import ONE as ONE_VECTOR
from collegium_accounting.mechanisms.class_sums import count_of_one, longest_code_squared
from collegium_accounting.mechanisms.record_counts import ONE

Vector = NDArray[np.int64]
Random = np.random.Generator
FAR = 0.03
"""A figure is false where its interval of 95 % begins so far above the accuracy on test records."""


@dataclass(frozen=True)
class Attack:
    """What the first institution does.

    Parameters
    ----------
    sums : what it sends in place of its class sums ``[classes, dimensions]`` without their count; nothing else where
        it is None.
    counted : how many times its records it counts, in class sums and evaluation.
    first : the round from which on it lies; those before are as from so many times its records.
    labels : what it calls its records' classes ``[records]`` in those class sums, of so many classes.
    records : what it makes of its records before the run, where it is careless; it does not lie then.
    """

    sums: Callable[[Vector, int, Random], Vector] | None = None
    counted: int = 1
    first: int = 1
    labels: Callable[[Vector, int], Vector] | None = None
    records: Callable[[Examples, Split, Random], Examples] | None = None


def times(factor: int) -> Callable[[Vector, int, Random], Vector]:
    return lambda own, count, random: own * factor


def shifted(labels: Vector, classes: int) -> Vector:
    """Every class called by the next one's name."""
    return (labels + 1) % classes


def at_random(factor: float) -> Callable[[Vector, int, Random], Vector]:
    """A random direction, so many times as long as as many records as are counted can make the sum."""

    def drawn(own: Vector, count: int, random: Random) -> Vector:
        found = random.normal(size=own.shape)
        found -= found.mean(axis=0)
        longest = ONE_VECTOR * math.sqrt(longest_code_squared(len(own))) / count_of_one(len(own)) * count
        return np.rint(found * (factor * longest / np.linalg.norm(found))).astype(np.int64)

    return drawn


def swapped(labels: Vector, classes: int) -> Vector:
    """One pair of classes called by each other's name."""
    return np.where(labels < 2, 1 - labels, labels)


def swapped_labels(own: Examples, split: Split, random: Random) -> Examples:
    return Examples(own.x, swapped(own.labels(), len(split.task.classes)))


def random_labels(own: Examples, split: Split, random: Random) -> Examples:
    return Examples(own.x, random.integers(0, len(split.task.classes), len(own)))


def tenfold_units(own: Examples, split: Split, random: Random, columns: int = 10**6) -> Examples:
    """All numbers in another unit; of tables so many measured columns, cut off at their public ranges as in a file."""
    x, inputs, at, left = own.x.astype(np.float64), split.task.inputs, 0, columns
    if not isinstance(inputs, TableInputs):
        most = 255 if own.x.dtype == np.uint8 else np.inf
        return Examples(np.minimum(x * 10, most).astype(own.x.dtype), own.labels())
    for column in inputs.columns:
        if isinstance(column, NumberColumn) and len(np.unique(x[:, at])) > 2 and left:
            span = column.high - column.low
            x[:, at] = np.clip((10.0 * (column.low + span * x[:, at]) - column.low) / span, 0.0, 1.0)
            left -= 1
        at += column.width
    return Examples(x.astype(own.x.dtype), own.labels())


HONEST = Attack()
LIES = {
    "honest": HONEST,
    "x3": Attack(times(3)),
    "x10^6": Attack(times(10**6)),
    "shifted": Attack(times(1), labels=shifted),
    "shifted x3, counted": Attack(times(3), 3, labels=shifted),
    "shifted x10, counted": Attack(times(10), 10, labels=shifted),
    "shifted x10^6, counted": Attack(times(10**6), 10**6, labels=shifted),
    "random, as long as allowed": Attack(at_random(1.0)),
    "random x10, counted": Attack(at_random(1.0), 10),
    "random x100": Attack(at_random(100.0)),
    "pair swapped": Attack(times(1), labels=swapped),
}
CARELESS = {
    "honest": HONEST,
    "pair swapped": Attack(records=swapped_labels),
    "units x10": Attack(records=tenfold_units),
    "unit of one column x10": Attack(records=partial(tenfold_units, columns=1)),
    "random labels": Attack(records=random_labels),
}
LATER = {
    f"{name} from round {first}": Attack(times(factor), counted, first, labels)
    for first in (2, 5)
    for name, factor, counted, labels in [
        ("x3", 3, 1, None),
        ("shifted", 1, 1, shifted),
        ("shifted x3, counted", 3, 3, shifted),
        ("shifted x10, counted", 10, 10, shifted),
    ]
}
PLAYS = {"lies": LIES, "careless": CARELESS, "later": LATER}


def lying(attack: Attack, random: Random) -> Callable[[Question, Vector], Vector]:
    """What the institution sends in place of what it should."""
    counted: list[NDArray[np.float64]] = []

    def sent(question: Question, own: Vector) -> Vector:
        assert attack.sums is not None
        lie = own.copy()
        if isinstance(question, SumClasses):
            blocks, count = own[0, :-1].reshape(question.classes, -1), int(own[0, -1]) * attack.counted
            sums = attack.sums if question.number >= attack.first else times(attack.counted)
            lie[0] = np.append(sums(blocks, count, random).reshape(-1), count)
            per_class = counted_by_sums(Part(lie[0], 1.0, ()), question.classes).per_class
            assert per_class is not None
            counted.append(per_class)
        elif isinstance(question, Evaluate):
            true, given, *_ = Layout(question.classes).views()
            lie[0, true >= 0] = 0
            for number, records in enumerate(counted[0]):  # as many as its first sum counts of each class
                right = np.flatnonzero((true == number) & (given == number))
                lie[0, right[-1 if number else 0]] = round(max(0.0, records) * ONE)  # and surely
        else:  # of the pool check; what the first sum counts
            lie *= attack.counted
        return np.clip(lie, question.low, question.high)

    return sent


@dataclass(frozen=True)
class Played:
    """What came of one run; accuracies are None where there is no figure."""

    groups: int
    student: float | None
    told: float | None
    false: bool
    refused: bool
    named: bool
    blamed: bool
    flagged: bool
    warned_first: bool
    others_warned_first: bool
    warned: bool
    others_warned: bool


@dataclass(frozen=True)
class Setting:
    """What runs have in common."""

    set: str
    parties: int
    epsilon: float
    groups: int | None = None
    records: int | None = None
    capped: bool = False
    by: str | None = None
    rounds: int | None = None

    def config(self, split: Split) -> RunConfig:
        """The default, but for what a user must give."""
        shared, budget = {"share": 0.1}, {"epsilon": self.epsilon}
        if self.capped:
            records = min(len(split.private), self.records or len(split.private))
            budget["records_per_party"] = -(-records // self.parties)
        values = {
            "name": "local",
            "task": split.task,
            "pool": None if split.drawn else {"source": "pool"},
            "budget": budget,
            "evaluation": shared,
            "pool_check": None if split.drawn else shared,
            "votes": {} if self.groups is None else {"groups": self.groups},
            "sums": {} if self.rounds is None else {"rounds": self.rounds},
        }
        return validate_config(values, RunConfig, "the benchmark")


class Deal:
    """The records of every institution of one split."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.split, self.seed = setting, SETS[setting.set](seed), seed
        order = np.random.default_rng(seed).permutation(len(self.split.private))[: setting.records]
        parts = np.array_split(order, setting.parties)
        if setting.by:
            values = self.split.private.columns[setting.by][order]
            parts = [order[values == value] for value in np.unique(values)]
        self.names = [f"party-{number}" for number in range(len(parts))]
        self.of = {name: self.split.private.take(rows) for name, rows in zip(self.names, parts, strict=True)}

    def without(self) -> Played:
        """One run of the other institutions, in one sum."""
        others = Deal(replace(self.setting, groups=1), self.seed)
        del others.of[self.names[0]]
        return others.play(HONEST)

    def play(self, attack: Attack) -> Played:
        """One run, in which the first institution attacks."""
        split, random, liar = self.split, np.random.default_rng([self.seed, 1]), self.names[0]
        examples = dict(self.of)
        if attack.records is not None:
            examples[liar] = attack.records(examples[liar], split, random)
        config = self.setting.config(split)
        with tempfile.TemporaryDirectory() as there:
            folder, own = RunFolder(Path(there) / "run"), Path(there) / "parties"
            given = {name: (_raw(one.x), one.labels()) for name, one in examples.items()}
            parties = LocalParties(given, split.task, folder=own)
            if attack.sums is not None:
                corrupt(parties, liar, attack, random)
            reach = Reach(parties, roster=parties.names(), signing_keys=parties.signing_keys)
            run = CoordinatorRun(config, reach, Storage(folder.path), public=PublicData(Examples(split.pool)))
            with suppress(Contradiction):
                run.run()
            record, accuracy = folder.read(), None
            assert record is not None
            if folder.student.exists():
                found = read_student(folder.student).probabilities(split.test.x).argmax(axis=1)
                accuracy = float((found == split.test.labels()).mean())
            warned = [
                [name for name in examples if PartyClassSums.noted(own / name)["warning"]],
                [name for name in examples if Evaluation.noted(own / name)["warning"]],
            ]
            groups = division(config, len(examples)).groups
            spoilt = group_of(parties.signing_keys, groups, liar) if groups > 1 else {}
        return self._played(record, accuracy, groups, spoilt, warned, attack)

    def _played(
        self,
        record: RunRecord,
        accuracy: float | None,
        groups: int,
        spoilt: Collection[str],
        warned: Sequence[Collection[str]],
        attack: Attack,
    ) -> Played:
        measures = None if record.evaluation is None else record.evaluation.measures
        told = None if measures is None else measures.accuracy
        left_out = None if record.groups is None or record.groups.left_out is None else record.groups
        left = [] if left_out is None else left_out.members[left_out.left_out or 0]
        guilty = attack != HONEST and set(left) == set(spoilt)
        liar = self.names[0]
        return Played(
            groups,
            accuracy,
            None if told is None else told.value,
            told is not None and accuracy is not None and told.low > accuracy + FAR,
            record.refused is not None,
            bool(left) and guilty,
            bool(left) and not guilty,
            record.pool_check is not None and record.pool_check.found is not None and record.pool_check.found.flagged,
            *(flag for told in warned for flag in (liar in told, any(name != liar for name in told))),
        )


def _raw(x: NDArray[Any]) -> NDArray[Any]:
    return x[..., 0] if x.ndim == 4 and x.shape[-1] == 1 else x


def corrupt(parties: LocalParties, name: str, attack: Attack, random: Random) -> None:
    """Have a party run software of its own, which sends what it likes."""
    sent = lying(attack, random)
    liar = parties._parties[name]
    honest = liar._bounded

    def bounded(kind: PartyKind[Any], ask: Ask, run_id: str) -> Vector:
        question = ask.question
        if attack.labels is None or not isinstance(question, SumClasses) or question.number < attack.first:
            return sent(question, honest(kind, ask, run_id))
        assert isinstance(kind, PartyClassSums)
        records = kind._records
        own = records._examples
        records._examples = Examples(own.x, attack.labels(own.labels(), question.classes))
        try:
            return sent(question, honest(kind, ask, run_id))
        finally:
            records._examples = own

    liar._bounded = bounded  # type: ignore[method-assign]


Row = dict[str, str | float | None]
"""Accuracies and shares of the runs are in percent, accuracies the means of the runs that have one."""


def rows(setting: Setting, attacks: Mapping[str, Attack], seeds: Sequence[int]) -> Iterator[Row]:
    """A row for every attack: others and student on the test records, and what the report told of the student."""
    deals = [Deal(setting, seed) for seed in seeds]
    others = _mean([deal.without().student for deal in deals])
    rounds = setting.config(deals[0].split).class_sums
    for name, attack in attacks.items():
        if attack.first > rounds:
            continue
        began = time.process_time()
        played = [deal.play(attack) for deal in deals]
        row: Row = {"set": setting.set, "parties": len(deals[0].names), "epsilon": setting.epsilon, "attack": name}
        row |= {"groups": played[0].groups, "seeds": len(played), "others": others}
        for figure in list(Played.__dataclass_fields__)[1:]:
            row[figure] = _mean([getattr(one, figure) for one in played])
        yield row | {"cpu_s": round((time.process_time() - began) / len(played), 1)}


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [one for one in shares if one is not None]
    return round(100.0 * float(np.mean(known)), 1) if known else None


class Divided(Methods):
    """The default's student on records that as many institutions hold, with the noise that they add."""

    factor, sigma = 1.0, 1.0
    """Of the noise of all parties together in what is charged; what is charged, of each round."""

    def _sigma(self, epsilon: float, rounds: int) -> float:
        return self.sigma

    def _released(self, sums: Vector, sigma: float, seed: list[int], weights: Weights | None = None) -> Round:
        return super()._released(sums, sigma * self.factor, seed, weights)

    def accuracy(self, factor: float, epsilon: float) -> float:
        """On the test records, in percent."""
        self.factor = factor
        return 100.0 * float((self.class_sums(epsilon).argmax(axis=1) == self.split.test.labels()).mean())


def costs(setting: Setting, parties: Sequence[int], seeds: Sequence[int]) -> Iterator[Row]:
    """A row for every number of institutions; noise is that of the mean of all rounds, in contributions."""
    found: dict[tuple[int, float], float] = {}
    for seed in seeds:
        split = SETS[setting.set](seed)
        own = np.random.default_rng(seed).permutation(len(split.private))[: setting.records]
        made, config = Divided(replace(split, private=split.private.take(own)), seed), setting.config(split)
        made.sigma = configured_mechanism(config).noise_votes
        for factor in {factor for number in parties for factor in factors(config, number)}:
            found[seed, factor] = made.accuracy(factor, setting.epsilon)
    for number in parties:
        both = factors(config, number)
        row: Row = {"set": setting.set, "parties": number, "epsilon": setting.epsilon, "seeds": len(seeds)}
        default = division(config, number)
        row["default"] = f"{default.groups}, first sum" if default.once else default.groups
        for name, factor in zip(("one sum", "three groups"), both, strict=True):
            row[f"noise, {name}"] = round(made.sigma * factor / float(np.sqrt(config.sums_in_mean)), 2)
            row[name] = round(float(np.mean([found[seed, factor] for seed in seeds])), 2)
        yield row


def factors(config: RunConfig, parties: int) -> tuple[float, float]:
    """The noise of all parties together in units of what is charged, in one sum and by three groups."""
    votes, roster = config.votes, {str(number): number.to_bytes(32, "big") for number in range(parties)}
    one = plan_graph(parties, votes.dropout, votes.collusion, quorum=votes.quorum).of_all.honest_survivors
    groups = plan_groups(roster, 3, votes.dropout, votes.collusion, votes.quorum)
    least = min(group.plan.of_all.honest_survivors for group in groups)
    return float(np.sqrt(parties / one)), float(np.sqrt(parties / least))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="digits,hearts")
    parser.add_argument("--parties", type=int, default=9)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--groups", type=int, help="votes.groups; as the default decides where it is left out")
    parser.add_argument("--capped", action="store_true", help="budget.records_per_party is what the largest has")
    parser.add_argument("--by", help="a column: each of its values is an institution, whatever --parties says")
    parser.add_argument("--rounds", type=int, help="sums.rounds; as the default decides where it is left out")
    parser.add_argument("--records", type=int, help="so many private records of each set, drawn at random; all of them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--play", default="lies", choices=PLAYS)
    parser.add_argument("--attack", dest="attacks", action="append", help="of the play; all of them by default")
    parser.add_argument("--cost", help="print what groups cost with these numbers of parties, such as 9,25,50,250")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    kept: list[Row] = []
    seeds = range(given.seeds)
    for name in given.sets.split(","):
        divided = given.groups, given.records, given.capped, given.by, given.rounds
        setting = Setting(name, given.parties, given.epsilon, *divided)
        if given.cost:
            found = costs(setting, [*map(int, given.cost.split(","))], seeds)
        else:
            attacks = PLAYS[given.play]
            found = rows(setting, {one: attacks[one] for one in given.attacks or attacks}, seeds)
        for row in found:
            if not kept:
                print(f"| {' | '.join(row).replace('_', ' ')} |\n|{'---|' * len(row)}")
            print(f"| {' | '.join('–' if one is None else str(one) for one in row.values())} |", flush=True)
            kept.append(row)
            if given.json:
                given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
