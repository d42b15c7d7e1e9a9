"""What a study says before it starts: what it asks of whom, what that costs, what it reuses, how good it may get.

Everything here is public: settings, the pool, and what was released. `collegium provision --check` and every start of a
run print these lines.
"""

from dataclasses import dataclass

from collegium.coordinator.run.colluders import Colluders
from collegium.coordinator.run.factories import Division
from collegium.coordinator.run.foreseen import Foreseen
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.privacy.analysis.evaluation import within
from collegium.protocol.secure_sum.plan import GraphPlan
from collegium_accounting.terminal import epsilon_text

DROWNED, CLEAR = 10, 4
"""With a tenth of the needed contributions most labels were wrong; with four times as many, nine tenths of the
accuracy without noise were there (digits, Banking77, medical abstracts, the patients of docs/differing-files.md)."""
_UNITS = {"record": "record", "party": "institution"}
_NAMES = 8
"""So many institutions are named."""
_COUNTED = {"evaluation": "how right the student is", "pool_check": "how well the pool covers their records"}


@dataclass(frozen=True)
class Forecast:
    """How good labels are where a share of the votes is for one class, and all others for one other class.

    Parameters
    ----------
    share : of the votes, for the class with most of them.
    right : probability that a label names that class.
    answered : probability that there is a label.
    """

    share: float
    right: float
    answered: float


@dataclass(frozen=True)
class Earlier:
    """How good the student of an earlier study of the same classes is, as it was released.

    Parameters
    ----------
    study : its name, for people.
    right : how right it is, and on what.
    """

    study: str
    right: str


