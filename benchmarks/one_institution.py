"""What one institution of several can do to the student, with and without groups, and what groups cost.

``python -m benchmarks.one_institution --sets digits,adult,hearts --parties 9 --seeds 20 --json out.json`` deals each
set's records to the institutions at random, sums them by groups with the noise that real parties would add, has one
institution send something else, and prints for every attack: the accuracy on test records of the honest other
institutions without groups, of all in one sum, and of what groups leave; how often the sums contradicted themselves and
were refused (one sum) or the group was left out for it; and how often the spoilt group was named or an honest one was.
``--cost 9,25,250`` prints what groups cost where all are honest. Vectors, noise, checks, groups and classifiers are
those of the package; masks, which change no number, are left out.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier import SETS, Split
from collegium.coordinator.contradictions import check_sums
from collegium.coordinator.groups import suspicion
from collegium.coordinator.journal import Part
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.run_config import SumsConfig
from collegium.errors import ConfigurationError, Contradiction
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelMap
from collegium.models.noisy_sums import NoisySums, Round, added_up
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.parties.kinds.class_sums import RecordsOfClasses
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.groups import groups_of, plan_groups
from collegium.protocol.secure_sum.plan import plan_graph
from collegium_accounting.mechanisms.class_sums import ONE, ClassSums, bound_squared
from collegium_accounting.noise.distributed import NoiseShare

Vector = NDArray[np.int64]
Attack = Callable[[Vector, int, np.random.Generator], Vector]
PLAN = {"dropout": 0.3, "collusion": 0.1, "quorum": 0.8}


def _blocks(own: Vector, classes: int) -> Vector:
    return own[:-1].reshape(classes, -1)


def times(factor: int, *, count: bool) -> Attack:
    """The own sum, multiplied, with its count or without."""
    return lambda own, classes, random: np.append(own[:-1] * factor, own[-1] * (factor if count else 1))


def shifted(factor: int) -> Attack:
    """Every class called by the next one's name, and multiplied with the count, so that length and count agree."""
    return lambda own, classes, random: np.append(
        np.roll(_blocks(own, classes), 1, axis=0).reshape(-1) * factor, own[-1] * factor
    )


def at_random(factor: float) -> Attack:
    """A random direction that is so many times as long as as many records as the count says can make the sum."""

    def attack(own: Vector, classes: int, random: np.random.Generator) -> Vector:
        drawn = random.normal(size=_blocks(own, classes).shape)
        drawn -= drawn.mean(axis=0)
        length = factor * float(own[-1]) * 8.0  # the count is an eighth of the length
        return np.append(np.rint(drawn.reshape(-1) * length / np.linalg.norm(drawn)).astype(np.int64), own[-1])

    return attack


def swapped(own: Vector, classes: int, random: np.random.Generator) -> Vector:
    """One pair of classes called by each other's name."""
    blocks = _blocks(own, classes).copy()
    blocks[[0, 1]] = blocks[[1, 0]]
    return np.append(blocks.reshape(-1), own[-1])


ATTACKS: dict[str, Attack] = {
    "honest": lambda own, classes, random: own,
    "x3": times(3, count=False),
    "x100": times(100, count=False),
    "x10^6": times(10**6, count=False),
    "shifted": shifted(1),
    "shifted x3, counted": shifted(3),
    "shifted x10, counted": shifted(10),
    "shifted x100, counted": shifted(100),
    "random, as long as allowed": at_random(1.0),
    "random x100": at_random(100.0),
    "pair swapped": swapped,
}


@dataclass(frozen=True)
class Row:
    """One attack on one set, over so many seeds; accuracies in percent, the rest in percent of the seeds."""

    set: str
    parties: int
    groups: int
    epsilon: float
    attack: str
    seeds: int
    honest_others: float
    one_sum: float
    by_groups: float
    refused: float
    left_out: float
    false_alarm: float


