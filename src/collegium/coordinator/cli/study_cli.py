"""`collegium study new | list`: several studies of one consortium, under one account of its parties' records."""

import json
from typing import Annotated

import typer

from collegium.coordinator.cli.options import AsJson, ConfigFile, PublicRoot
from collegium.coordinator.report.page import rendered
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.settings.consortium import STUDY_FILE, ConsortiumConfig, ConsortiumFolder, read_consortium
from collegium.data.values import check_party_name
from collegium.errors import ConfigurationError
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.question import about_all_records
from collegium.settings import Frozen
from collegium.whole_files import is_held, make_folder, write_new, write_whole
from collegium_accounting.game.gaussian import epsilon_beside, largest_mu
from collegium_accounting.terminal import epsilon_text

TRIAL = 0.2
"""The part of the budget of a study that asks whether the institutions agree."""

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Several studies of one consortium.")


@app.command(epilog="Example: collegium study new consortium.toml readmission")
def new(
    config_file: ConfigFile,
    name: Annotated[str, typer.Argument(help="The study's name.")],
    trial: Annotated[
        bool, typer.Option("--trial", help="A small study that asks whether all mean the same by classes and units.")
    ] = False,
) -> None:
    """Make the folder of a study, with a file of what differs from the consortium's own.

    A study has labels, a student and a report of its own. It shares the parties, their enrolment and the ledger.
    """
    check_party_name(name, ConfigurationError)
    config = read_consortium(config_file)
    if trial and (config.budget.unit == "party" or not about_all_records(config.mechanism.kind)):
        raise ConfigurationError(
            "--trial: institutions compare their records with a class sum over records; this consortium asks for none "
            "(mechanism.name, budget.unit): leave it out"
        )
    file = ConsortiumFolder(config.consortium.folder, name).run / STUDY_FILE
    spent, _ = _spent(config)
    left = 0.95 * left_beside(spent, config.budget.epsilon, config.budget.delta) or config.budget.epsilon
    study = min(left, TRIAL * config.budget.epsilon) if trial else left
    text = rendered(
        "coordinator.cli",
        "study.toml.j2",
        name=name,
        consortium=config.name,
        file=config_file,
        budget=_changed(config.budget, study=float(f"{study:.2g}")),
        sums=_changed(config.sums, rounds=1) if trial else None,
        spent=spent,
        count=config.queries.count,
    )
    make_folder(file.parent)
    write_new(file, text + "\n", "edit it, or choose another name")
    typer.echo(f"edit {file}, then run:")
    typer.echo(f"collegium provision {config_file} --check --study {name}")
    typer.echo(f"collegium coordinator serve {config_file} --study {name}")


@app.command(epilog="Example: collegium study begin consortium.toml readmission")
def begin(
    config_file: ConfigFile,
    name: Annotated[str, typer.Argument(help="The study's name.")],
    data_root: PublicRoot = None,
) -> None:
    """Say what a study asks and costs, and have a coordinator that stays up (`coordinator serve --stay`) begin it."""
    from collegium.coordinator.cli.provision_cli import checked

    config = read_consortium(config_file, name)
    _, found = checked(config_file, config, data_root)
    typer.echo("\n".join(found.lines()))
    write_whole(config.place.begin, "")
    if is_held(config.place.lock):
        typer.echo(f"{name} begins once the coordinator that serves is free, if it was started with --stay")
    else:
        typer.echo(f"next: collegium coordinator serve {config_file} --stay")


@app.command("list", epilog="Example: collegium study list consortium.toml")
def list_(
    config_file: ConfigFile,
    as_json: AsJson = False,
) -> None:
    """Print the studies with their labels and states, and what all of them together have spent."""
    config = read_consortium(config_file)
    folder = ConsortiumFolder(config.consortium.folder)
    studies = []
    for study in (None, *folder.named()):
        record = RunFolder(ConsortiumFolder(folder.path, study).run).read()
        labels = None if record is None or record.labels is None else record.labels.answered
        state = "not started" if record is None else record.state
        studies.append({"study": study or "(the file's own)", "state": state, "labels": labels})
    spent, unit = _spent(config)
    if as_json:
        typer.echo(json.dumps({"studies": studies, "epsilon_spent": spent, "unit": unit}))
        return
    for one in studies:
        typer.echo(f"{one['study']:<24}{one['labels'] or 0:>7} labels  {one['state']}")
    typer.echo(f"all together: ε = {epsilon_text(spent)} spent for one {unit}")


def _changed(section: Frozen, **changes: object) -> dict[str, object]:
    """A section as the consortium has it, which a study's replaces as a whole, but for these changes."""
    return section.model_dump(mode="json", exclude_unset=True) | changes


def left_beside(spent: float, epsilon: float, delta: float) -> float:
    """About the ε of sums that cost ``epsilon`` together with what is ``spent``; 0 where nothing was, or is left.

    For a proposal alone: all is taken for Gaussian noise, whose squared μ add up. The ledger holds the budget.
    """
    return epsilon_beside([largest_mu(spent, delta)], epsilon, delta) if 0.0 < spent < epsilon else 0.0


def _spent(config: ConsortiumConfig) -> tuple[float, str]:
    """The ε of all studies, and for which unit."""
    file = ConsortiumFolder(config.consortium.folder).ledger
    if not file.exists():
        return 0.0, config.budget.unit
    with Ledger.read(file) as ledger:
        return ledger.epsilon(), ledger.terms().unit
