"""The commands `demo`, `simulate` and `launch`: runs whose parties are all on this machine."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collegium.errors import ConfigurationError
from collegium_accounting.terminal import numbers

if TYPE_CHECKING:
    from collegium.coordinator.run.run_record import RunRecord
    from collegium.simulations.cohort import PreparedRun
    from collegium.simulations.config import SimulationConfig
    from collegium.simulations.progress import RunProgress

app = typer.Typer(add_completion=False)

TO_SEE = """\
What you are about to see: five institutions, each a process with handwritten digits of its own, teach one classifier
over TLS. None shows an image, a model or a sum of its own. The coordinator sees the total under masks alone. It adds
noise, charges a signed ledger, and labels public images. The classifier learns from these, and may be published.
"""
TO_SEE_OF_TEACHERS = """\
What you are about to see: five institutions, each a process with handwritten digits of its own, teach one classifier
over TLS. Each fits ten networks, its teachers, on parts of its images. They vote on public images, and the coordinator
sees the sum of all votes under masks alone. It adds noise, charges a signed ledger, and releases each winner.
"""
SEEN = """
What you have just seen: no image left its institution, and the classifier is as accurate as the table says. ε says
what it may tell of one image: without that image, the odds of any conclusion would differ by a factor of e^ε at most.

Next:
  open {run}/report.html in a browser
  collegium ledger verify {run}    checks every charge
  docs/tutorial.md does the same with your own files, on one machine and on five"""

Config = Annotated[Path, typer.Argument(help="The configuration, a TOML file such as examples/mnist-8.toml.")]
Folder = Annotated[Path | None, typer.Option("--run", help="The run's folder; by default runs/NAME.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder of data files; by default COLLEGIUM_DATA.")]
Queries = Annotated[int | None, typer.Option(min=1, help="How many queries to ask.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of all randomness, noise too: not private.")]
Json = Annotated[bool, typer.Option("--json", help="Print run.json at the end instead of a table.")]


@app.command()
def demo(
    run: Annotated[Path | None, typer.Option(help="The run's folder; by default runs/demo.")] = None,
    teachers: Annotated[
        bool, typer.Option("--teachers", help="Show teachers that vote, in place of sums over all records.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run five institutions as processes: they label public digits together, and a student learns from the labels.

    Nothing is downloaded. Run it again, and it finds everything done.

    Examples:

      collegium demo --run runs/my-demo

      collegium demo --teachers
    """
    from collegium.simulations.party_processes import PartyProcesses

    folder = run or Path("runs") / ("demo-teachers" if teachers else "demo")
    if not as_json:
        typer.echo(TO_SEE_OF_TEACHERS if teachers else TO_SEE)
    with PartyProcesses("torch") as host:  # loads while the run is prepared
        from collegium.simulations.launcher import launch

        drive = partial(launch, host=host)
        run_and_show(demo_settings(teachers=teachers), folder, None, drive, "party processes", as_json=as_json)
    if not as_json:
        typer.echo(SEEN.format(run=folder))


def demo_settings(*, teachers: bool = False) -> "SimulationConfig":
    """What the demo runs: the default configuration on digits, or teachers on the same digits."""
    from importlib.resources import as_file, files

    from collegium.settings import read_toml, validate_config
    from collegium.simulations.config import SimulationConfig

    values: dict[str, object] = {}
    for name in ["digits.toml"] + ["digits-teachers.toml"] * teachers:
        with as_file(files("collegium.simulations") / name) as path:
            values |= read_toml(path)[0]
    return validate_config(values, SimulationConfig, "the demo")