class Scene:
    """The exact sums of every institution of one split, and the kernel under which they are taken."""

    def __init__(self, split: Split, parties: int, epsilon: float, seed: int) -> None:
        self.split, self.classes = split, len(split.task.classes)
        self.sigma = float(ClassSums.within_budget({"classes": self.classes}, epsilon, 1e-5)["sigma"])
        spec = kernel_spec(SumsConfig(), split.pool, split.task.inputs, self.classes, self.sigma, 0)
        self.spec, kernel = spec, KernelMap.of_pool(spec, split.pool, split.task.inputs)
        self.spectrum = PoolSpectrum.of_pool(kernel, split.pool)
        self.test = kernel(split.test.x) / ONE
        self.names = [f"party-{number}" for number in range(parties)]
        dealt = np.array_split(np.random.default_rng(seed).permutation(len(split.private)), parties)
        self.sums = {
            name: RecordsOfClasses(split.private.take(rows), split.task).sums(kernel)
            for name, rows in zip(self.names, dealt, strict=True)
        }
        self.together = plan_graph(parties, PLAN["dropout"], PLAN["collusion"], quorum=PLAN["quorum"])

    def groups(self, number: int, seed: int) -> tuple[list[list[str]], int]:
        """The members of each group, and how many honest parties' noise is sure in each."""
        roster = {name: bytes([*seed.to_bytes(4, "big"), *name.encode()]).ljust(32)[:32] for name in self.names}
        if number == 1:
            return [self.names], self.together.honest_survivors
        planned = plan_groups(roster, number, *PLAN.values())
        honest = min(group.plan.honest_survivors for group in planned)
        return [[*group] for group in groups_of(roster, number)], honest

    def parts(
        self, vectors: dict[str, Vector], groups: Sequence[Sequence[str]], honest: int, random: np.random.Generator
    ) -> list[Part]:
        """What is released of each group."""
        share = NoiseShare(self.sigma * float(np.sqrt(bound_squared(self.classes))), honest).sigma_share
        released = []
        for group in groups:
            present = [name for name in group if name in vectors]
            noise = share * np.sqrt(len(present))
            total = np.sum([vectors[name] for name in present], axis=0)
            drawn = np.rint(random.normal(0.0, noise, len(total))).astype(np.int64)
            released.append(Part(total + drawn, float(noise), tuple(sorted(present))))
        return released

    def fit(self, sums: NoisySums) -> KernelStudent:
        """The classifier of these sums."""
        return sums.classifier(self.split.pool, self.split.task, spectrum=self.spectrum)

    def of_group(self, part: Part) -> NoisySums:
        return NoisySums(self.spec, (Round(part.values, part.noise),))

    def accuracy(self, parts: Sequence[Part]) -> float:
        """On the test records, in percent."""
        named = (self.test @ self.fit(added_up([*map(self.of_group, parts)])).coefficients).argmax(axis=1)
        return 100.0 * float((named == self.split.test.labels()).mean())

    def contradicts(self, part: Part) -> bool:
        """Whether no records give this sum."""
        try:
            check_sums(part, self.classes, most_records=MAX_RECORDS_PER_PARTY, per_party=False)
        except Contradiction:
            return True
        return False

    def kept(self, parts: Sequence[Part]) -> tuple[list[Part], int | None, bool]:
        """The groups that stay, the one that is left out, and whether it contradicted itself."""
        false = [number for number, part in enumerate(parts) if self.contradicts(part)]
        groups = [*map(self.of_group, parts)]
        named = false[0] if len(false) == 1 else suspicion(groups, self.fit, self.spectrum, self.classes).named
        return [part for number, part in enumerate(parts) if number != named], named, bool(false)


def attacked(name: str, parties: int, groups: int, epsilon: float, seeds: int, attack: str) -> Row:
    """One row; the institution that attacks is the first one."""
    found: list[tuple[float, ...]] = []
    scenes: dict[int, Scene] = {}
    for seed in range(seeds):
        deal = seed % 3
        if deal not in scenes:
            scenes[deal] = Scene(SETS[name](deal), parties, epsilon, deal)
        scene, random = scenes[deal], np.random.default_rng([seed, 1])
        liar = scene.names[0]
        sent = scene.sums | {liar: ATTACKS[attack](scene.sums[liar], scene.classes, random)}
        others = {one: vector for one, vector in scene.sums.items() if one != liar}
        whole, honest = scene.groups(1, seed)
        (together,) = scene.parts(sent, whole, honest, random)
        dealt, least = scene.groups(groups, seed)
        parts = scene.parts(sent, dealt, least, random)
        kept, named, _ = scene.kept(parts)
        spoilt = next(number for number, group in enumerate(dealt) if liar in group)
        found.append(
            (
                scene.accuracy(scene.parts(others, whole, honest, random)),
                scene.accuracy([together]),
                scene.accuracy(kept),
                100.0 * scene.contradicts(together),
                100.0 * (named == spoilt and attack != "honest"),
                100.0 * (named is not None and (named != spoilt or attack == "honest")),
            )
        )
    means = [round(float(value), 2) for value in np.mean(found, axis=0)]
    return Row(name, parties, groups, epsilon, attack, seeds, *means)


def cost(name: str, parties: int, groups: int, epsilon: float, seeds: int) -> tuple[float, float]:
    """Accuracy of honest institutions in one sum and by groups, and none where groups are impossible."""
    found = []
    for seed in range(seeds):
        scene, random = Scene(SETS[name](seed), parties, epsilon, seed), np.random.default_rng([seed, 2])
        both = [scene.groups(number, seed) for number in (1, groups)]
        found.append([scene.accuracy(scene.parts(scene.sums, *one, random)) for one in both])
    together, apart = np.mean(found, axis=0)
    return float(together), float(apart)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="digits,hearts,adult")
    parser.add_argument("--parties", type=int, default=9)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--attack", dest="attacks", action="append", choices=ATTACKS, help="all of them by default")
    parser.add_argument("--cost", help="print what groups cost with these numbers of parties, such as 9,25,250")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    if given.cost:
        print("set            parties  one sum  by groups")
        for name in given.sets.split(","):
            for parties in map(int, given.cost.split(",")):
                try:
                    together, apart = cost(name, parties, given.groups, given.epsilon, given.seeds)
                except (ConfigurationError, InsufficientPlan) as error:
                    print(f"{name:14} {parties:7}  {error}")
                    continue
                print(f"{name:14} {parties:7}  {together:7.1f}  {apart:9.1f}", flush=True)
                rows.append({"set": name, "parties": parties, "one_sum": together, "by_groups": apart})
    else:
        print(f"{'set':10} {'attack':28} others  one sum  groups  refused  left out  false alarm")
        for name in given.sets.split(","):
            for attack in given.attacks or ATTACKS:
                row = attacked(name, given.parties, given.groups, given.epsilon, given.seeds, attack)
                print(
                    f"{name:10} {attack:28} {row.honest_others:6.1f}  {row.one_sum:7.1f}  {row.by_groups:6.1f}  "
                    f"{row.refused:6.0f} %  {row.left_out:6.0f} %  {row.false_alarm:9.0f} %",
                    flush=True,
                )
                rows.append(asdict(row))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
