"""`collegium account`, `plan` and `audit`: the accountant at the command line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from collegium.errors import ConfigurationError, UnsupportedAccounting
from collegium.privacy.analysis import audit as auditing
from collegium.privacy.analysis import planning
from collegium.privacy.analysis.account import AccountQuery, PrivacyReport, state
from collegium.privacy.analysis.smooth import SmoothRelease, envelope_for
from collegium.privacy.analysis.vote_files import read_votes
from collegium.privacy.mechanisms import (
    Adjacency,
    IntArray,
    Mechanism,
    Noise,
    SeededNoise,
    SystemNoise,
    Unit,
    create,
)
from collegium.privacy.mechanisms.gnmax import GNMax
from collegium.privacy.mechanisms.lnmax import LNMax
from collegium.privacy.mechanisms.nzc import NearZeroCost
from collegium.privacy.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, RenyiCurve, check_orders
from collegium.protocol.secure_sum.plan import SMALLEST_SUM, GraphPlan, plan_graph

app = typer.Typer(no_args_is_help=True, add_completion=False)

_ORDERS = {"paper": PAPER_ORDERS, "wide": WIDE_ORDERS}


class PrivacyUnit(StrEnum):
    """Whose data the ε is about."""

    RECORD = "record"
    PARTY = "party"


class Bound(StrEnum):
    """Which data-independent bound is the headline."""

    ARGMAX = "argmax"
    CLASSIC = "classic"


MechanismName = Annotated[str, typer.Option("--mechanism", "-m", help="lnmax, gnmax, confident-gnmax, knn, …")]
Gamma = Annotated[
    float | None, typer.Option(help="Inverse scale of Laplace or Gumbel noise (lnmax, exponential, nzc).")
]
Sigma = Annotated[float | None, typer.Option(help="Deviation of Gaussian noise (gnmax, …-knn, multilabel, nzc).")]
Sigma1 = Annotated[float | None, typer.Option(help="Noise of the threshold test.")]
Sigma2 = Annotated[float | None, typer.Option(help="Noise of the release.")]
Threshold = Annotated[float | None, typer.Option(help="Votes that the largest count must reach.")]
K = Annotated[int | None, typer.Option("--k", help="Neighbours that vote (knn).")]
Classes = Annotated[int | None, typer.Option(help="Number of classes (knn, plan, audit).")]
SamplingRate = Annotated[float | None, typer.Option(help="Probability with which a record is sampled (…knn).")]
Participations = Annotated[int | None, typer.Option(help="Votes that one record may cast (individual-knn).")]
Constant = Annotated[float | None, typer.Option(help="What is added to the largest count (nzc).")]
PerQuery = Annotated[float | None, typer.Option("--epsilon", help="ε of one query (ptr).")]
Tau = Annotated[float | None, typer.Option(help="L1 bound of one voter's votes (multilabel, multilabel-knn).")]
Labels = Annotated[int | None, typer.Option(help="Number of labels (multilabel-knn).")]
Voters = Annotated[int | None, typer.Option(help="Number of teachers (multilabel).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(
    epilog="Examples: collegium account -m lnmax --gamma 0.05 --votes votes.npy --delta 1e-5 --json;  "
    "collegium account -m gnmax --sigma 40 --queries 1000 --delta 1e-5"
)
def account(
    mechanism: MechanismName,
    delta: Annotated[float, typer.Option(help="δ of the guarantee.")] = 1e-5,
    votes: Annotated[Path | None, typer.Option(help="Vote counts [queries, classes]: .npy, .npz or .csv.")] = None,
    queries: Annotated[int | None, typer.Option(help="Number of queries, in place of votes.")] = None,
    gamma: Gamma = None,
    sigma: Sigma = None,
    sigma1: Sigma1 = None,
    sigma2: Sigma2 = None,
    threshold: Threshold = None,
    k: K = None,
    classes: Classes = None,
    sampling_rate: SamplingRate = None,
    screened: Annotated[int | None, typer.Option(help="Queries that were screened (knn).")] = None,
    answered: Annotated[int | None, typer.Option(help="Queries that passed the threshold.")] = None,
    participations: Participations = None,
    constant: Constant = None,
    epsilon: PerQuery = None,
    tau: Tau = None,
    voters: Voters = None,
    labels: Labels = None,
    orders: Annotated[str, typer.Option(help="paper, wide, or a list such as 1.5,2,8.")] = "wide",
    conversion: Annotated[Conversion, typer.Option(help="From Rényi to (ε, δ).")] = Conversion.IMPROVED,
    unit: Annotated[PrivacyUnit, typer.Option(help="Whose data the ε is about.")] = PrivacyUnit.RECORD,
    teachers_per_party: Annotated[int, typer.Option(min=1, help="Votes that one party casts.")] = 1,
    adjacency: Annotated[Adjacency, typer.Option(help="A vote moves, or comes and goes.")] = Adjacency.REPLACE,
    bound: Annotated[Bound, typer.Option(help="Certified argmax bound, or the published one.")] = Bound.ARGMAX,
    publish: Annotated[
        float | None,
        typer.Option(min=1.0, help="Release a publishable data-dependent ε at this order, fixed before the votes."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """ε of a plan (--queries) or of saved votes (--votes), by every analysis that applies."""
    _check_delta(delta)
    counts = read_votes(votes) if votes is not None else None
    asked = _queries(queries, screened, participations, None if counts is None else counts.shape[0])
    given = {
        "gamma": gamma,
        "sigma": sigma,
        "sigma1": sigma1,
        "sigma2": sigma2,
        "threshold": threshold,
        "k": k,
        "classes": classes,
        "sampling_rate": sampling_rate,
        "participations": participations,
        "constant": constant,
        "epsilon": epsilon,
        "tau": tau,
        "voters": voters,
        "labels": labels,
    }
    described = _described(mechanism, given, delta, asked)
    question = AccountQuery(
        mechanism=described,
        queries=asked,
        delta=delta,
        orders=_orders(orders),
        conversion=conversion,
        unit=Unit(teachers_per_party if unit is PrivacyUnit.PARTY else 1, adjacency),
        answered=answered,
        classic=bound is Bound.CLASSIC,
    )
    statement = state(question, counts)
    shown = statement.as_dict()
    shown["unit"] = unit.value
    if isinstance(described, NearZeroCost):
        shown["epsilon_claimed"] = described.claimed_epsilon(asked, delta, question.orders)
        shown["epsilon_honest"] = "inf" if counts is None or math.isinf(described.honest_epsilon(counts)) else None
    if publish is not None:
        shown["epsilon_publishable"] = _publishable(described, counts, publish, delta, conversion)
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
    else:
        _print_statement(shown, statement)
        if publish is not None:
            worth = (
                ""
                if shown["epsilon_publishable"] < statement.epsilon_data_independent
                else (" It is no smaller than the data-independent one: publish that.")
            )
            Console().print(
                f"Publishable data-dependent ε: {shown['epsilon_publishable']:.4f}.{worth} Release it once: each run "
                "draws fresh noise and costs again.",
                highlight=False,
            )


@app.command(epilog="Example: collegium plan --epsilon 2 --delta 1e-5 --teachers 250 --classes 10 --gaps 0.8,0.6,0.3")
def plan(
    epsilon: Annotated[float, typer.Option(help="Target ε.")],
    teachers: Annotated[int, typer.Option(help="Number of teachers.")],
    delta: Annotated[float, typer.Option(help="δ of the guarantee.")] = 1e-5,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    gaps: Annotated[str, typer.Option(help="Expected gaps as shares of the teachers, comma-separated.")] = "0.75",
    queries: Annotated[int | None, typer.Option(help="Fixed number of queries; by default as many as fit.")] = None,
    agreement: Annotated[float, typer.Option(help="Share of labels that should name the majority class.")] = 0.95,
    mechanism: Annotated[str, typer.Option("--mechanism", "-m", help="One mechanism, or all.")] = "all",
    unit: Annotated[PrivacyUnit, typer.Option(help="Whose data the ε is about.")] = PrivacyUnit.RECORD,
    teachers_per_party: Annotated[int, typer.Option(min=1, help="Votes that one party casts.")] = 1,
    parties: Annotated[int | None, typer.Option(help="Number of parties; teachers / teachers per party.")] = None,
    dropout: Annotated[float, typer.Option(help="Share of the parties that may drop out of a sum.")] = 0.3,
    collusion: Annotated[float, typer.Option(help="Share of them that may collude with the coordinator.")] = 0.1,
    plot: Annotated[Path | None, typer.Option(help="Write the trade-off to this picture (.png, .svg, .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Noise, threshold and number of queries for a target (ε, δ), with the expected gaps."""
    _check_delta(delta)
    names = ("gnmax", "confident-gnmax", "lnmax", "exponential") if mechanism == "all" else (mechanism,)
    votes_moved = teachers_per_party if unit is PrivacyUnit.PARTY else 1
    target = planning.Target(epsilon, delta, teachers, classes, _numbers(gaps, "gaps"), Unit(votes_moved), queries)
    found = [choice for name in names for choice in planning.choices(name, target)]
    chosen = planning.settled(planning.best(found, agreement), target)
    if plot is not None:
        planning.draw(found, chosen, target, plot)
    members = parties if parties is not None else -(-teachers // teachers_per_party)
    graph = plan_graph(members, dropout, collusion) if members >= SMALLEST_SUM else None
    if as_json:
        shown = {
            "epsilon": epsilon,
            "delta": delta,
            "unit": unit.value,
            "votes_per_unit": votes_moved,
            "best": chosen.as_dict(),
            "choices": [choice.as_dict() for choice in found],
            "secure_sum": None if graph is None else asdict(graph) | {"quorum": graph.quorum},
        }
        typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        return
    table = Table(title=f"Plans within ε = {epsilon:g} at δ = {delta:g} ({unit.value} level)")
    for heading in ("mechanism", "parameters", "queries", "labels", "ε", "majority, %"):
        table.add_column(heading, justify="left" if heading in ("mechanism", "parameters") else "right")
    for choice in sorted(found, key=lambda one: (one.agreement < agreement, -one.correct))[:15]:
        mark = ""
        if (choice.mechanism, choice.parameters) == (chosen.mechanism, chosen.parameters):
            choice, mark = chosen, " ←"  # the others are compared by the published bound, which affords fewer queries
        table.add_row(
            choice.mechanism + mark,
            _parameters(choice.parameters),
            f"{choice.queries:,}",
            f"{choice.answered:,}",
            f"{choice.epsilon:.3f}",
            f"{100 * choice.agreement:.2f}",
        )
    Console().print(table)
    Console().print(f"Best: {chosen.mechanism} with {_parameters(chosen.parameters)}, {chosen.queries:,} queries")
    Console().print(_sum_line(members, graph), highlight=False)


@app.command(epilog="Example: collegium audit -m lnmax --gamma 0.05 --teachers 250")
def audit(
    mechanism: MechanismName,
    delta: Annotated[float, typer.Option(help="δ at which the stated ε is tested.")] = 1e-5,
    gamma: Gamma = None,
    sigma: Sigma = None,
    sigma1: Sigma1 = None,
    sigma2: Sigma2 = None,
    threshold: Threshold = None,
    epsilon: PerQuery = None,
    constant: Constant = None,
    teachers: Annotated[int, typer.Option(help="Votes per query.")] = 250,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    runs: Annotated[int, typer.Option(min=1_000_000, help="Runs on each of the two histograms.")] = 1_000_000,
    failure: Annotated[float, typer.Option(help="Probability with which the bound may be wrong.")] = 1e-6,
    seed: Annotated[int | None, typer.Option(help="Use reproducible noise in place of the system's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Empirical lower bound on ε of a mechanism as implemented; fails when it exceeds the stated ε."""
    _check_delta(delta)
    given = {
        "gamma": gamma,
        "sigma": sigma,
        "sigma1": sigma1,
        "sigma2": sigma2,
        "threshold": threshold,
        "epsilon": epsilon,
        "constant": constant,
    }
    noise: Noise = SystemNoise() if seed is None else SeededNoise(seed)
    described = _described(mechanism, given, delta, 1)
    with Console(stderr=True).status(f"running {mechanism} {2 * runs:,} times"):
        found = auditing.audit(
            described,
            noise,
            teachers=teachers,
            classes=classes,
            runs=runs,
            delta=delta,
            failure_probability=failure,
        )
    if as_json:
        typer.echo(json.dumps(found.as_dict(), ensure_ascii=False, allow_nan=False))
    else:
        table = Table(title=f"Audit of {mechanism} ({found.noise} noise)", show_header=False)
        for key, value in found.as_dict().items():
            table.add_row(key.replace("_", " "), str(value))
        Console().print(table)
    if not found.consistent:
        raise typer.Exit(1)


def _publishable(
    mechanism: Mechanism, counts: IntArray | None, order: float, delta: float, conversion: Conversion
) -> float:
    """A data-dependent ε with noise by smooth sensitivity, its own cost and its failure probability included."""
    if counts is None:
        raise ConfigurationError("--publish needs --votes; the data-independent ε may be published as it is")
    if order <= 1.0:
        raise ConfigurationError(f"--publish takes a Rényi order above 1, such as 6; got {order:g}")
    if isinstance(mechanism, GNMax):
        noise, scale = "discrete-gaussian", mechanism.sigma
    elif isinstance(mechanism, LNMax):
        noise, scale = "discrete-laplace", 1.0 / mechanism.gamma
    else:
        raise UnsupportedAccounting(f"--publish knows lnmax and gnmax, not {mechanism.name}")
    released = SmoothRelease().release_epsilon(
        counts, envelope_for(counts, noise, scale, order), order, (order,), delta / 10
    )
    cost = released.ceiling + float(released.charge.values[0])
    return RenyiCurve((order,), np.array([cost]), released.failure).to_epsilon(delta, conversion).epsilon


def _sum_line(members: int, graph: GraphPlan | None) -> str:
    if graph is None:
        return f"Secure sum: not among {members} parties; it needs {SMALLEST_SUM}."
    shape = "all others" if graph.complete else f"{graph.neighbours} others each"
    unless = f" but for {graph.liveness_failure:.0e}" if graph.liveness_failure else ""
    return (
        f"Secure sum among {members} parties: shares with {shape}, any {graph.threshold} open a secret, "
        f"{graph.quorum} must stay. Drop-outs that it bears: {graph.dropped}{unless}; parties that may collude: "
        f"{graph.colluding} but for 2^-{graph.security_bits}."
    )


def _described(name: str, given: dict[str, Any], delta: float, queries: int) -> Mechanism:
    chosen = {key: value for key, value in given.items() if value is not None}
    if name == "ptr":
        # Half of δ pays for unstable winners, spread over the queries; the other half is for the conversion.
        chosen["delta"] = delta / (2 * max(queries, 1))
    if name == "nzc":
        chosen["accept_no_privacy"] = True
    return create(name, **chosen)


def _queries(queries: int | None, screened: int | None, participations: int | None, votes: int | None) -> int:
    said = [value for value in (votes, queries, screened) if value is not None]
    if len(said) > 1:
        raise ConfigurationError("give one of --votes, --queries and --screened")
    if not said and participations is not None:
        return participations
    if not said:
        raise ConfigurationError("say what to account for: --votes FILE, --queries N, or --screened M --answered N")
    if said[0] < 0:
        raise ConfigurationError(f"the number of queries cannot be negative; got {said[0]}")
    return said[0]


def _orders(text: str) -> tuple[float, ...]:
    return _ORDERS[text] if text in _ORDERS else check_orders(_numbers(text, "orders"))


def _numbers(text: str, what: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigurationError(f"--{what} takes numbers separated by commas; got {text!r}") from None


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ConfigurationError(f"delta must lie between 0 and 1; got {delta}")


def _parameters(parameters: dict[str, float | int | str]) -> str:
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in parameters.items()
    )


_ROWS = {
    "epsilon_data_independent": "data-independent",
    "epsilon_data_independent_classic": "data-independent, published bound",
    "epsilon_data_independent_pld": "data-independent, loss distribution",
    "epsilon_paper_bound": "from the votes, the paper's bound (secret)",
    "epsilon_exact": "from the votes, exact, continuous noise (secret)",
    "epsilon_exact_released": "from the votes, exact, noise as released (secret)",
    "epsilon_claimed": "claimed by its authors",
    "epsilon_honest": "honest",
}


def _print_statement(shown: dict[str, Any], statement: PrivacyReport) -> None:
    title = f"{statement.mechanism} ({_parameters(statement.parameters)}), {statement.queries:,} queries, "
    Console().print(title + f"{shown['unit']} level, δ = {statement.delta:g}", highlight=False)
    table = Table()
    table.add_column("analysis")
    table.add_column("ε", justify="right")
    for key, words in _ROWS.items():
        value = shown.get(key)
        if value is not None:
            table.add_row(words, value if isinstance(value, str) else f"{value:.4f}")
    Console().print(table)
    for note in statement.notes:
        Console().print(f"Note: {note}.")
