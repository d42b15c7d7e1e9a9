"""Arrays are named by their content, type and shape, and travel in pieces."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from collegium.data import array_spec
from collegium.errors import ProtocolViolation

FORMS = arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)


def test_name_is_the_digest_of_the_written_header_and_bytes() -> None:
    array = np.array([[1.0, 2.0]], dtype=np.float32)
    expected = hashlib.sha256(b"collegium-array-v1 float32 1,2\n" + bytes.fromhex("0000803f00000040")).hexdigest()
    assert array_spec(array).sha256 == expected


@given(arrays.arrays(np.float32, FORMS))
def test_memory_layout_and_byte_order_do_not_change_the_name(array: np.ndarray) -> None:
    spec = array_spec(array)
    assert array_spec(np.asfortranarray(array)) == spec
    assert array_spec(array.astype(">f4")) == spec


def test_shape_and_type_are_part_of_the_name() -> None:
    zeros = np.zeros((4, 4), dtype=np.uint8)
    names = {array_spec(a).sha256 for a in (zeros, zeros.reshape(2, 8), zeros.view(np.float32), zeros[:2])}
    assert len(names) == 4


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((0, 3), dtype=np.uint8), np.uint8(3), np.array(["a"])])
def test_arrays_that_the_protocol_does_not_know_have_no_name(array: np.ndarray) -> None:
    with pytest.raises(ProtocolViolation):
        array_spec(np.asarray(array))
