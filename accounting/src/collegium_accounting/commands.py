"""`account`, `plan` and `audit`: the accountant at the command line, as `collegium-accounting` and in `collegium`."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from collegium_accounting.analysis import audit as auditing
from collegium_accounting.analysis import planning
from collegium_accounting.analysis.account import PrivacyReport
from collegium_accounting.analysis.account import account as account_for
from collegium_accounting.analysis.epsilons import Bound, planned_charges
from collegium_accounting.errors import ConfigurationError
from collegium_accounting.extras import of_distribution
from collegium_accounting.mechanism_options import MechanismCommand, mechanism_options
from collegium_accounting.mechanisms import AddedBy, Adjacency, Noise, SeededNoise, SystemNoise, create, mechanism_named
from collegium_accounting.mechanisms.parameters import fields_of
from collegium_accounting.renyi import PAPER_ORDERS, WIDE_ORDERS, Conversion, check_orders
from collegium_accounting.terminal import numbers, on_one_thread

app = typer.Typer(no_args_is_help=True, add_completion=False)
# Typer makes an option of each parameter of a command.

_ORDERS = {"paper": PAPER_ORDERS, "wide": WIDE_ORDERS}


MechanismName = Annotated[str, typer.Option("--mechanism", "-m", help="lnmax, gnmax, confident-gnmax, knn, …")]
PrivacyUnit = Annotated[Literal["record", "party"], typer.Option(help="Whose data the ε is about.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command(
    cls=MechanismCommand,
    epilog="Examples: PROGRAM account -m lnmax --gamma 0.05 --votes votes.npy --delta 1e-5 --json;  "
    "PROGRAM account -m gnmax --sigma 40 --queries 1000 --delta 1e-5",
)
@on_one_thread
def account(
    context: typer.Context,
    mechanism: MechanismName,
    delta: Annotated[float, typer.Option(help="The δ of the guarantee.")] = 1e-5,
    votes: Annotated[Path | None, typer.Option(help="Vote counts, one row per query: .npy, .npz, .csv.")] = None,
    queries: Annotated[int | None, typer.Option(min=0, help="The number of queries, in place of --votes.")] = None,
    answered: Annotated[int | None, typer.Option(help="Those that passed a threshold test.")] = None,
    orders: Annotated[str, typer.Option(help="The Rényi orders: paper, wide, or a list such as 1.5,2,8.")] = "wide",
    conversion: Annotated[Conversion, typer.Option(help="How to convert to (ε, δ).")] = Conversion.IMPROVED,
    unit: PrivacyUnit = "record",
    teachers_per_party: Annotated[int, typer.Option(min=1, help="Votes that one party casts.")] = 1,
    adjacency: Annotated[
        Adjacency | None,
        typer.Option(help="Neighbours: one vote moves, or one comes or goes; by default the mechanism's own."),
    ] = None,
    honest_survivors: Annotated[
        int,
        typer.Option(min=0, help="Where parties add the noise: honest ones in any sum at least."),
    ] = 0,
    bound: Annotated[Bound, typer.Option(help="The exact accountant, or published bounds.")] = "exact",
    classes: Annotated[int | None, typer.Option(help="The number of classes; two cost less.")] = None,
    loss_distribution: Annotated[
        bool, typer.Option("--loss-distribution", help="Also the value by privacy loss distributions.")
    ] = False,
    publish: Annotated[
        float | None,
        typer.Option(min=1.0, help="Release a publishable data-dependent ε at this order, fixed before the votes."),
    ] = None,
    queries_chosen: Annotated[
        Literal["beforehand", "by-labels"] | None,
        typer.Option(help="With --publish: whether any label that was released decided which query came later."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the ε of a plan (--queries), or of saved votes (--votes, collegium-reproduction), by every analysis."""
    counts = None
    if votes is not None:
        counts = of_distribution("--votes", "collegium_reproduction.vote_files").read_votes(votes)
    given = mechanism_options(context)
    if classes is not None and "classes" in fields_of(mechanism_named(mechanism)):
        given["classes"] = classes
    count = (queries or 0) if counts is None else len(counts)
    kind, added = mechanism_named(mechanism), AddedBy(honest_survivors)
    described = create(mechanism, **kind.completed(given, delta=delta, queries=count))
    if (queries is None) == (counts is None) and not (described.charged_once and counts is None):
        raise ConfigurationError("say what to account for: either --queries N or --votes FILE")
    if publish is not None and counts is None:
        raise ConfigurationError("--publish needs --votes; the data-independent ε may be published as it is")
    report = account_for(
        described,
        queries=queries,
        votes=counts,
        delta=delta,
        answered=answered,
        unit=unit,
        teachers_per_party=teachers_per_party,
        adjacency=adjacency,
        added=added,
        bound=bound,
        classes=classes,
        orders=_ORDERS.get(orders) or check_orders(numbers(orders, "orders")),
        conversion=conversion,
    )
    published, by_loss = None, None
    if publish is not None and counts is not None:
        smooth = of_distribution("--publish", "collegium_reproduction.smooth")
        published = smooth.publishable_epsilon(
            described, counts, publish, delta, conversion, report.unit, queries_chosen=queries_chosen
        )
    if loss_distribution:
        losses = of_distribution("--loss-distribution", "collegium_reproduction.loss_distributions")
        charges = planned_charges(described, report.unit, report.queries, answered, added)
        by_loss = losses.loss_distribution_epsilon(charges, delta)
        if losses.too_large(charges, delta):
            why = f"no loss distribution is computed where the published bound is above ε = {losses.LARGEST:g}"
            report = replace(report, notes=(why, *report.notes))
    shown = report.as_dict() | {"unit": unit, "epsilon_data_independent_pld": by_loss}
    if published is not None:
        shown["epsilon_publishable"] = published
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        return
    _print_report(shown, report)
    if published is not None:
        smaller = published < report.epsilon
        worth = "" if smaller else " It is no smaller than the data-independent one: publish that."
        Console().print(
            f"Publishable data-dependent ε: {published:.4f}.{worth} Release it once: each run "
            "draws fresh noise and costs again.",
            highlight=False,
        )


