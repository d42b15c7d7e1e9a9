"""What can be known of a run before anything is spent: whether it can begin, and how good its labels will be."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.coordinator.noise import noise_on_entries
from collegium.coordinator.release import Releases
from collegium.coordinator.rounds.masked_sum import MaskedSum
from collegium.coordinator.rounds.rounds import Nobody, VoteSum, quorum_count
from collegium.coordinator.run.announced import announced_terms
from collegium.coordinator.run.colluders import Colluders, beyond_plan
from collegium.coordinator.run.coordinator import CoordinatorRun, Reach, Storage
from collegium.coordinator.run.counts_terms import counts_mechanism, counts_mode
from collegium.coordinator.run.factories import configured_mechanism, division, sum_in, vote_sum_of
from collegium.coordinator.run.foreseen import Foreseen, on_copies
from collegium.coordinator.run.run_folder import RunFolder
from collegium.coordinator.run.screen import Earlier, Findings, Forecast
from collegium.coordinator.selection.kernel_choice import kernel_spec
from collegium.coordinator.selection.queries import query_key, study_of
from collegium.coordinator.settings.consortium import ConsortiumConfig, ConsortiumFolder
from collegium.coordinator.settings.kinds import run_kind
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data.task import OWN_CHOICE, ImageInputs
from collegium.data.teacher_kinds import BUILT_IN, OF_IMAGES, import_path
from collegium.errors import ConfigurationError, StorageError
from collegium.limits import FEW_PARTIES
from collegium.models.noisy_sums import PARTY_CONTRIBUTIONS
from collegium.models.pool_spectrum import PoolSpectrum
from collegium.privacy.analysis.evaluation import records_needed
from collegium.privacy.evaluation_cells import Layout
from collegium.privacy.ledger.ledger import Ledger
from collegium.protocol.identities import Credentials
from collegium.protocol.question import about_all_records
from collegium.protocol.secure_sum.plan import SMALLEST_SUM
from collegium.settings import toml_value
from collegium_accounting.mechanisms import LabelMechanism, Mechanism, SumMode
from collegium_accounting.mechanisms.record_counts import ONE

SHARES = (0.6, 0.75, 0.9)
"""The shares of the votes for which labels are forecast."""
LARGE_EPSILON = 8.0
"""Beyond it a budget promises hardly anything; as in docs/choosing-noise.md."""


def check_consortium(config: ConsortiumConfig, public: PublicData) -> Findings:
    """See `check_run`, of a consortium's study.

    Raises
    ------
    ConfigurationError, DataError, BudgetExceeded
        If no run can come of the configuration.
    """
    names, votes, place, study = config.consortium.parties, config.votes, config.place, config.consortium.study
    if votes.mode != SumMode.CLEAR and len(names) < SMALLEST_SUM:
        raise ConfigurationError(
            f"consortium.parties: a masked sum needs {SMALLEST_SUM} parties at least, and there are {len(names)}"
        )
    signer = Credentials.load(place.identity, "coordinator").signing_key if place.ledger.exists() else None
    found = check_run(config.run, names, public, Storage(place.run, place.ledger, signer=signer, study=study))
    folders = {one: ConsortiumFolder(place.path, one).run for one in (None, *place.named())}
    del folders[study]
    return replace(
        found,
        earlier=tuple(_earlier(config.run, folders)),
        policy=tuple(_policy_lines(config, public)) if study is not None and found.foreseen.asks else (),
    )


def check_run(config: RunConfig, names: Sequence[str], public: PublicData, storage: Storage) -> Findings:
    """Raise what a run would raise before it asks any party, and state what can be foreseen of it.

    Nothing is kept: the run is prepared on copies of its files, which are then deleted.

    Parameters
    ----------
    names : of the parties.
    storage : where the run keeps its files.

    Raises
    ------
    ConfigurationError, DataError, BudgetExceeded
        If no run can come of the configuration.
    """
    teachers = config.teachers
    if teachers is not None and teachers.kind != OWN_CHOICE:
        try:
            import_path(teachers.kind)
        except ConfigurationError as error:
            raise ConfigurationError(f"teachers.kind: {error}") from None
        if teachers.kind in OF_IMAGES and not isinstance(config.task.inputs, ImageInputs):
            raise ConfigurationError(
                f"teachers.kind: {teachers.kind} learns from images alone: name random-forest, mlp or linear"
            )
    reach = Reach(Nobody(), names, dict.fromkeys(names, b""))  # some parties may have no key yet
    with on_copies(storage) as copies:
        run = CoordinatorRun(config, reach, copies, public=public)
        with run.prepare() as opened:
            seen = opened.foresee()
    sums = vote_sum_of(config, reach.parties, reach.signing_keys)
    summed = about_all_records(config.mechanism.kind)  # one sum labels every input
    voting = 0 if teachers is None else len(names) * teachers.per_party
    forecasts = _forecasts(config, voting) if voting and not config.task.multilabel else ()
    needed = _needed(config, sums, len(names), public) if summed and seen.asks and not config.drawn else None
    return Findings(
        study=config.name if storage.study is None else f"{storage.study}, of {config.name}",
        parties=tuple(names),
        quorum=quorum_count(config.votes.quorum, len(names)),
        asked=_asked(config, seen),
        choice=config.choice,
        foreseen=seen,
        earlier=(),
        pool_inputs=len(public.pool),
        drawn=config.drawn,
        holdout_records=None if public.holdout is None else len(public.holdout),
        queries=seen.wanted - seen.decided,
        affordable=seen.affordable,
        votes=voting,
        forecasts=forecasts,
        needed=needed,
        measured=_measured(config, reach, len(names)) if config.evaluation is not None else (),
        unit=config.budget.unit,
        graph=sums.weakest if isinstance(sums, MaskedSum) else None,
        division=division(config, len(names)) if summed else None,
        most_records=config.budget.most_records,
        colluders=_colluders(config, sums, seen.affordable),
        policy=(),
        warnings=tuple(_warnings(config, names, public, storage, forecasts, needed)),
    )


def _asked(config: RunConfig, seen: Foreseen) -> str:
    """What labels follow from, in words."""
    how = {
        SumMode.CLEAR: "in the clear",
        SumMode.MASKED: "under masks",
        SumMode.MASKED_AND_NOISED: "under masks and with each one's noise",
    }[config.votes.mode]
    if seen.sums:
        number = seen.sums - seen.held
        return f"{number} {'sum' if number == 1 else 'sums'} over all records, {how}"
    about = f"{seen.wanted - seen.decided} inputs of the pool"
    if config.teachers is not None:
        return f"the votes of {config.teachers.per_party} teachers each on {about}, {how}"
    return f"{run_kind(config.mechanism.kind).question.kind} about {about}, {how}"


def _earlier(config: RunConfig, folders: Mapping[str | None, Path]) -> Iterator[Earlier]:
    """What was released of the students of other studies of the same classes, by the study.

    Records that cannot be read, as those of another version, are passed over: no run depends on them.
    """
    for study, folder in folders.items():
        record = None
        with suppress(StorageError):
            record = RunFolder(folder).read()
        if record is None or record.config.task.classes != config.task.classes:
            continue
        name = "the file's own study" if study is None else f"the study {study}"
        if record.measured is not None and record.measured.accuracy is not None:
            yield Earlier(name, f"{record.measured.accuracy} of the institutions' records")
        elif record.student_accuracy is not None:
            yield Earlier(name, f"{record.student_accuracy:.1%} of the holdout")


def _colluders(config: RunConfig, sums: VoteSum, queries: int) -> tuple[Colluders, ...]:
    if not isinstance(sums, MaskedSum) or not sums.added.parties or not queries:
        return ()
    mechanism, teachers, budget = configured_mechanism(config), config.teachers, config.budget
    votes = 1 if teachers is None else teachers.per_party
    unit = mechanism.unit() if budget.unit == "record" else mechanism.party_unit(votes)
    most = sums.of_all.added.honest_survivors if about_all_records(config.mechanism.kind) else 0
    return tuple(beyond_plan(mechanism, sums.weakest, unit, budget.delta, queries, most))


def _forecasts(config: RunConfig, votes: int) -> tuple[Forecast, ...]:
    histograms = np.zeros((len(SHARES), len(config.task.classes)), dtype=np.int64)
    histograms[:, 0] = [round(share * votes) for share in SHARES]
    histograms[:, 1] = votes - histograms[:, 0]
    mechanism = configured_mechanism(config)
    assert isinstance(mechanism, LabelMechanism)  # votes are counted for labels
    right, answered = mechanism.expected_agreement(histograms)
    return tuple(Forecast(*map(float, one)) for one in zip(SHARES, right, answered, strict=True))


def _policy_lines(config: ConsortiumConfig, public: PublicData) -> Iterator[str]:
    asked = config.queries.count
    for name, value in announced_terms(config.run, asked, public.spec).policy().items():
        beside = name in ("queries", "record_epsilon", "epsilon", "record_rho")
        more = "  # and as much more as `collegium party show` says was answered or spent" if beside else ""
        if name == {"record": "record_epsilon", "party": "epsilon"}[config.budget.unit]:
            more += f"; {config.budget.epsilon:g} in all where that was this consortium's alone"
        yield f"{name} = {toml_value(value)}{more}"


def studies_about(ledger: Path, pool: NDArray[Any]) -> set[str | None]:
    """The studies that have labels for some of these inputs, whichever pool of theirs holds them."""
    inputs = {query_key(one) for one in pool}
    with Ledger.read(ledger) as held:
        return {study_of(key) for key in held.labels() if key.rpartition(":")[2] in inputs}


def _measured(config: RunConfig, reach: Reach, parties: int) -> tuple[int, ...]:
    settings, classes = config.evaluation, len(config.task.classes)
    assert settings is not None
    layout, mode = Layout(classes), counts_mode(config, settings)
    mechanism = counts_mechanism(config, settings, layout.parts, layout.length)
    sums = sum_in(mode, config, reach.parties, reach.signing_keys)
    noises = [_noise(mechanism, way, parties) / ONE for way in Releases.ways(sums)]
    return tuple(records_needed(classes, noise**2) for noise in noises)


def _noise(mechanism: Mechanism, sums: VoteSum, parties: int) -> float:
    """The standard deviation on every entry of a sum that holds the vectors of all parties."""
    stage, *_ = mechanism.summed(sums.added)
    return noise_on_entries(stage, parties)


def _needed(config: RunConfig, sums: VoteSum, parties: int, public: PublicData) -> int:
    task, pool, mechanism = config.task, public.pool.x, configured_mechanism(config)
    of_mean = 1.0 / math.sqrt(config.sums_in_mean)
    if once := isinstance(sums, MaskedSum) and sums.once:
        sums = sums.together
    noise = mechanism.noise_votes * of_mean
    spec = kernel_spec(config.sums, pool, task.inputs, len(task.classes), noise, config.seed or 0)
    spectrum = PoolSpectrum.under(spec, pool, task.inputs)
    by_first = division(config, parties).noise if once else 1.0  # which is by groups
    deviation = _noise(mechanism, Releases.ways(sums)[0], parties) * (of_mean * by_first)
    needed = spectrum.contributions_needed(deviation, len(task.classes))
    return math.ceil(needed / (PARTY_CONTRIBUTIONS if config.budget.unit == "party" else 1.0))


def _warnings(
    config: RunConfig,
    names: Sequence[str],
    public: PublicData,
    storage: Storage,
    forecasts: tuple[Forecast, ...],
    needed: int | None,
) -> list[str]:
    found, parties, budget = [], len(names), config.budget
    if budget.epsilon > LARGE_EPSILON:
        found.append(f"budget.epsilon = {budget.epsilon:g} promises hardly anything to anybody: at most 8 is a promise")
    if parties < FEW_PARTIES:
        found.append(f"{parties} parties: a sum of so few tells much of each of them")
    if quorum_count(config.votes.quorum, parties) == parties:
        found.append("votes.quorum: a round needs every party; one that is away stops all")
    if forecasts and forecasts[1].right < 0.9:
        found.append(
            "the noise is large for so few votes: lower it, or raise teachers.per_party or the number of parties "
            "(docs/choosing-noise.md)"
        )
    if needed is not None and needed > parties * (1 if budget.unit == "party" else len(public.pool)):
        whom = "parties" if budget.unit == "party" else "records in all"
        found.append(
            f"with fewer than {needed} {whom} the noise hides classes: raise budget.epsilon, or have fewer classes"
        )
    ledger = storage.ledger
    others = studies_about(ledger, public.pool.x) - {storage.study} if ledger is not None and ledger.exists() else set()
    if others and config.votes.mode != SumMode.MASKED_AND_NOISED:
        found.append(
            "other studies have asked about inputs of this pool, and an institution gives one exact sum about an "
            "input, for good: use their labels, or set votes.mode = 'masked+noised'"
        )
    teachers = config.teachers
    if teachers is not None and teachers.kind not in (*BUILT_IN, OWN_CHOICE):
        found.append(f"teachers.kind: each institution must allow {teachers.kind} in its policy (teacher_imports)")
    if public.holdout is not None:
        known = Counter(public.holdout.labels().tolist())
        lacking = [name for number, name in enumerate(config.task.classes) if not known[number]]
        if lacking and not config.task.multilabel:
            found.append(f"the holdout has no record of the class {', '.join(lacking)}")
    return found
