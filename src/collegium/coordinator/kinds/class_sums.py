"""Class sums: labels of the whole pool follow from the rounds of them.

Each round is paid for, asked once, made noisy and kept in the journal, under the name of what it answers: a run that is
started again finds it there and asks nobody. What the next question follows from, weights or networks that were made of
the rounds before, is on the disk before anybody is asked, under the name of these rounds: computed again it could
differ in its last digit. A charge names its question, so that another question would be another release, and paid as
such.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from collegium.coordinator.asking import RunQuestion
from collegium.coordinator.contradictions import Counted, check_cap, check_sums, check_totals, counted_by_sums
from collegium.coordinator.groups import Suspected, Verdict, changed, differ, judged, suspicion
from collegium.coordinator.journal import Name, Part, Released
from collegium.coordinator.kind import RunKind
from collegium.coordinator.noise import noise_on_entries
from collegium.coordinator.release import Releases, WholeVector
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import VoteSum, ask_each, terms_of
from collegium.coordinator.run.student_trainer import StudentTrainer
from collegium.coordinator.run.surroundings import RunSetup
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.settings.kinds import register
from collegium.coordinator.statement import Slot
from collegium.data.drawn_pool import drawn_by
from collegium.errors import ConfigurationError, Contradiction, DataError, ProtocolViolation, StorageError
from collegium.models.codes import Weights
from collegium.models.input_sums import by_class, shares_of
from collegium.models.kernel_student import KernelStudent
from collegium.models.kernels import KernelSpec
from collegium.models.noisy_sums import PARTY_CONTRIBUTIONS, NoisySums, Round
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.question import PoolRange, QuestionTerms
from collegium.protocol.requests import ShowReleased
from collegium.protocol.secure_sum.groups import FEWEST_GROUPS
from collegium.whole_files import read_digested, write_digested
from collegium_accounting.mechanisms import SumMode
from collegium_accounting.mechanisms.class_sums import FEW_CLASSES, count_of_one

_NETWORKS, _SHARES = b"networks\n", b"shares\n"
"""What begins networks, or shares of inputs, that are kept for the next question; weights are kept as they are."""


@register
class ClassSums(RunKind):
    """Asks `SumClasses`; the labels of all inputs follow from the rounds."""

    question = SumClasses
    usual = {"votes": {"mode": SumMode.MASKED_AND_NOISED}, "student": {"method": "kernel"}}  # noqa: RUF012

    network: bytes | None = None
    """Records are compared by its features; by those of the settings where it is None."""
    shares: bytes | None = None
    """Rows that are drawn by these take the place of the pool; None where they do not, or not yet."""
    weights: Weights | None = None
    """Those of the round; None where every class is as likely as another."""
    number = 1
    """Of the round, from 1 on."""

    def next(
        self, *, network: bytes | None = None, shares: bytes | None = None, weights: Weights | None = None
    ) -> Self:
        """The one who asks for the next round: under features of these networks, under a map of rows that are drawn by
        these shares, or under these weights.

        Without any, it is another sum under the same map.
        """
        following = type(self)(self.facts)
        following.network, following.weights, following.number = network, weights, self.number + 1
        following.shares = shares or self.shares
        if following.map == self.map and not self.of_inputs:
            following.spec = self.spec
        return following

    @property
    def of_inputs(self) -> int:
        """How many numbers the sum of the inputs themselves has for each class; 0 where it is under a map."""
        return self.facts.config.input_entries if self.number == 1 else 0

    @property
    def map(self) -> tuple[bytes | None, bytes | None]:
        """What the map follows from beside public facts, by which rounds under one map are told from others."""
        return self.network, self.shares

    @cached_property
    def spec(self) -> KernelSpec:
        """The public kernel."""
        config, noise = self.facts.config, self.facts.noise_votes / math.sqrt(self.facts.config.sums_in_mean)
        task, among = config.task, self.facts.pool
        if self.shares is not None:
            among = drawn_by(self.shares, task.inputs)[0]
        found = kernel_spec(config.kernel, among, task.inputs, len(task.classes), noise, config.seed or 0, self.network)
        return replace(found, shares=self.shares)

    @property
    def per_party(self) -> bool:
        """Whether each party sends one vector for all of its records."""
        return self.facts.config.budget.unit == "party"

    @property
    def most_records(self) -> int:
        """The cap on the records of one party."""
        return self.facts.config.budget.most_records

    @cached_property
    def name(self) -> str:
        """What is asked, of which pool and under which ledger, with which noise: equal texts have equal answers."""
        facts, config = self.facts, self.facts.config
        weights = None if self.weights is None else self.weights.digest()
        under = f"{self.of_inputs} entries" if self.of_inputs else self.spec.digest()
        asked = [self.number, under, weights, facts.pool_sha256, facts.ledger_id]
        asked += [facts.noise_votes, config.votes.mode, config.budget.unit]
        classes = len(config.task.classes)
        # Version 0.2.0 counted records of few classes in other units: a study must not take its sums for these.
        return json.dumps([*asked, count_of_one(classes)] if classes <= FEW_CLASSES else asked)

    def ask(self, terms: QuestionTerms, inputs: PoolRange) -> SumClasses:
        """The question; ``inputs`` do not matter, as a sum labels every input."""
        facts, spec = self.facts, None if self.of_inputs else self.spec
        asked = (spec, facts.pool_sha256, self.number, self.weights, self.of_inputs)
        return SumClasses(terms, facts.ledger_id, self.per_party, *asked)

    @classmethod
    def decided(cls, config: Any) -> dict[str, Any]:
        return {"rounds": config.class_sums}

    def sums(self, setup: RunSetup, releases: Releases, trainer: StudentTrainer) -> "SumsOfRun":
        return SumsOfRun(setup, releases, self, trainer)


@dataclass(frozen=True, eq=False)
class _Heard:
    """A round as it was released: who asked, and the sum of each group."""

    asking: ClassSums
    groups: tuple[Part, ...]

    @property
    def members(self) -> list[tuple[str, ...]]:
        return [part.parties for part in self.groups]

    def of(self, parties: tuple[str, ...]) -> "_Heard":
        """The sums of these parties; none where others were summed with them, or not all of them were."""
        own = tuple(part for part in self.groups if set(part.parties) <= set(parties))
        return _Heard(self.asking, own if Released(own).parties == parties else ())

    def counted(self, parties: tuple[str, ...]) -> Counted | None:
        """How many records the sums of these parties count; None where there are none of them alone."""
        total = Released(self.of(parties).groups)
        return self.counting(total) if total.groups else None

    def counting(self, sums: Part | Released) -> Counted:
        """How many records these sums of the round count."""
        task = self.asking.facts.config.task
        found = counted_by_sums(sums, len(task.classes), of_inputs=self.asking.of_inputs > 0)
        return replace(found, per_class=None) if self.asking.of_inputs and not by_class(task.inputs) else found

    def without(self, spoilt: frozenset[str]) -> "_Heard":
        """The sums to which none of these parties added."""
        return _Heard(self.asking, tuple(part for part in self.groups if spoilt.isdisjoint(part.parties)))


def _first_by_groups(heard: Sequence[_Heard]) -> _Heard:
    """The first round that was summed by groups; the first of all where none was."""
    return next((one for one in heard if len(one.groups) > 1), heard[0])


def _under_last_map(heard: Sequence[_Heard]) -> list[_Heard]:
    """The last rounds, which are under one kernel map."""
    return [one for one in heard if one.asking.map == heard[-1].asking.map]


class _JudgedRounds:
    """The rounds that were released, and which group of parties is left out of them.

    Parameters
    ----------
    rounds : how many there will be.
    """

    def __init__(self, rounds: int, classes: int, device: str) -> None:
        self._rounds, self._classes, self._device = rounds, classes, device
        self.heard, self.verdict, self.doubted = list[_Heard](), Verdict(()), list[_Heard]()
        self._known: NoisySums | None = None
        self.spectra = dict[tuple[bytes | None, bytes | None], PoolSpectrum]()
        """Of the pool, by what the map follows from."""

    def heard_of(self, asking: ClassSums, groups: tuple[Part, ...]) -> NoisySums:
        """What is known with this round.

        Raises
        ------
        Contradiction
            Where no records give the sums, and it is not one group of several.
        """
        if self._known is not None and len(self.heard) == asking.number:
            return self._known
        heard = [*self.heard, _Heard(asking, groups)]
        verdict = self._judge(heard)
        if verdict.left_out is not None:
            self.doubted = []  # none is used in which that group is
        else:
            new = heard if heard[-1] is _first_by_groups(heard) else heard[-1:]
            self.doubted += [one for one in new if self._is_doubted(one, heard)]
        staying = [one.without(verdict.spoilt) for one in heard if one not in self.doubted]
        staying = _under_last_map([one for one in staying if one.groups])
        if not staying:
            verdict.kept(groups)  # raises Contradiction
        self.heard, self.verdict = heard, verdict
        self._known = self._sums(staying)
        return self._known

    def _is_doubted(self, one: _Heard, heard: Sequence[_Heard]) -> bool:
        """Whether a sum of all together says something else than the first by groups.

        An institution may be honest in a sum that shows its group, and lie in others.
        """
        asking, first = one.asking, _first_by_groups(heard)
        if len(one.groups) > 1 or len(first.groups) == 1:
            return False
        try:
            self._check_again(one.groups[0], first, asking)
        except Contradiction:
            return True
        if asking.facts.config.drawn:
            return False
        if asking.map == first.asking.map:
            return differ(self._sums([one]), self._sums([first]), self.spectrum(asking), self._classes)
        task, pool = asking.facts.config.task, asking.facts.pool
        known, other = (self._sums([sums]).of_pool(pool, task, self._device) for sums in (first, one))
        return known.worse(other.probabilities)

    def _judge(self, heard: Sequence[_Heard]) -> Verdict:
        """By sums that no records give in any round; and by what the first tells of the groups, and all together do.

        With each look an honest group may be named by chance, so there are these two.
        """
        last = heard[-1]
        first = _first_by_groups(heard)
        if last is first:
            return judged(first.groups, lambda part: self._check(part, first.asking), lambda: self._suspected(heard))
        verdict = self.verdict
        if verdict.left_out is None and last.members == first.members:
            other = self._changed(first, heard)

            def check(part: Part) -> None:
                self._check_again(part, first, last.asking)
                if part.parties == other:
                    raise Contradiction("its class sums of several rounds cannot be those of the same records")

            verdict = judged(last.groups, check, lambda: None)
        elif verdict.left_out is not None or len(first.groups) == 1:
            for part in last.without(verdict.spoilt).groups:
                self._check_again(part, first, last.asking)
        if len(heard) < self._rounds or verdict.left_out is not None:
            return verdict
        # An institution that stays away from a round takes nobody's place in the others.
        same = [one for one in _under_last_map(heard) if one.members == first.members]
        if same[-1:] in ([], [first]):
            self._check_cap(Released(last.groups).parties, heard)
            return verdict
        return judged(same[-1].groups, lambda part: self._check_cap(part.parties, heard), lambda: self._suspected(same))

    def _changed(self, first: _Heard, heard: Sequence[_Heard]) -> tuple[str, ...] | None:
        """The one group that says something else of its records than in the ``first`` round; None where none does."""
        asking, rounds = first.asking, [one for one in heard if one is not first and one.members == first.members]
        if len(first.groups) < FEWEST_GROUPS or asking.facts.config.drawn or asking.map != heard[-1].asking.map:
            return None
        before, after = (self._of_groups(first.members, some) for some in ([first], rounds))
        found = changed(before, after, self.spectrum(asking), self._classes)
        return first.members[found[0]] if len(found) == 1 else None

    def _check_again(self, part: Part, first: _Heard, asking: ClassSums) -> None:
        """Raise Contradiction where no records give the sum of a later round, or others than gave the first."""
        self._check(part, asking)
        if not asking.per_party and (before := first.counted(part.parties)) is not None:
            check_totals(before, counted_by_sums(part, self._classes, of_inputs=asking.of_inputs > 0))

    def _suspected(self, heard: Sequence[_Heard]) -> Suspected | None:
        """Whom these rounds name, which are of the same groups and under one map."""
        asking, groups = heard[-1].asking, heard[-1].groups
        if len(groups) < FEWEST_GROUPS or asking.facts.config.drawn:  # how honest records lie is not known then
            return None
        spectrum, pool, task = self.spectrum(asking), asking.facts.pool, asking.facts.config.task
        of_groups = self._of_groups(heard[-1].members, heard)

        def fit(sums: NoisySums) -> KernelStudent:
            return sums.classifier(pool, task, self._device, spectrum)

        return suspicion(of_groups, fit, spectrum, self._classes)

    def _check(self, group: Part, asking: ClassSums) -> None:
        """Raise Contradiction where no records give the sum of a group."""
        most, of_inputs = asking.most_records, asking.of_inputs > 0
        first = asking.weights is None and (not of_inputs or by_class(asking.facts.config.task.inputs))
        check_sums(
            group, self._classes, most_records=most, per_party=asking.per_party, by_class=first, of_inputs=of_inputs
        )

    def _check_cap(self, parties: tuple[str, ...], heard: Sequence[_Heard]) -> None:
        """Raise Contradiction where all rounds of these parties together count more records than their cap allows."""
        asking = heard[-1].asking
        if not asking.per_party:
            rounds = [one.counted(parties) for one in heard if one not in self.doubted]
            check_cap([one for one in rounds if one is not None], most_records=asking.most_records)

    def spectrum(self, asking: ClassSums) -> PoolSpectrum:
        """Of the pool under the map of that round; computed once."""
        if asking.map not in self.spectra:
            pool, inputs = asking.facts.pool, asking.facts.config.task.inputs
            self.spectra[asking.map] = PoolSpectrum.under(asking.spec, pool, inputs, self._device)
        return self.spectra[asking.map]

    def _of_groups(self, members: Sequence[tuple[str, ...]], heard: Sequence[_Heard]) -> list[NoisySums]:
        """Of each group the rounds in which it was summed by itself."""
        return [self._sums([own for one in heard if (own := one.of(group)).groups]) for group in members]

    @staticmethod
    def _sums(heard: Sequence[_Heard]) -> NoisySums:
        """These rounds, which are under one map, of all their groups together."""
        asking, rounds = heard[0].asking, list[Round]()
        if asking.of_inputs:
            task, total = asking.facts.config.task, Released(heard[0].groups)
            shares = shares_of(total.values, total.noise, len(task.classes), task.inputs)
            of_inputs = Round(total.values, total.noise)
            return NoisySums(asking.next(shares=shares).spec, (), drawn=True, of_inputs=of_inputs)
        for one in heard:
            total = Released(one.groups)
            rounds.append(Round(total.values, total.noise, one.asking.weights))
        answered = float(np.mean([Released(one.groups).answered for one in heard]))
        return NoisySums(
            asking.spec,
            tuple(rounds),
            answered * PARTY_CONTRIBUTIONS if asking.per_party else None,
            asking.facts.config.drawn,
        )


# More than 15 methods: the rounds of one run, each of which follows from those before.
class SumsOfRun:
    """The class sums of one run; ``first_name`` is how the first of them is charged.

    There are rounds under one map, each of which asks by how much the weights of those before miss the records'
    classes. Where networks learn from the first sum, and the records' classes agree with them as well as with the sum's
    own classifier, the second is under their features instead.

    Parameters
    ----------
    first : asks for the first sum.
    trainer : makes the networks that learn what the first sum says of the pool. Where they can learn nothing, as too
        much of that is noise, the second sum is the same once more.
    """

    def __init__(self, setup: RunSetup, releases: Releases, first: ClassSums, trainer: StudentTrainer) -> None:
        self._setup, self._releases, self._asking, self._trainer = setup, releases, first, trainer
        self._rounds, self._held = int(setup.mechanism.parameters()["rounds"]), list[NoisySums]()
        self._device, self._classes = setup.compute.device, len(setup.config.task.classes)
        self._judged = _JudgedRounds(self._rounds, self._classes, self._device)
        self.first_name = first.name

    @property
    def held(self) -> list[NoisySums]:
        """What is known after each round that was released; labels and student follow from the last.

        Raises StorageError where a file is damaged: what it held was paid for.
        """
        while len(self._held) < self._rounds and self._next_is_known(learn=False) and (sums := self._kept()):
            self._held.append(sums)
        return self._held

    @property
    def lacking(self) -> int:
        """How many rounds of the run were not released."""
        return self._rounds - len(self.held)

    def take(self) -> None:
        """Have the rounds that were not released yet.

        Raises
        ------
        BudgetExceeded, QuorumNotReached
            Where the budget or the parties do not take a round; those before it are kept.
        DataError
            If networks can learn nothing from the first sum.
        """
        while lacking := self.lacking:
            self._next_is_known(learn=True)
            if self._kept() is not None:
                continue
            ordinary, further = self._next_sum, lacking - 1
            ways = [(self._slot(sums), self._question(sums, further)) for sums in self._releases.ways(ordinary)]
            parties = self._releases.asking.ready(ordinary)
            answered, asked = self._releases.release_one(ways, self._rule.keeping, parties)
            question = asked.question
            if answered and isinstance(question, SumClasses) and question.tells_classes_apart:
                self._show(question.name, answered)

    def _show(self, round_id: str, parties: Sequence[str]) -> None:
        """Show the parties of a round what was released, so that they compare their own records with it.

        Those that stay, where a group is left out, are shown the sum of those that stay.
        """
        released = self._rule.released
        assert released is not None  # it was kept now
        staying = released
        with suppress(Contradiction):  # the run ends by it, once they are told
            staying = Released(self.verdict.kept(released.groups))
        for sums, told in ((staying, staying.parties), (released, set(released.parties) - set(staying.parties))):
            shown = ShowReleased(round_id, SumClasses.kind, tuple(map(float, sums.values)), sums.noise**2)
            ask_each(self._setup.reach.parties, set(parties) & set(told), shown, self._releases.asking.deadline_s, None)

    @property
    def counted(self) -> list[Counted]:
        """How many records the first sum counts, of each group and of those that stay together.

        There are none before there is a sum, and where parties are protected as a whole.
        """
        if not self.held or self._asking.per_party:
            return []
        heard = [one for one in self._judged.heard if one not in self._judged.doubted]
        # A sum of inputs that are vectors does not count them by class: the first one under a map does.
        by_class_too = [one for one in heard if not one.asking.of_inputs and one.asking.weights is None]
        further = by_class_too[:1] if self._asking.facts.config.input_entries else []
        found = []
        for one in (_first_by_groups(heard), *further):
            kept = Released(self._judged.verdict.kept(one.groups))
            parts: Sequence[Part | Released] = kept.groups if len(kept.groups) == 1 else (kept, *kept.groups)
            found += [one.counting(part) for part in parts]
        return found

    @property
    def verdict(self) -> Verdict:
        """Which group is left out, by the rounds that were released; nobody is before there is one.

        Raises
        ------
        Contradiction
            Where no records give the sums, and it is not one group of several.
        """
        _ = self.held
        return self._judged.verdict

    def _question(self, sums: VoteSum, further: int) -> RunQuestion:
        """The next round as it is asked where it is added up so; ``further`` rounds follow."""
        most = self._asking.most_records
        terms = terms_of(self._setup.mechanism, sums, self._slot(sums).stage, most_records=most)
        asked = self._asking.ask(terms, PoolRange(self._asking.facts.pool_sha256, (0,)))
        return RunQuestion([self._asking.name], asked, sums, further=further)

    def _slot(self, sums: VoteSum) -> Slot:
        """Where the next round is stated where it is added up so."""
        statement, ordinary = self._releases.statement, self._next_sum
        first = statement.sums
        slot = first if ordinary.added == first.stage.added else statement.sums_apart[ordinary.added]
        return slot.added_by(self._setup.mechanism, sums.added)

    @property
    def _next_sum(self) -> VoteSum:
        """How the next round is added up.

        Without the group that is left out, once there is one. Where groups in every round cost too much, the first
        round alone is by groups, unless another one contradicts it.
        """
        sums, known = self._setup.vote_sum, self._judged
        if not isinstance(sums, MaskedSum) or len(_first_by_groups(known.heard).groups if known.heard else ()) < 2:
            return sums
        if spoilt := known.verdict.spoilt:
            number = next((n for n, group in enumerate(sums.divided) if spoilt <= group.roster.keys()), None)
            if number is None:
                raise ConfigurationError(
                    f"{', '.join(sorted(spoilt))} are left out of this run, and are no group by votes.groups and the "
                    "roster as they are now: go on with those of before, or begin another study"
                )
            return sums.without(number)
        return sums.together if sums.once and not known.doubted else sums

    @property
    def _rule(self) -> WholeVector:
        return self._releases.vector(Name(self._asking.name), f"class sums {self._asking.number}")

    def _next_is_known(self, *, learn: bool) -> bool:
        """Have the request for the next round. Returns False if what it follows from is not made yet.

        With ``learn`` it is made. It is on the disk before anybody is asked about it, so that the question stays the
        same.
        """
        if not self._held or self._asking.number > len(self._held):
            return True
        last = self._held[-1].of_inputs or self._held[-1].rounds[-1]
        digest = hashlib.sha256(self._asking.name.encode() + last.values.tobytes()).hexdigest()[:16]
        file = self._releases.asking.journal.folder / f"class-sums-next-{digest}"
        if not file.exists():
            if not learn:
                return False
            write_digested(file, self._learned())
        try:
            self._asking = self._following(read_digested(file))
            _ = self._asking.name
        except (StorageError, DataError, ProtocolViolation) as error:
            raise StorageError(f"{file.name}: {error}; restore it from a copy") from error
        return True

    def _learned(self) -> bytes:
        """What the next question follows from."""
        facts = self._asking.facts
        if self._asking.of_inputs:
            return _SHARES + (self._held[-1].kernel.shares or b"")
        if facts.config.networks_learn:
            found = self._held[0].of_pool(facts.pool, facts.config.task, self._device)
            if not found.clear:
                return b""
            if networks := self._trainer.networks_of(found):
                return _NETWORKS + networks
            self._judged.spectra[self._asking.map] = found.spectrum
        # Weights follow from sums under the map: of inputs there are none, where no later sum was believed yet.
        if self._asking.per_party or self._held[-1].of_inputs:
            return b""
        ways, here = self._releases.ways(self._next_sum), self._releases.asking.here.keys()
        sums = ways[0 if self._releases.all_are(here, ways[-1]) else -1]
        asked = len(here & sums.roster.keys() if isinstance(sums, MaskedSum) else here)
        noise = noise_on_entries(self._slot(sums).stage, asked)
        spectrum = self._judged.spectrum(self._asking)
        rounds = self._rounds - (facts.config.input_entries > 0)
        weights = self._held[-1].next_weights(spectrum, self._classes, rounds, noise)
        return b"" if weights is None else weights.to_bytes()

    def _following(self, learned: bytes) -> ClassSums:
        if learned.startswith(_NETWORKS):
            return self._asking.next(network=learned.removeprefix(_NETWORKS))
        if learned.startswith(_SHARES):
            return self._asking.next(shares=learned.removeprefix(_SHARES))
        return self._asking.next(weights=Weights.from_bytes(learned) if learned else None)

    def _kept(self) -> NoisySums | None:
        """What is known with the next round, where that was released."""
        released = self._rule.released
        return None if released is None else self._judged.heard_of(self._asking, released.groups)