@app.command(
    cls=MechanismCommand,
    epilog="Examples: PROGRAM plan --epsilon 1 --classes 10;  "
    "PROGRAM plan --epsilon 2 --delta 1e-5 --teachers 250 --classes 10 --gaps 0.8,0.6,0.3",
)
@on_one_thread
def plan(
    context: typer.Context,
    epsilon: Annotated[float, typer.Option(help="The ε that the whole plan may cost.")],
    teachers: Annotated[
        int | None, typer.Option(help="The number of teachers of all parties. Without it: class sums, the default.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The δ of the guarantee.")] = 1e-5,
    classes: Annotated[int, typer.Option(help="The number of classes.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Class sums that are released, each with this noise.")] = 1,
    gaps: Annotated[str, typer.Option(help="Expected gaps, as shares of the teachers, separated by commas.")] = "0.75",
    queries: Annotated[int | None, typer.Option(help="The number of queries. Without it: as many as fit.")] = None,
    agreement: Annotated[float, typer.Option(help="Share of labels that should name the majority class.")] = 0.95,
    mechanism: Annotated[str, typer.Option("--mechanism", "-m", help="The mechanism to plan for, or all.")] = "all",
    unit: PrivacyUnit = "record",
    teachers_per_party: Annotated[int, typer.Option(min=1, help="Votes that one party casts.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the trade-off into this file (.png, .svg, .pdf).")] = None,
    as_json: AsJson = False,
) -> None:
    """Propose the noise of class sums for a target (ε, δ); with --teachers, of their votes for the expected gaps.

    How many parties may be away or collude, and of how many the noise counts, `collegium provision --check` says.
    """
    given = mechanism_options(context)
    if teachers is None:
        chosen = planning.plan(
            epsilon,
            delta=delta,
            classes=classes,
            rounds=rounds,
            queries=queries,
            mechanism=None if mechanism == "all" else mechanism,
        )
        if as_json:
            shown = {"epsilon": epsilon, "delta": delta, "best": asdict(chosen)}
            typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        else:
            sums = "one sum labels" if rounds == 1 else f"{rounds} sums label"
            typer.echo(f"{chosen} at δ = {delta:g}; {sums} the whole pool")
        return
    if mechanism == "all" and given:
        raise ConfigurationError(
            f"--{next(iter(given)).replace('_', '-')} belongs to one mechanism: name the mechanism with -m"
        )
    if plot is not None:
        planning.pyplot()  # what is not installed shows before the search, which takes its time
    votes_moved = teachers_per_party if unit == "party" else 1
    target = planning.Target(epsilon, delta, teachers, classes, numbers(gaps, "gaps"), votes_moved, queries)
    found = planning.choices(None if mechanism == "all" else mechanism, target, given)
    chosen = planning.settled(planning.best(found, agreement), target)
    if plot is not None:
        planning.draw(found, chosen, target, plot)
    if as_json:
        shown = {
            "epsilon": epsilon,
            "delta": delta,
            "unit": unit,
            "votes_per_unit": votes_moved,
            "best": asdict(chosen),
            "choices": [asdict(choice) for choice in found],
        }
        typer.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        return
    table = Table(title=f"Plans within ε = {epsilon:g} at δ = {delta:g} ({unit} level)")
    for heading in ("mechanism", "parameters", "queries", "labels", "ε", "majority, %"):
        table.add_column(heading, justify="left" if heading in ("mechanism", "parameters") else "right")
    for choice in sorted(found, key=lambda one: ((one.agreement or 0.0) < agreement, -(one.correct or 0.0)))[:15]:
        mark = ""
        if (choice.mechanism, choice.parameters) == (chosen.mechanism, chosen.parameters):
            choice, mark = chosen, " ←"  # the others are compared by the published bound, which affords fewer queries
        table.add_row(
            choice.mechanism + mark,
            _parameters(choice.parameters),
            f"{choice.queries:,}",
            f"{choice.answered:,}",
            f"{choice.epsilon:.3f}",
            f"{100 * (choice.agreement or 0.0):.2f}",
        )
    Console().print(table)
    Console().print(f"Best: {chosen.mechanism} with {_parameters(chosen.parameters)}, {chosen.queries:,} queries")


