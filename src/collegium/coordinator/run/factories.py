"""What a run's configuration stands for: its ledger, its mechanism and how its votes are added up."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import ClearSum, Parties, VoteSum
from collegium.coordinator.run.counts_terms import left_for_labels
from collegium.coordinator.settings.kinds import run_kind
from collegium.coordinator.settings.run_config import AUTO, RunConfig
from collegium.errors import ConfigurationError
from collegium.privacy.ledger.entry import Terms as LedgerTerms
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.question import about_all_records
from collegium.protocol.secure_sum import plan_graph
from collegium.protocol.secure_sum.errors import InsufficientPlan
from collegium.protocol.secure_sum.groups import FEWEST_GROUPS, plan_groups, plan_without
from collegium.protocol.secure_sum.plan import COMPLETE_UP_TO
from collegium_accounting.mechanisms import AddedBy, Mechanism, SumMode, create
from collegium_accounting.mechanisms.parameters import fields_of

MOST_NOISE = 12.0
"""Standard deviation of the total's noise, in contributions, times the root of the directions that tell the classes
apart, above which only the first of several sums is by groups. At 11.4 groups in all of them cost one point of 500
records, and a tenth of thousands; at 41, on digits, two to three (docs/research/one-institution.md)."""


def vote_sum_of(config: RunConfig, parties: Parties, signing_keys: Mapping[str, bytes] | None) -> VoteSum:
    """How votes are added up by ``votes.mode``; ConfigurationError when a masked mode has no keys."""
    question = run_kind(config.mechanism.kind).question
    once = not (question.per_stage or question.several_sums)
    return sum_in(config.votes.mode, config, parties, signing_keys, once=once)


@dataclass(frozen=True)
class Division:
    """How many groups the parties of a run are summed in, and why.

    Parameters
    ----------
    groups : 1 where all are summed together.
    why : in words.
    noise : of the mean of all class sums, in units of what all parties add together without groups.
    once : whether only the first of several class sums is by groups, as long as none of them is left out.
    """

    groups: int
    why: str
    noise: float = 1.0
    once: bool = False


def division(config: RunConfig, parties: int) -> Division:
    """How the sums over all records are divided among ``parties`` parties: it follows from public facts.

    Three groups are the fewest of which two outvote one, and more add more noise than they save records. There are none
    where they would be too small for as many colluders as may sit in one. Where their noise costs too much, the first
    of several sums is by groups, and the others are only where it names one of them.

    Raises
    ------
    ConfigurationError
        If the configured number of groups is impossible.
    """
    votes, mechanism = config.votes, config.mechanism.kind
    if not about_all_records(mechanism) or votes.mode != SumMode.MASKED_AND_NOISED:
        if votes.groups not in (AUTO, 1):
            raise ConfigurationError("votes.groups: groups are for sums over all records in the mode masked+noised")
        return Division(1, "groups are for sums over all records that institutions make noisy")
    wanted = FEWEST_GROUPS if isinstance(votes.groups, str) else votes.groups
    if wanted == 1:
        return Division(1, "as configured (votes.groups)")
    together = plan_graph(parties, votes.dropout, votes.collusion, quorum=votes.quorum)
    try:
        named = {str(number): number.to_bytes(32, "big") for number in range(parties)}
        divided = plan_groups(named, wanted, votes.dropout, votes.collusion, votes.quorum)
    except (ConfigurationError, InsufficientPlan) as error:
        why = (
            f"{parties} institutions are too few for {wanted} groups, in each of which {together.colluding} may collude"
        )
        if votes.groups != AUTO:
            raise ConfigurationError(f"votes.groups: {why}: set it to 1") from error
        return Division(1, why)
    weakest = min(group.plan.honest_survivors for group in divided)
    noise = math.sqrt(together.honest_survivors / weakest)
    if votes.groups == AUTO:
        if config.budget.unit == "party":
            return Division(1, "where institutions are protected as a whole, groups would add too much noise")
        classes, of_mean = len(config.task.classes), math.sqrt(parties / weakest / config.sums_in_mean)
        sigma = configured_mechanism(config).noise_votes * of_mean
        if sigma * math.sqrt(classes - 1.0) > MOST_NOISE:
            told = f"the noise of groups, {sigma:.3g} contributions for {classes} classes, costs too much accuracy"
            if (sums := config.class_sums) == 1:
                return Division(1, told)
            # Where networks learn from the first sum, the classes follow from the second alone.
            of_mean = 1.0 if config.networks_learn else math.sqrt(sums / (sums - 1.0 + noise**-2))
            return Division(wanted, f"{wanted} groups in the first sum alone, as {told}", of_mean, once=True)
    return Division(wanted, f"{wanted} groups, each summed by itself: no institution decides the result", noise)


def sum_in(
    mode: str, config: RunConfig, parties: Parties, signing_keys: Mapping[str, bytes] | None, *, once: bool = False
) -> VoteSum:
    """How counts of any kind are added up in this mode; see `vote_sum_of`.

    ``once`` : there is one sum about each input. Without the parties' noise that may be over a sparse graph, at the
    price that inputs cannot be asked about again where their round fails while it is opened: a large roster has one for
    that reason.
    """
    votes = config.votes
    if mode == SumMode.CLEAR:
        return ClearSum(parties)
    if signing_keys is None:
        raise ConfigurationError(f"votes.mode = {mode!r} needs the parties' signing keys: give the roster")
    noised = mode == SumMode.MASKED_AND_NOISED
    complete = not noised and not (once and len(signing_keys) > COMPLETE_UP_TO)
    plan = plan_graph(len(signing_keys), votes.dropout, votes.collusion, quorum=votes.quorum, complete=complete)
    together = MaskedSum(parties, config.name, signing_keys, plan, noised)
    if not noised or (found := division(config, len(signing_keys))).groups == 1:
        return together
    fractions = found.groups, votes.dropout, votes.collusion, votes.quorum
    divided, rest = plan_groups(signing_keys, *fractions), plan_without(signing_keys, *fractions)
    return replace(together, divided=divided, rest=rest, once=found.once)


def configured_mechanism(config: RunConfig) -> Mechanism:
    """What the task and the section of its kind of question decide is filled in where it is a parameter."""
    classes = len(config.task.classes)
    decided = {"classes": classes, "labels": classes} | run_kind(config.mechanism.kind).decided(config)
    fields = fields_of(config.mechanism.kind)
    known = {name: value for name, value in decided.items() if name in fields and value is not None}
    given, budget = config.mechanism.parameters | known, config.budget
    completed = config.mechanism.kind.within_budget(given, left_for_labels(config), budget.delta)
    return create(config.mechanism.name, **completed)


def open_ledger(
    config: RunConfig, mechanism: Mechanism, added: AddedBy, file: Path, signer: Ed25519PrivateKey | None
) -> Ledger:
    """The ledger at ``file``, made there if there is none, with the configuration's terms in force.

    ``added`` is who adds the noise. Raises LedgerCorrupt, StorageError, and ConfigurationError where the terms cannot
    follow those that the ledger holds.
    """
    budget, teachers = config.budget, config.teachers
    return Ledger.open(
        file,
        signer=signer,
        delta=budget.delta,
        terms=LedgerTerms(
            unit=budget.unit,
            votes_per_unit={budget.unit: 1} if teachers is None else {"record": 1, "party": teachers.per_party},
            adjacency=mechanism.unit(1).adjacency.value,
            noise="seeded" if config.seed is not None else "parties" if added.parties else "system",
            honest_survivors=added.honest_survivors,
            fixed_voters=run_kind(config.mechanism.kind).question.fixed_voters,
            epsilon_budget=budget.epsilon,
            mechanism={"name": mechanism.name, "bound": budget.bound, **mechanism.parameters()},
            source=mechanism.source,
        ),
        name=config.name,
        budget_setting="budget.epsilon",
    )


def ledger_id(ledger: Ledger) -> str:
    """The first entry's digest: it holds the time, so that a ledger made afresh has another name."""
    return ledger.identity().hex()[:32]
