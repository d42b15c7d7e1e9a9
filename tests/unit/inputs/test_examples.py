"""Who a record is depends on the record, or on the group it belongs to, and on nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collegium.data import Examples

X = np.arange(12, dtype=np.uint8).reshape(6, 1, 2, 1)
Y = np.array([0, 1, 0, 1, 0, 1])
PERMUTATIONS = st.permutations(range(6)).map(np.array)


@given(PERMUTATIONS, st.integers(1, 6), st.sampled_from([None, np.array(list("aabbcd"))]))
def test_identities_follow_the_records_through_any_order_and_selection(
    order: np.ndarray, kept: int, groups: np.ndarray | None
) -> None:
    examples = Examples(X, Y, groups)
    identities = list(examples.identities())
    chosen = order[:kept]
    assert list(examples.take(chosen).identities()) == [identities[i] for i in chosen]


def test_records_that_differ_in_input_or_label_are_different_and_equal_ones_equal() -> None:
    assert len(set(Examples(X, Y).identities())) == 6
    assert list(Examples(X[:1], Y[:1]).identities()) != list(Examples(X[:1], Y[1:2]).identities())
    assert len(set(Examples(np.zeros_like(X), np.zeros_like(Y)).identities())) == 1


def test_records_of_one_group_are_one() -> None:
    first, second, third = Examples(X[:3], Y[:3], groups=np.array(["p1", "p2", "p1"])).identities()
    assert first == third != second


def test_a_group_is_the_same_whatever_its_records_hold() -> None:
    one = list(Examples(X[:1], Y[:1], groups=np.array(["p1"])).identities())
    other = list(Examples(X[3:4], None, groups=np.array(["p1"])).identities())
    assert one == other


def test_taking_keeps_inputs_labels_groups_and_columns_together() -> None:
    examples = Examples(X, Y, np.array(list("abcdef")), {"hospital": np.array(list("uvwxyz"))})
    taken = examples.take(np.array([4, 1]))
    assert len(taken) == 2
    assert np.array_equal(taken.x, X[[4, 1]])
    assert taken.labels().tolist() == [0, 1]
    assert taken.groups is not None
    assert taken.groups.tolist() == ["e", "b"]
    assert taken.columns["hospital"].tolist() == ["y", "v"]


def test_records_do_not_appear_in_a_representation() -> None:
    examples = Examples(X, Y, np.array(["canary"] * 6), {"name": np.array(["canary"] * 6)})
    assert "canary" not in repr(examples)
    assert "array" not in repr(examples)
