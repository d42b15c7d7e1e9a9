"""What a study says before it starts: what it asks of whom, what that costs, what it reuses, how good it may get.

Everything here is public: settings, the pool, and what was released. `collegium provision --check` and every start of a
run print these lines.
"""

from dataclasses import dataclass

from collegium.coordinator.run.colluders import Colluders
from collegium.coordinator.run.factories import Division
from collegium.coordinator.run.foreseen import Foreseen
from collegium.limits import MAX_RECORDS_PER_PARTY
from collegium.models.pool_spectrum import CLEAR, DROWNED
from collegium.privacy.analysis.evaluation import within
from collegium.protocol.secure_sum.plan import GraphPlan

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
    needed : records (parties, where the unit is the party) with which class sums of all parties tell the classes
        apart; None for other mechanisms.
    measured : records (or parties) from which on the institutions' evaluation states an accuracy of 80 % to ± 5 points:
        where all parties are there, and where one may be away, if that is more noise; empty where there is none.
    graph : of the secure sum, who shares with how many and what it bears; None where votes are summed in the clear. Of
        groups, that of the smallest.
    division : how the institutions are summed by groups, and why; None for other mechanisms than class sums.
    most_records : the cap on the records of one institution.
    colluders : what ε becomes with more colluding parties than planned; empty where the coordinator adds the noise.
    policy : of a study that asks for anything, the lines of policy.toml that agree to it.
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
    measured: tuple[int, ...]
    unit: str
    graph: GraphPlan | None
    division: Division | None
    most_records: int
    colluders: tuple[Colluders, ...]
    policy: tuple[str, ...]
    warnings: tuple[str, ...]

    def lines(self) -> list[str]:
        """The findings as lines for people, by screen.txt.j2."""
        from collegium.coordinator.report.page import rendered

        asks = [self.asked] if self.foreseen.asks_labels else []
        asks += [_COUNTED.get(one, one.replace("_", " ")) for one in self.foreseen.counts]
        text = rendered(
            "coordinator.run",
            "screen.txt.j2",
            vars(self),
            seen=self.foreseen,
            asks=asks,
            uncapped=self.most_records == MAX_RECORDS_PER_PARTY,
            within=within(self.holdout_records) if self.holdout_records else None,
            drowned=DROWNED,
            clear=CLEAR,
        )
        return text.splitlines()
