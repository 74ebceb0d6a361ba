"""Values of attributes, as columns."""

from __future__ import annotations

import pytest

from weir.errors import InputError
from weir.namespaces import parse_type
from weir.namespaces.values import as_column


@pytest.mark.parametrize("whole", [2**53 + 1, 2**63, 10**30, -(10**300)])
def test_a_float_may_be_a_whole_number_of_any_size(whole: int) -> None:
    assert as_column("f", parse_type("float"), [whole, 0.5, None]).to_pylist() == [float(whole), 0.5, None]
    assert as_column("f", parse_type("[]float"), [[whole, 0.5], []]).to_pylist() == [[float(whole), 0.5], []]


def test_a_whole_number_that_no_float_has_is_refused() -> None:
    with pytest.raises(InputError, match="row 1: attribute 'f' is float, got int, which is out of range"):
        as_column("f", parse_type("float"), [0.5, 10**400])
