"""Every fact about an op is stated where it is defined."""

import pytest

from softmesh.dispatch.operation import operation


def test_an_op_without_a_kind_cannot_be_registered():
    with pytest.raises(TypeError, match="kind"):
        operation("kindless")  # type: ignore[call-arg]
