"""A question has one encoding: all other bytes are refused in so many words, whatever they are."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from collegium_reproduction.nearest.question import CountNearest
from hypothesis import given, settings
from hypothesis import strategies as st

from collegium.data.task import TeacherSettings
from collegium.errors import ConfigurationError, ProtocolViolation
from collegium.models.coverage import CoverageSpec
from collegium.models.features import Features
from collegium.models.kernels import KernelSpec
from collegium.privacy.evaluation_cells import Layout
from collegium.protocol.kinds.class_sums import SumClasses
from collegium.protocol.kinds.coverage import CountCoverage
from collegium.protocol.kinds.evaluation import Evaluate
from collegium.protocol.kinds.near_records import CastNeighbours
from collegium.protocol.kinds.teacher_votes import CastVotes
from collegium.protocol.question import PoolRange, Question, QuestionTerms, decode, encode, own_kinds

POOL = "ab" * 32
INPUTS = PoolRange(POOL, (4, 7))
PROJECTED = Features("raw", np.array([[1.0, 0.0], [-3.0, 2.0]], dtype=np.float32))
COVERED = CoverageSpec(Features("raw"), (0, 3), (0, 1), (5, 900))
CELLS, PARTS = float(Layout(3).length), float(Layout(3).parts)
SAMPLED = {"k": 3, "sampling_rate": 0.5}

QUESTIONS = {
    question.kind: question
    for question in (
        CastVotes(QuestionTerms("gnmax", {"sigma": 40}), "ledger", TeacherSettings(), INPUTS, 3),
        CastNeighbours(
            QuestionTerms("individual-knn", {"sigma": 9.5}), "ledger", PROJECTED, INPUTS, 3, (900, 30), "flat"
        ),
        CountNearest(QuestionTerms("knn", SAMPLED), "ledger", Features("raw"), INPUTS, 3, np.array([[1, 2], [5, 5]])),
        SumClasses(QuestionTerms("class-sums", {"classes": 3}), "l", False, KernelSpec(PROJECTED, (2, 5), 900), POOL),
        Evaluate(QuestionTerms("record-counts", {"parts": PARTS, "cells": CELLS}), "l", True, b"file", 3),
        CountCoverage(QuestionTerms("record-counts", {"parts": 1, "cells": COVERED.cells}), "l", False, COVERED, POOL),
    )
}
each = pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))


def refused(kind: str, data: bytes) -> bool:
    with pytest.raises(ProtocolViolation):
        decode(kind, data)
    return True


def leaves(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Everything in a decoded message that holds nothing else, and where it stands."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*at, key))
    else:
        yield at, value


def changed(question: Question, at: tuple[Any, ...], value: Any) -> bytes:
    """The bytes of a question with another value in one place."""
    fields = copy.deepcopy(msgspec.msgpack.decode(encode(question)))
    inside = fields
    for key in at[:-1]:
        inside = inside[key]
    inside[at[-1]] = value
    return msgspec.msgpack.encode(fields)


def test_every_kind_of_this_package_is_tried() -> None:
    assert sorted(set(QUESTIONS) - {"nearest-records"}) == list(own_kinds())


@each
def test_a_question_survives_the_wire_and_no_other_form_of_it_does(question: Question) -> None:
    data = encode(question)
    again = decode(question.kind, data)
    assert type(again) is type(question) and encode(again) == data
    assert again.name == question.name and again.shape == question.shape
    fields = msgspec.msgpack.decode(data)
    assert msgspec.msgpack.encode(fields) == data and list(fields) == sorted(fields)
    assert refused(question.kind, msgspec.msgpack.encode(dict(reversed(fields.items()))))
    assert refused(question.kind, msgspec.msgpack.encode(fields | {"unknown": 1}))
    for missing in fields:
        assert refused(question.kind, msgspec.msgpack.encode({k: v for k, v in fields.items() if k != missing}))
    for inner, inside in [(name, value) for name, value in fields.items() if isinstance(value, dict)]:
        assert refused(question.kind, changed(question, (inner, "unknown"), 1))
        for missing in inside:
            less = {name: value for name, value in inside.items() if name != missing}
            assert refused(question.kind, changed(question, (inner,), less)), (inner, missing)
    assert refused(question.kind, data + b"\x00")


@each
def test_no_part_of_a_question_has_another_type(question: Question) -> None:
    others = {int: [1.0, True, "1", None], float: [1, "1", None], str: [1, b"text", None], bytes: [1, "text", None],
              bool: [0, 1, None], type(None): [1, ""]}  # fmt: skip
    found = list(leaves(msgspec.msgpack.decode(encode(question))))
    assert len(found) > 5
    for at, value in found:
        for other in others[type(value)]:
            assert refused(question.kind, changed(question, at, other)), (at, other)


@each
def test_no_number_of_a_question_is_negative_or_without_end(question: Question) -> None:
    for at, value in leaves(msgspec.msgpack.decode(encode(question))):
        if type(value) is int:
            for other in (-1, -(2**63)):
                assert refused(question.kind, changed(question, at, other)), (at, other)
        if type(value) is float:
            for endless in (float("inf"), float("-inf"), float("nan")):
                assert refused(question.kind, changed(question, at, endless)), at


@each
def test_a_message_that_ends_early_is_refused_wherever_it_ends(question: Question) -> None:
    data = encode(question)
    for end in range(len(data)):
        assert refused(question.kind, data[:end])


VOTES = QUESTIONS["teacher-votes"]
NEAREST = QUESTIONS["nearest-records"]


def test_a_number_of_more_bytes_than_it_needs_is_refused() -> None:
    data, classes = encode(VOTES), b"\xa7classes"
    at = data.index(classes) + len(classes)
    for longer in (b"\xcc\x03", b"\xcd\x00\x03", b"\xd3" + bytes(7) + b"\x03"):
        assert refused(VOTES.kind, data[:at] + longer + data[at + 1 :])


def test_settings_written_otherwise_are_refused() -> None:
    text = TeacherSettings().model_dump_json()
    assert changed(VOTES, ("teacher",), text) == encode(VOTES)
    for other in (text.replace(":", ": "), " " + text, "{}", text[:-1], "[" * 10**5, '{"kind": 1e999}'):
        assert refused(VOTES.kind, changed(VOTES, ("teacher",), other))


@pytest.mark.parametrize(
    "nested",
    [b"\x91" * 10**6, b"\x81\xa1x" * 10**6, b"\x81\xa1x" + b"\x91" * 10**6 + b"\xc0"],
    ids=["lists", "maps", "a"],
)
def test_values_within_values_without_end_are_refused(nested: bytes) -> None:
    data = encode(VOTES)
    at = data.index(b"\xa7classes") + 8
    for sent in (nested, data[:at] + nested, b"\x87\xa0" + nested + data[1:]):
        assert refused(VOTES.kind, sent)


@pytest.mark.parametrize(
    "head", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"], ids=["list", "map", "bytes", "text", "ext"]
)
def test_what_announces_more_than_it_holds_is_refused(head: bytes) -> None:
    data = encode(VOTES)
    at = data.index(b"indices") + len("indices")
    for announced in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        for sent in (head + announced, data[:at] + head + announced, data[:at] + head + announced + data[at + 1 :]):
            assert refused(VOTES.kind, sent)


@pytest.mark.parametrize(
    ("part", "value"),
    [("dtype", "object"), ("dtype", "float64"), ("dtype", "float32"), ("shape", [2**62, 2**62]), ("shape", [0, 2]),
     ("shape", [4]), ("shape", [-2, -2]), ("shape", [1] * 40 + [2, 2]), ("data", b""), ("data", bytes(33)),
     ("data", bytes(2**20))],
)  # fmt: skip
def test_an_array_of_another_form_is_refused(part: str, value: Any) -> None:
    assert refused(NEAREST.kind, changed(NEAREST, ("edges_squared", part), value))


def test_a_kind_that_nobody_has_is_named() -> None:
    for kind in ("curiosity", "", "x" * 10**5):
        with pytest.raises(ProtocolViolation, match="unknown kind"):
            decode(kind, encode(VOTES))
    assert refused(NEAREST.kind, encode(VOTES))


def test_equal_numbers_have_one_encoding_whether_they_are_whole_or_not() -> None:
    whole, other = ({"sigma": 40}, {"sigma": 40.0})
    made = [CastVotes(QuestionTerms("gnmax", said), "ledger", TeacherSettings(), INPUTS, 3) for said in (whole, other)]
    assert encode(made[0]) == encode(made[1]) and made[0].name == made[1].name


def only_or_refused(kind: str, data: bytes) -> None:
    try:
        question = decode(kind, data)
    except ProtocolViolation:
        return
    assert encode(question) == data


@settings(max_examples=400)
@given(kind=st.sampled_from(sorted(QUESTIONS)), data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_in_so_many_words(kind: str, data: bytes) -> None:
    only_or_refused(kind, data)


simple = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
anything = st.recursive(simple, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@pytest.mark.slow
@settings(max_examples=400)
@given(kind=st.sampled_from(sorted(QUESTIONS)), value=anything, data=st.data())
def test_a_question_with_anything_in_one_place_is_refused_or_is_one(kind: str, value: Any, data: st.DataObject) -> None:
    question = QUESTIONS[kind]
    at = data.draw(st.sampled_from([at for at, _ in leaves(msgspec.msgpack.decode(encode(question)))]))
    at = at[: data.draw(st.integers(1, len(at)))]
    only_or_refused(kind, changed(question, at, value))


@pytest.mark.slow
@settings(max_examples=600)
@given(
    kind=st.sampled_from(sorted(QUESTIONS)),
    cut=st.tuples(st.integers(0, 400), st.integers(0, 8)),
    put=st.binary(max_size=8),
)
def test_a_question_with_other_bytes_in_one_place_is_refused_or_is_one(
    kind: str, cut: tuple[int, int], put: bytes
) -> None:
    data, (start, length) = encode(QUESTIONS[kind]), cut
    only_or_refused(kind, data[:start] + put + data[start + length :])


@pytest.mark.parametrize(("value", "advice"), [(np.int64(3), "plain int"), (object(), "package must mend that")])
def test_a_question_of_a_plug_in_that_holds_what_has_no_encoding_is_one_clear_line(value: Any, advice: str) -> None:
    question = copy.copy(QUESTIONS[CastVotes.kind])
    object.__setattr__(question, "classes", value)
    for use in (encode, lambda odd: odd.asked):
        with pytest.raises(ConfigurationError, match=rf"^a question holds no {type(value).__name__}.*{advice}"):
            use(question)


AT_ONCE = """
import os, sys, threading
from unit.questions.test_question_bytes import QUESTIONS, decode, encode
sent = {kind: encode(question) for kind, question in QUESTIONS.items()}
sys.setswitchinterval(1e-6)
copies = [os.fork()]  # none of which has read a question yet
while copies[-1] and len(copies) < 4:
    copies.append(os.fork())
if copies[-1]:
    print([os.waitpid(copy, 0)[1] for copy in copies])
    sys.exit()
ready, decoded = threading.Barrier(40), []
def first():
    ready.wait()
    for kind, data in sent.items():
        decoded.append(encode(decode(kind, data)) == data)
threads = [threading.Thread(target=first) for _ in range(40)]
for do in (threading.Thread.start, threading.Thread.join):
    for thread in threads:
        do(thread)
os._exit(len(decoded) != 40 * len(sent) or not all(decoded))
"""


@pytest.mark.slow
def test_parties_of_one_process_that_get_their_first_question_at_once_read_it() -> None:
    """Where two threads had msgspec read the same class first, the process died, one time of three."""
    path = [entry or "." for entry in sys.path]
    code = f"import sys; sys.path[:] = {path!r}\n{AT_ONCE}"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split("\n") == ["[0, 0, 0, 0]", ""]