@dataclass(frozen=True)
class Findings:
    """What a check found.

    Parameters
    ----------
    study : its name, for people.
    parties : the institutions, by name; so many of them, ``quorum``, must answer.
    asked : what labels follow from, in words.
    foreseen : what would still be asked, reused and paid.
    earlier : what is known of earlier students.
    choice : what labels and student come from, and why.
    drawn : whether the inputs of the pool are drawn from the public schema.
    queries : how many queries the run means to ask, and ``affordable`` how many of them the budget pays for.
    votes : of all parties together; 0 where records vote, whose number is private.
    needed : records (parties, where the unit is the party) with which class sums tell the classes apart; None for other
        mechanisms.
    measured : records (or parties) from which on the institutions' evaluation states an accuracy of 80 % to ± 5 points;
        None where there is none.
    graph : of the secure sum, who shares with how many and what it bears; None where votes are summed in the clear. Of
        groups, that of the smallest.
    division : how the institutions are summed by groups, and why; None for other mechanisms than class sums.
    most_records : the cap on the records of one institution.
    colluders : what ε becomes with more colluding parties than planned; empty where the coordinator adds the noise.
    policy : of a study, the lines of policy.toml that agree to it.
    """

    study: str
    parties: tuple[str, ...]
    quorum: int
    asked: str
    choice: str
    foreseen: Foreseen
    earlier: tuple[Earlier, ...]
    pool_inputs: int
    drawn: bool
    holdout_records: int | None
    queries: int
    affordable: int
    votes: int
    forecasts: tuple[Forecast, ...]
    needed: int | None
    measured: int | None
    unit: str
    graph: GraphPlan | None
    division: Division | None
    most_records: int
    colluders: tuple[Colluders, ...]
    policy: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def _forecast(self) -> list[str]:
        """How good labels may get, and what the sums bear."""
        lines = [f"budget       pays for {self.affordable} of {self.queries} queries"] if self.queries else []
        for one in self.forecasts:
            share, right, none = (f"{100 * part:.0f} %" for part in (one.share, one.right, 1 - one.answered))
            unanswered = "" if none == "0 %" else f", and {none} of the queries get none"
            lines.append(
                f"forecast     {share} of {self.votes} votes for one class: about {right} of the labels are the "
                f"majority's{unanswered}"
            )
        whom = "institutions" if self.unit == "party" else "records of all institutions together"
        if self.needed is not None:
            lines.append(
                f"forecast     {max(1, self.needed // DROWNED):,} {whom} are too few: noise decides; from "
                f"{CLEAR * self.needed:,} on it costs little accuracy"
            )
        if self.measured is not None:
            lines.append(
                f"evaluation   states the student's accuracy to about ± 5 points from {self.measured:,} {whom} on"
            )
        if self.graph is not None:
            lines.append(f"secure sum   {self.graph}")
        if self.division is not None:
            price = f", at {self.division.noise:.2f} times the noise" if self.division.groups > 1 else ""
            number = self.division.groups if self.division.groups > 1 else "none"
            lines.append(f"groups       {number}: {self.division.why}{price}")
            lines.append(f"cap          an institution counts for at most {self.most_records:,} records{self._lower}")
        if self.colluders:
            first, *others = self.colluders
            more = "; ".join(
                f"{one.colluding}: ε = {epsilon_text(one.epsilon)}, noise of {one.noise_of} left" for one in others
            )
            lines += [
                f"colluders    ε = {epsilon_text(first.epsilon)} of the labels alone, where no more than "
                f"{first.colluding} of the parties collude with the coordinator (noise of {first.noise_of} left)",
                f"             with more, at worst, {more}",
            ]
        return lines

    @property
    def _asks(self) -> str:
        named = ", ".join(self.parties[:_NAMES]) + (", …" if len(self.parties) > _NAMES else "")
        asked = [self.asked] if self.foreseen.asks_labels else []
        asked += [_COUNTED.get(one, one.replace("_", " ")) for one in self.foreseen.counts]
        if not asked:
            return "nothing more of anybody"
        whom = f"{len(self.parties)} institutions ({named}), {self.quorum} of which must answer"
        return f"{'; '.join(asked)}: of {whom}"

    @property
    def _cost(self) -> list[str]:
        seen, others = self.foreseen, ""
        for unit, after in seen.after.items():
            if unit != seen.unit:
                others += f"; for one {_UNITS[unit]} {epsilon_text(after)}"
        before, after = seen.before[seen.unit], seen.after[seen.unit]
        whom = f"for one {_UNITS[seen.unit]} (δ = {seen.delta:g})"
        if after == before:
            return [f"costs        nothing more: ε stays {epsilon_text(before)} {whom}"]
        left = "" if seen.budget is None else f"; {max(0.0, seen.budget - after):.4g} of {seen.budget:g} would be left"
        spent = f"{epsilon_text(before)} of all studies so far becomes " if before else ""
        return [f"costs        at most: ε = {spent}{epsilon_text(after)} {whom}{others}{left}"]

    @property
    def _reuses(self) -> list[str]:
        seen, reused = self.foreseen, list[str]()
        if seen.decided:
            reused.append(f"{seen.decided} of {seen.wanted} labels that this study has: they stay")
        if seen.taken:
            reused.append(f"{seen.taken} labels of other studies, whose exact sums of these inputs are the only ones")
        if seen.held and not seen.decided:
            first = seen.origin
            whose = "an earlier start" if first is None else f"the study of {first.day}"
            if first is not None and first.study is not None:
                whose = f"the study {first.study} of {first.day}"
            reused.append(f"{seen.held} of {seen.sums} sums, released for {whose}: the same question has one answer")
        if seen.same_again:
            reused.append(
                "so labels and student are those of that study, whatever became of the records since: NO NEW STUDENT. "
                "For sums of the records as they are now, which are paid anew, set budget.study a little lower"
            )
        return reused

    @property
    def _lower(self) -> str:
        """What to do where nobody set the cap."""
        unset = self.most_records == MAX_RECORDS_PER_PARTY
        return ": set budget.records_per_party to what the largest has" if unset else ""

    def lines(self) -> list[str]:
        """The findings as lines for people."""
        pool = f"{self.pool_inputs} inputs" + (" that are drawn from the schema" if self.drawn else "")
        holdout = "none"
        if self.holdout_records is not None:
            points = 100 * within(self.holdout_records)
            holdout = f"{self.holdout_records} records, which tell an accuracy of 80 % to ± {points:.1f} points"
        lines = [
            f"study        {self.study}",
            f"asks         {self._asks}",
            *self._cost,
            *(f"reuses       {one}" for one in self._reuses or ("nothing: this was not asked before",)),
            f"method       {self.choice}",
            f"pool         {pool}; holdout: {holdout}",
        ]
        lines += [f"known        the student of {one.study} is right for {one.right}" for one in self.earlier]
        if self.foreseen.asks:
            lines += self._forecast
        if self.policy:
            lines.append(
                "policy       send these lines to the institutions, and begin when they have them: a policy.toml that "
                "does not bear all sums of the study refuses the first"
            )
            lines += [f"    {line}" for line in self.policy]
        return [*lines, *(f"warning      {warning}" for warning in self.warnings)]
