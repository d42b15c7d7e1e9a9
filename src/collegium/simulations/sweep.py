"""What one's own table would give: the default among virtual parties in this process, for one ε or for several."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import Progress

from collegium.coordinator.students import fit_student
from collegium.data.examples import examples_of
from collegium.data.task import Task
from collegium.errors import ConfigurationError, DataError
from collegium.limits import MAX_PARTIES
from collegium.parties.policy import PolicyConfig
from collegium.simulations.local import Coordinator, LocalParties
from collegium_accounting.analysis.planning import picture

OnRun = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""


# One call with names for a notebook.
def simulate(  # noqa: PLR0913 -- each name has its default
    frame: pd.DataFrame,
    label: str,
    *,
    epsilon: float | Sequence[float] = 1.0,
    delta: float = 1e-5,
    parties: int = 5,
    pool: float = 0.3,
    holdout: float = 0.2,
    repeats: int = 3,
    out: Sequence[str] = (),
    seed: int = 0,
    plot: str | Path | None = None,
    progress: OnRun | None = None,
) -> pd.DataFrame:
    """How good the default would be on a table: its rows are dealt to parties, a pool and a test, once for each ε.

    Nothing of it is a release: the noise follows from the seed, and ranges and categories of the columns from all rows.

    Parameters
    ----------
    frame : pandas.DataFrame
        The records; columns of numbers, dates and texts.
    label : str
        The column of the class.
    epsilon : float or sequence of float
        The budgets to try.
    delta : float
        δ of the guarantee, in (0, 1).
    parties : int
        Among so many institutions the records are divided, at random.
    pool, holdout : float
        The shares of the rows that are the public pool, and that the student is measured on.
    repeats : int
        Runs for each ε, each with another division of the rows and other noise.
    out : sequence of str
        Columns that are no inputs, such as a patient's number.
    seed : int
        Of the divisions and of the noise: the same seed gives the same frame.
    plot : str or Path, optional
        A picture of accuracy against ε is drawn into this file.
    progress : callable, optional
        Called with the runs done and all; without it a bar is shown where standard error is a terminal.

    Returns
    -------
    pandas.DataFrame
        A row for each ε, ascending: ``epsilon``, ``accuracy`` (the mean over the repeats of the share of held-out rows
        that are right), ``deviation`` (its standard deviation over them), ``balanced`` (the mean over the classes),
        ``constant`` (always the most frequent class), ``pooled`` (a random forest on all records at once, without
        privacy) and ``records``.

    Raises
    ------
    DataError
        If the frame has no such column, or too few rows for the division.
    ConfigurationError
        If a number is out of range.

    Examples
    --------
    >>> import collegium as cg
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"length": range(300), "tall": ["yes" if one > 150 else "no" for one in range(300)]})
    >>> found = cg.simulate(frame, "tall", epsilon=2.0, repeats=1)
    >>> bool(found.accuracy[0] > 0.8)
    True
    """
    budgets = np.unique(np.atleast_1d(np.asarray(epsilon, dtype=np.float64)))
    if not len(budgets) or not (budgets > 0).all() or not 3 <= parties <= MAX_PARTIES or repeats < 1:
        raise ConfigurationError(f"a simulation needs epsilon > 0, 3 to {MAX_PARTIES} parties, and a repeat at least")
    if not (0 < pool < 1 and 0 < holdout < 1 and pool + holdout < 1):
        raise ConfigurationError("pool and holdout are shares of the rows, and leave some for the parties")
    task = Task.from_frame(frame, label=label, out=out)
    known = frame[frame[label].notna()]
    x = examples_of(known, known[label].to_numpy(), task)
    if len(x) * min(pool, holdout, (1 - pool - holdout) / parties) < 2:
        raise DataError(f"{len(x)} labelled rows are too few to divide among {parties} parties, a pool and a test")
    labels = x.labels()
    rows: list[dict[str, float]] = []
    with _bar(progress) as told:
        for repeat in range(repeats):
            order = np.random.default_rng([seed, repeat]).permutation(len(x))
            of_pool, of_test, others = np.split(order, [round(pool * len(x)), round((pool + holdout) * len(x))])
            truth = labels[of_test]
            forest = fit_student("random-forest", x.x, others, labels[others], task, seed=seed, device="cpu")
            shared = {
                "constant": float((truth == np.bincount(labels[others]).argmax()).mean()),
                "pooled": float((forest.predict(x.x[of_test]) == truth).mean()),
                "records": float(len(others)),
            }
            records = {f"party-{n}": (x.x[others[n::parties]], labels[others[n::parties]]) for n in range(parties)}
            for budget in budgets.tolist():
                local = LocalParties(records, task, policy=_POLICY, seed=seed + repeat, device="cpu")
                settings = {"epsilon": budget, "delta": delta}
                coordinator = Coordinator(local, x.x[of_pool], device="cpu", progress=lambda step: None, **settings)
                given = np.unique(coordinator.label())
                # Where noise gives all inputs one class, there is nothing to learn, and whoever uses it names that.
                if len(given) == 1:
                    predicted = np.full(len(truth), given[0])
                else:
                    predicted = coordinator.fit().student.predict(x.x[of_test])
                right = predicted == truth
                balanced = np.mean([right[truth == one].mean() for one in np.unique(truth)])
                rows.append({"epsilon": budget, "accuracy": right.mean(), "balanced": float(balanced), **shared})
                told(len(rows), repeats * len(budgets))
    by_budget = pd.DataFrame(rows).groupby("epsilon")
    table = by_budget.mean()
    table.insert(1, "deviation", by_budget["accuracy"].std(ddof=0))
    table = table.reset_index()
    if plot is not None:
        draw(table, Path(plot))
    return table


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw what `simulate` found; ConfigurationError where the file cannot be written."""
    with _axes(path) as axes:
        axes.errorbar(
            table["epsilon"], 100 * table["accuracy"], 100 * table["deviation"], marker="o", label="class sums"
        )
        axes.axhline(100 * table["pooled"].mean(), color="grey", linestyle="--", label="a forest on all records")
        axes.axhline(
            100 * table["constant"].mean(), color="grey", linestyle=":", label="always the most frequent class"
        )
        axes.legend()


def draw_runs(accuracies: Mapping[float, float | None], path: Path) -> None:
    """Draw the accuracy of a student by the ε of its run; ConfigurationError where the file cannot be written."""
    known = {one: 100 * accuracy for one, accuracy in accuracies.items() if accuracy is not None}
    if not known:
        raise ConfigurationError("there is no accuracy to draw: name labelled records as [holdout]")
    with _axes(path) as axes:
        axes.plot(list(known), list(known.values()), marker="o")


@contextmanager
def _axes(path: Path) -> Iterator[Any]:
    with picture(path, (6.0, 4.0)) as axes:
        yield axes
        axes.set_xscale("log")
        axes.set_xlabel("ε of one record (smaller protects more)")
        axes.set_ylabel("held-out rows that are right, %")


_POLICY = PolicyConfig(minimum_noise_votes=0.0, epsilon=1e6, seeded_noise=True)
"""Of parties that are none: what is summed here stays in this process."""


@contextmanager
def _bar(progress: OnRun | None) -> Iterator[OnRun]:
    """Who is told of the runs: ``progress``, or a bar at a terminal."""
    if progress is not None:
        yield progress
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("simulating", total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
