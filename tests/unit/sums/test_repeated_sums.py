"""A coordinator that wants two exact sums over other parties: it puts almost the same question in another way."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.liar import Liar
from support.sums_scene import NAMES, SPEC, Consortium

from collegium.errors import QuorumNotReached
from collegium.models.coverage import CoverageSpec
from collegium.models.features import Features
from collegium.parties.answer_book import AnswerBook
from collegium.parties.policy import Policy, PolicyConfig
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.question import QuestionTerms
from collegium_accounting.mechanisms.record_counts import RecordCounts

LIMITS = PolicyConfig(minimum_noise_sums=2.0, queries=10)
NEAR = replace(SPEC, bandwidth_squared=SPEC.bandwidth_squared + 1)
"""Nearly the same map: every record contributes what it does under the other, but for rounding."""


def asked(consortium: Callable[..., Consortium], folder: Path, policy: PolicyConfig) -> tuple[Consortium, Liar]:
    def account(name: str) -> AnswerBook:
        (folder / name).mkdir(parents=True)
        return AnswerBook(folder / name, name, policy, None)

    parties = consortium(policy=lambda name: Policy(policy), account=account)
    return parties, Liar(parties.parties, parties.roster, parties.plan, "trial")


def test_no_exact_sum_over_all_records_leaves_a_party_under_masks(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    """The difference of two of them, over other parties, would be what one party sent."""
    parties, liar = asked(consortium, tmp_path, LIMITS)
    cells = CoverageSpec(Features("raw"), (0, 1), (0, 1), (1, 1000))
    terms = QuestionTerms.of(RecordCounts(5.0, 1, cells.cells), "masked")
    counted = CountCoverage(terms, "ledger", False, cells, parties.pool_sha256)
    for question in (parties.request("masked"), counted):
        with pytest.raises(QuorumNotReached):
            liar.total(question)
        assert liar.refusals() == dict.fromkeys(NAMES, "refused-mode")


def test_where_parties_add_the_noise_another_question_is_answered_and_counted(
    consortium: Callable[..., Consortium], tmp_path: Path
) -> None:
    parties, _ = asked(consortium, tmp_path, LIMITS)
    for kernel in (SPEC, NEAR):
        parties.asks(parties.request("masked+noised", kernel=kernel))