@app.command(
    cls=MechanismCommand,
    epilog="Examples: PROGRAM audit -m gnmax --sigma 40 --runs 20000000 --seed 1;  PROGRAM audit --run consortium.toml",
)
@on_one_thread
def audit(
    context: typer.Context,
    mechanism: Annotated[str | None, typer.Option("--mechanism", "-m", help="lnmax, gnmax, class-sums, …")] = None,
    delta: Annotated[float, typer.Option(help="The δ at which the stated ε is tested.")] = 1e-5,
    teachers: Annotated[int, typer.Option(help="The number of votes per query.")] = 250,
    classes: Annotated[int, typer.Option(help="The number of classes.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Queries per run, each chosen after the answers before it.")] = 40,
    runs: Annotated[int, typer.Option(min=1_000_000, help="Runs on each of two neighbours.")] = 1_000_000,
    failure: Annotated[float, typer.Option(help="The probability with which the measured bound may be wrong.")] = 1e-6,
    seed: Annotated[
        int | None, typer.Option(help="Seed of reproducible noise of the same law, which is drawn 100 times faster.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="In place of a mechanism, a TOML file: its whole run is rehearsed, once.")
    ] = None,
    canaries: Annotated[int, typer.Option(min=2, help="Records that are in the rehearsal by a coin (--run).")] = 3000,
    processes: Annotated[bool, typer.Option("--processes", help="Real party processes, over TLS (--run).")] = False,
    data_root: Annotated[Path | None, typer.Option(help="Folder of public data files (--run).")] = None,
    as_json: AsJson = False,
) -> None:
    """Attack a mechanism, or a whole run, as implemented; fail if the lower bound on ε exceeds the stated ε."""
    if run is not None:
        show = of_distribution("--run", "collegium.simulations.run_audit").show
        show(run, canaries, processes=processes, data_root=data_root, as_json=as_json)
        return
    if mechanism is None:
        raise ConfigurationError("name a mechanism (--mechanism), or a configuration whose run is audited (--run)")
    kind = mechanism_named(mechanism)
    given = mechanism_options(context)
    if "classes" in fields_of(kind):
        given["classes"] = classes
    described = create(mechanism, **kind.completed(given, delta=delta, queries=rounds))
    noise: Noise = SystemNoise() if seed is None else SeededNoise(seed)
    with Console(stderr=True).status("planning the attack") as status:
        found = auditing.audit(
            described,
            noise,
            teachers=teachers,
            classes=classes,
            rounds=rounds,
            runs=runs,
            delta=delta,
            failure_probability=failure,
            progress=lambda done: status.update(f"{done:,} of {runs:,} runs"),
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


def _parameters(parameters: dict[str, float | int | str]) -> str:
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in parameters.items()
    )


_ROWS = {
    "epsilon": "data-independent",
    "epsilon_attained": "data-independent, forced by an adversary",
    "epsilon_data_independent_classic": "data-independent, published bound",
    "epsilon_data_independent_moments": "data-independent, published bound, moments λ ≤ 8",
    "epsilon_data_independent_pld": "data-independent, loss distribution",
    "epsilon_paper_bound": "from the votes, the paper's bound (secret)",
    "epsilon_exact": "from the votes, exact, continuous noise (secret)",
    "epsilon_exact_released": "from the votes, exact, noise as released (secret)",
}


def _print_report(shown: dict[str, Any], report: PrivacyReport) -> None:
    queries = f"{shown['queries']:,} {'query' if shown['queries'] == 1 else 'queries'}"
    title = f"{shown['mechanism']} ({_parameters(shown['parameters'])}), {queries}, "
    Console().print(title + f"{shown['unit']} level, δ = {shown['delta']:g}", highlight=False)
    table = Table()
    table.add_column("analysis")
    table.add_column("ε", justify="right")
    others = {key: key.removeprefix("epsilon_").replace("_", " ") for key in report.other}
    for key, words in (_ROWS | others).items():
        value = shown.get(key)
        if value is not None:
            table.add_row(words, value if isinstance(value, str) else f"{value:.4f}")
    Console().print(table)
    for note in report.notes:
        Console().print(f"Note: {note}.")
