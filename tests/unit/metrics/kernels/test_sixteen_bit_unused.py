from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from tests.tables import kernel, metrics_of, on_host, profile, step, view

STEP = [step(1, 0, 100)]


def test_the_types_of_the_launching_ops_tell_what_runs_in_sixteen_bits():
    half = on_host("op", 0, 1, name="a/b:Mul", dtypes='["c10::BFloat16"]', shapes="[[4]]")
    single = on_host("op", 2, 3, name="a/c:Add", dtypes='["float"]', shapes="[[4]]")
    values = metrics_of(view(profile([kernel(0, 30, op=0), kernel(40, 50, op=1)], [half, single], STEP)))
    assert values["sixteen_bit_kernel_share"] == pytest.approx(0.75)


def test_where_the_types_of_most_kernels_are_unknown_so_is_the_share():
    values = metrics_of(view(profile([kernel(0, 30)], steps=STEP)))
    assert isinstance(values["sixteen_bit_kernel_share"], Missing)
