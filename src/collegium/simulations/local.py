"""A whole consortium in this process, for notebooks and experiments: no transport, nothing to configure in files.

Parties and coordinator are the objects that real consortia run. Parties are asked one after the other, their votes are
summed under masks, and what a run keeps goes to a temporary folder unless another one is given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from collegium.coordinator.rounds.rounds import OnReply
from collegium.coordinator.run import coordinator as run
from collegium.coordinator.run.run_folder import RunFolder, read_labels
from collegium.coordinator.run.run_record import RunRecord, reached
from collegium.coordinator.run.surroundings import OnProgress
from collegium.coordinator.settings.run_config import PublicData, RunConfig
from collegium.data import Examples, PoolStore
from collegium.data.drawn_pool import drawn_pool
from collegium.data.examples import encode, examples_of
from collegium.data.task import Task
from collegium.errors import CollegiumError, ConfigurationError
from collegium.parties.answer_book import AnswerBook
from collegium.parties.party import Party
from collegium.parties.policy import Policy, PolicyConfig
from collegium.parties.summing import Membership
from collegium.parties.teachers.splits import simulated_key
from collegium.privacy.analysis.evaluation import Measures
from collegium.protocol.identities import create_identity, read_signing_key
from collegium.protocol.messages import Request
from collegium.protocol.replies import ReplyBody
from collegium.protocol.requests import RequestBody
from collegium.settings import validate_config
from collegium.simulations.progress import RunProgress
from collegium.whole_files import temporary_folder
from collegium_accounting.mechanisms import ABSTAIN, IntArray, Mechanism

if TYPE_CHECKING:
    from collegium.coordinator.students.published import PublishedStudent


class InProcessParties:
    """`Parties` over `Party` objects, asked one after the other."""

    def __init__(self, parties: Sequence[Party], run_id: str) -> None:
        self._parties = {party.name: party for party in parties}
        self._run_id = run_id
        self._numbers = itertools.count()

    def names(self) -> list[str]:
        """The names of the parties, sorted."""
        return sorted(self._parties)

    def ask(
        self, requests: Mapping[str, RequestBody], *, timeout_s: float, on_reply: OnReply | None = None
    ) -> dict[str, ReplyBody]:
        """Give each party in ``requests`` its request and return the replies by name; see `Parties.ask`.

        Nobody is late here, so that ``timeout_s`` (seconds) does not matter. ``on_reply`` is called with each reply.
        """
        replies: dict[str, ReplyBody] = {}
        for name, body in requests.items():
            request = Request(f"request-{next(self._numbers)}", self._run_id, body)
            replies[name] = self._parties[name].handle(request).body
            if on_reply is not None:
                on_reply(name, replies[name])
        return replies


_NAME = "local"
_ARGUMENTS = {
    ", or lower votes.quorum": "",
    "budget.epsilon": "epsilon",
    "budget.delta": "delta",
    "queries.count": "queries",
    "queries.choice": "choice",
    "evaluation.share": "evaluation_share",
    "pool_check.share": "pool_check_share",
    "teachers.kind": "teachers",
    "teachers.per_party": "teachers_per_party",
    "teachers.options": "teacher_options",
    "student.method": "method",
    "student.options.": "",
}
"""By the name of a setting, as errors say it: the argument that it comes from."""
_PUBLIC_ARRAY = "the pool that the coordinator was given"


class LocalParties(InProcessParties):
    """Institutions in this process, from their records.

    Parameters
    ----------
    records : mapping
        By the party's name, its inputs (an array or a frame) and its labels, as `collegium.data.examples.examples_of`
        takes them. Names consist of small letters, digits and hyphens. A secure sum needs three parties.
    task : Task
        What the consortium agreed to learn.
    policy : PolicyConfig, optional
        What every institution agrees to answer. Without it each has the default of a `Party`, which asks for noise of
        at least 20 votes and limits queries and ε.
    folder : Path, optional
        Where the institutions keep their keys and what they answered; a temporary folder by default.
    device : str
        Where teachers compute: ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.
    seed : int, optional
        Fixes every random choice of a run with them, all noise included: to reproduce it, never to publish it. A
        simulation of the same parties with the same seed gives the same labels.

    Raises
    ------
    DataError
        If records do not fit the task, or a party has none.
    ConfigurationError
        If a name or the device is not valid.

    Examples
    --------
    >>> import collegium as cg
    >>> task = cg.Task.from_array([[0.0], [1.0]], classes=["low", "high"])
    >>> records = [[0.1], [0.3], [0.7], [0.9]], [0, 0, 1, 1]
    >>> cg.LocalParties(dict.fromkeys(("ash", "birch", "cedar"), records), task).names()
    ['ash', 'birch', 'cedar']
    """

    def __init__(
        self,
        records: Mapping[str, tuple[ArrayLike, ArrayLike]],
        task: Task,
        *,
        policy: PolicyConfig | None = None,
        folder: Path | None = None,
        device: str = "auto",
        seed: int | None = None,
    ) -> None:
        self.task, self.seed = task, seed
        base = folder or temporary_folder(self)
        for name in records:
            create_identity(base / name / "credentials", name, "party")  # once: who comes back is who it was
        keys = {name: read_signing_key(base / name / "credentials") for name in records}
        self.signing_keys = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
        pools = PoolStore(None)

        def party(name: str, examples: Examples) -> Party:
            own = base / name
            agreed: dict[str, Any] = {}
            if policy is not None:
                agreed["policy"], agreed["allowed_imports"] = Policy(policy), policy.teacher_imports
                agreed["account"] = AnswerBook(own, name, policy, keys[name])
                agreed["record_rho"] = policy.record_rho
            member = Membership(_NAME, self.signing_keys, keys[name].sign, noise_seed=seed)
            agreed["split_key"] = None if seed is None else simulated_key(seed, name)
            return Party(name, examples, task, folder=own, pools=pools, device=device, membership=member, **agreed)

        super().__init__([party(name, examples_of(x, y, task)) for name, (x, y) in records.items()], _NAME)

    def __repr__(self) -> str:
        return f"<{len(self.names())} parties: {', '.join(self.names()[:8])}{', …' if len(self.names()) > 8 else ''}>"


class Coordinator:
    """The coordinator of parties in this process: asks for labels, then fits the student that is published.

    It makes the settings of one run and leaves the run to `collegium.coordinator.run.coordinator.CoordinatorRun`. The
    privacy unit is one record. Votes are summed under masks, so that it sees their exact sum alone.

    Parameters
    ----------
    parties : LocalParties
        The institutions.
    pool : array_like, optional
        Public inputs without labels, as `collegium.data.examples.encode` takes them. Queries come from them, and the
        student learns from them. Without them, class sums of tables and vectors are taken under a map that is drawn
        from the task alone, and the labels of the drawn inputs are of no use.
    mechanism : Mechanism, optional
        How the summed votes become labels, such as ``GNMax(sigma=40)``. Without it, class sums label the whole pool
        from one noisy sum over all records, with the noise that the budget asks for.
    epsilon, delta : float
        The budget: no label is released once (ε, δ) would be passed.
    teachers : str
        The kind of teacher that every party fits: a built-in name, the name of an installed one, or
        ``package.module:Class``.
    teachers_per_party : int
        Teachers among which each party divides its records, 1 to 1,000. More teachers carry more noise.
    teacher_options : mapping, optional
        Options of that kind.
    evaluation_share : float, optional
        The part of ``epsilon`` for which the parties measure the student on their own records; without it they do not.
    pool_check_share : float, optional
        The part of ``epsilon`` for which they say beforehand how well the pool covers their records; see
        ``record.pool_check``.
    counts : mapping, optional
        Further counts of the parties' records by kind, each with its settings; kinds come from other packages. What
        they came to is in ``record.counts``.
    folder : Path, optional
        Where ledger, labels and student go; a temporary folder by default.
    device : str
        Where the student computes: ``auto``, ``cpu``, ``cuda`` or ``cuda:<number>``.
    progress : callable, optional
        Called with each step of a run: its ``step`` is a name, ``done`` and ``total`` count its parts. Without it bars
        are shown where standard error is a terminal, and nothing elsewhere.

    Raises
    ------
    DataError
        If the pool does not fit the task.
    ConfigurationError
        If there is no pool for images.

    Examples
    --------
    >>> import collegium as cg
    >>> pool = [[number / 20] for number in range(20)]
    >>> task = cg.Task.from_array(pool, classes=["low", "high"])
    >>> records = pool, [number // 10 for number in range(20)]
    >>> parties = cg.LocalParties(dict.fromkeys(("ash", "birch", "cedar"), records), task)
    >>> coordinator = cg.Coordinator(parties, pool, epsilon=1)
    >>> len(coordinator.label()), coordinator.epsilon <= 1
    (20, True)
    """

    def __init__(  # noqa: PLR0913 -- one call with names for a notebook
        self,
        parties: LocalParties,
        pool: ArrayLike | None = None,
        mechanism: Mechanism | None = None,
        *,
        epsilon: float,
        delta: float = 1e-5,
        teachers: str = "random-forest",
        teachers_per_party: int = 1,
        teacher_options: Mapping[str, float | int | str | bool] | None = None,
        evaluation_share: float | None = None,
        pool_check_share: float | None = None,
        counts: Mapping[str, Mapping[str, Any]] = {},
        folder: Path | None = None,
        device: str = "auto",
        progress: OnProgress | None = None,
    ) -> None:
        self._parties, self._progress = parties, progress
        inputs = drawn_pool(parties.task.inputs) if pool is None else encode(pool, parties.task)
        self._public = PublicData(Examples(inputs))
        self._device = device
        self._folder = RunFolder(folder or temporary_folder(self))
        self._asked: dict[str, Any] = {
            "name": _NAME,
            "seed": parties.seed,
            "task": parties.task,
            "pool": None if pool is None else {"source": _PUBLIC_ARRAY},
            "teachers": {
                "kind": teachers,
                "per_party": teachers_per_party,
                "options": dict(teacher_options or {}),
            },
            "budget": {"epsilon": epsilon, "delta": delta},
            "evaluation": None if evaluation_share is None else {"share": evaluation_share},
            "pool_check": None if pool_check_share is None else {"share": pool_check_share},
            "counts": dict(counts),
        }
        if mechanism is None:
            del self._asked["teachers"]
        else:
            self._asked["mechanism"] = {"name": mechanism.name, "parameters": mechanism.parameters()}

    @property
    def folder(self) -> Path:
        """Where the run keeps its ledger, labels, student and report."""
        return self._folder.path

    def label(self, queries: int = 100, *, choice: str = "random") -> IntArray:
        """Ask the parties for labels of inputs of the pool.

        Asking again for inputs that have a label costs nothing and gives the same label.

        Parameters
        ----------
        queries : int
            How many inputs to ask about, at most as many as the pool holds. Class sums label the whole pool.
        choice : str
            How they are chosen: ``random`` or ``representative``.

        Returns
        -------
        int64 array, shape ``[inputs of the pool]``
            The class number of each input that got a label, -1 for all others.

        Raises
        ------
        BudgetExceeded
            If not one label fits the budget.
        QuorumNotReached
            If too few parties answer, for example because their policies refuse; the text names them and why.
        ConfigurationError
            If a setting is not valid.
        """
        self._asked["queries"] = {"count": queries, "choice": choice}
        with self._shown() as run:
            run.label()
        labels = np.full(len(self._public.pool), ABSTAIN, dtype=np.int64)
        for index, label in read_labels(self._folder.labels_csv):
            labels[index] = ABSTAIN if label is None else label
        return labels

    def fit(self, method: str | None = None, **options: float | int | str | bool) -> PublishedStudent:
        """Fit the student on the labels and the pool; it may be published under the ε of the labels.

        Parameters
        ----------
        method : str, optional
            A student method, such as ``random-forest`` for tables or ``consistency`` for images. Without it: the
            classifier that class sums hold (``kernel``), or a random forest where votes gave the labels.
        **options
            Options of the method.

        Returns
        -------
        PublishedStudent
            It has ``predict(inputs)`` and ``predict_proba(inputs)`` for files, frames and arrays. The file
            ``student.safetensors`` in `folder` holds it.

        Raises
        ------
        ConfigurationError
            If no labels were asked for, or the method or an option is unknown or does not suit the task.
        DataError
            If the labels cannot teach anything, such as labels of one class alone.
        TrainingDiverged
            If the training came to nothing.
        """
        if "queries" not in self._asked:
            raise ConfigurationError("there are no labels to learn from: call label() first")
        from collegium.coordinator.students.published import load_student

        usual = "random-forest" if "teachers" in self._asked else "kernel"
        self._asked["student"] = {"method": method or usual, "options": options}
        with self._shown() as run:
            run.evaluate()
            run.fit()
        return load_student(self._folder.student, device=self._device)

    @property
    def record(self) -> RunRecord:
        """Everything that is known of the run; ConfigurationError before `label`."""
        return reached(self._folder.read())

    @property
    def evaluation(self) -> Measures | None:
        """The quality of the student on the parties' own records; None where they did not measure it."""
        return self.record.measured

    @property
    def epsilon(self) -> float:
        """The ε that may be published for one record, at the budget's δ; ConfigurationError before `label`."""
        return reached(self.record.privacy).epsilon

    def __repr__(self) -> str:
        parties, budget = len(self._parties.names()), self._asked["budget"]
        return f"<coordinator of {parties} parties, ε = {budget['epsilon']:g} at δ = {budget['delta']:g}>"

    @contextmanager
    def _shown(self) -> Iterator[run.CoordinatorRun]:
        """The run, whose progress is told to who asked, or shown at a terminal."""
        console = Console(stderr=True)
        with _arguments_named(), RunProgress(console) as bars:
            told = self._progress or (bars if console.is_terminal else None)
            yield run.CoordinatorRun(
                validate_config(self._asked, RunConfig, "the coordinator's settings"),
                run.Reach(self._parties, signing_keys=self._parties.signing_keys),
                run.Storage(self._folder.path),
                public=self._public,
                compute=run.Compute(self._device),
                watch=run.Watch(told) if told else run.Watch(),
            )


@contextmanager
def _arguments_named() -> Iterator[None]:
    """Errors name arguments of `Coordinator` and its methods in place of the settings that they became."""
    try:
        yield
    except CollegiumError as error:
        text = str(error)
        for setting, argument in _ARGUMENTS.items():
            text = text.replace(setting, argument)
        error.args = (text, *error.args[1:])
        raise