@app.command()
def simulate(
    config: Config,
    run: Folder = None,
    data_root: DataRoot = None,
    queries: Queries = None,
    seed: Seed = None,
    epsilon: Annotated[
        str | None,
        typer.Option(help="Budgets in place of the file's, between commas: a run for each, then a table of all."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw accuracy against ε into this file; with --epsilon.")] = None,
    prepare_only: Annotated[
        bool, typer.Option("--prepare-only", help="Only prepare the folder, for `flwr run .`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run many virtual parties on Flower's simulation engine.

    Run it again, and it goes on where it stopped: fitted teachers, labels and charges are kept. With more queries, only
    the new ones are asked and paid for.

    Examples:

      collegium simulate examples/mnist-250.toml --data-root ~/data

      collegium simulate examples/mnist-250.toml --queries 1000 --run runs/long

      collegium simulate examples/mnist-250.toml --epsilon 0.1,0.3,1 --plot accuracy.svg
    """
    from collegium.data import data_root as find_data_root
    from collegium.simulations.cohort import prepare_run
    from collegium.simulations.config import with_budget
    from collegium.simulations.simulate import simulate as drive

    settings, folder = _asked(config, run, queries, seed)
    root = find_data_root(data_root)
    if plot is not None and epsilon is None:
        raise ConfigurationError("--plot draws accuracy against ε: name several by --epsilon")
    if epsilon is not None:
        folders = {one: folder / f"epsilon-{one:g}" for one in _budgets(epsilon)}
        runs = {one: with_budget(settings, one) for one in folders}
        for one, of_budget in runs.items():
            run_and_show(of_budget, folders[one], root, drive, "virtual parties", as_json=as_json)
        show_budgets(folders, plot, as_json=as_json)
    elif prepare_only:
        prepared = prepare_run(settings, folder, data_root=root)
        typer.echo(flwr_command(prepared.folder, len(prepared.cohort)))
    else:
        run_and_show(settings, folder, root, drive, "virtual parties", as_json=as_json)


@app.command()
def launch(
    config: Config,
    run: Folder = None,
    data_root: DataRoot = None,
    queries: Queries = None,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Run a coordinator and real party processes on this machine, over mutual TLS.

    Run it again after an interruption, and it goes on where it stopped.

    Example: collegium launch examples/mnist-8.toml --data-root ~/data
    """
    from collegium.data import data_root as find_data_root
    from collegium.simulations.launcher import launch as drive

    settings, folder = _asked(config, run, queries, seed)
    run_and_show(settings, folder, find_data_root(data_root), drive, "party processes", as_json=as_json)


def _asked(config: Path, run: Path | None, queries: int | None, seed: int | None) -> "tuple[SimulationConfig, Path]":
    """The configuration with what the command line says instead, and the run's folder."""
    from collegium.settings import read_config
    from collegium.simulations.config import SimulationConfig, with_changes

    settings = with_changes(read_config(config, SimulationConfig), queries=queries, seed=seed)
    return settings, run or Path("runs") / settings.name


def _budgets(text: str) -> list[float]:
    found = sorted(set(numbers(text, "epsilon")))
    if not all(0 < one < math.inf for one in found):
        raise ConfigurationError(f"every ε is above 0; got {text!r}")
    return found


def show_budgets(folders: "Mapping[float, Path]", plot: Path | None, *, as_json: bool) -> None:
    """A table of finished runs by their ε, and a picture of it where one is asked for.

    Parameters
    ----------
    folders : the run of each ε.
    plot : the file of the picture.
    """
    from rich.console import Console
    from rich.table import Table

    from collegium.coordinator.run.run_folder import read_run
    from collegium.simulations.progress import percent

    records = {one: read_run(folder) for one, folder in folders.items()}
    table = Table("ε", "labels right", "student right", "without privacy")
    for one, record in records.items():
        pooled = None if record.baseline is None else record.baseline.accuracy
        table.add_row(f"{one:g}", *map(percent, (record.label_accuracy, record.student_accuracy, pooled)))
    Console(stderr=as_json).print(table)
    if plot is not None:
        from collegium.simulations.sweep import draw_runs

        draw_runs({one: record.student_accuracy for one, record in records.items()}, plot)


def run_and_show(
    settings: "SimulationConfig",
    folder: Path,
    data_root: Path | None,
    drive: "Callable[[PreparedRun, RunProgress], RunRecord]",
    parties: str,
    *,
    as_json: bool,
) -> None:
    """Prepare a run and ``drive`` it, with progress; then print the closing table or run.json.

    Parameters
    ----------
    parties : what plays the parties, as the first line says it.
    """
    from rich.console import Console

    from collegium.coordinator.run.run_folder import run_json
    from collegium.simulations.cohort import prepare_run
    from collegium.simulations.progress import RunProgress, print_summary
    from collegium.simulations.simulate import screen_of

    console = Console(stderr=as_json)
    prepared = prepare_run(settings, folder, data_root=data_root)
    console.print(*screen_of(prepared), sep="\n", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Starting {len(prepared.cohort)} {parties}", highlight=False)
    with RunProgress(console) as progress:
        result = drive(prepared, progress)
    if as_json:
        typer.echo(run_json(result, indent=1))
    else:
        print_summary(result, folder, console)


def flwr_command(folder: Path, parties: int) -> str:
    """The lines to type, in the root of a checkout, to run what was prepared in ``folder`` by Flower's own command."""
    from shlex import quote

    from collegium.simulations.simulate import flower_settings

    exports = " ".join(f"{name}={quote(value)}" for name, value in flower_settings(folder).items())
    run_config = quote(f'folder="{folder}"')
    federation = quote(f"num-supernodes={parties} client-resources-num-cpus=1")
    return f"export {exports}\nflwr run . --stream --run-config {run_config} --federation-config {federation}"
