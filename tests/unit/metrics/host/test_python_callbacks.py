"""Python inside compiled code: a part of its own, and no useful work."""

from __future__ import annotations

import pytest

from advisor.metrics.steps.breakdown import accounting
from advisor.model.profile import Profile
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

# us          0    10        30             70        100
# fusion.1    ======                                       the op before the callback
# custom-call      ============================            Python inside it from 30 to 70
HOST = [
    on_host("op", 0, 10, name="fusion.1"),
    on_host("op", 10, 80, name="custom-call.3"),
    on_host("python", 30, 70, name="$callback.py:224 _callback", parent=1),
    on_host("python", 35, 40, name="$tree_util.py:7 tree_map", parent=2),
    on_host("python", 40, 65, name="$metrics.py:12 f1_score", parent=2),
]


def jax(host: list[Row], *, framework: str = "jax", device: int | None = None) -> Profile:
    worker = {"worker": 0, "framework": framework}
    ops = [] if device is None else [kernel(0, 10, 0)]
    return profile(ops, host, [step(1, 0, 100, device=device)], workers=[worker])


def test_python_inside_an_op_is_a_loss_and_named_by_the_program_s_function():
    trace = view(jax(HOST))
    values = metrics_of(trace)
    assert values["callback_share"] == pytest.approx(0.40)
    assert of_rule("python-callbacks", trace)["called_names"].startswith("$metrics.py:12 f1_score (25 µs)")
    parts = {row["part"]: row["time_ns"] // 1000 for row in accounting(trace).to_dicts()}
    assert parts == {"callback": 40, "between": 20, "operators": 40}


def test_without_python_s_calls_the_op_s_name_tells():
    trace = view(jax([on_host("op", 0, 10, name="dot.4"), on_host("op", 10, 80, name="io_callback.2")]))
    values = metrics_of(trace)
    assert values["callback_share"] == pytest.approx(0.70)
    assert of_rule("python-callbacks", trace)["called_names"] == ""


def test_neither_autograd_nor_a_pipeline_nor_a_device_s_step():
    inside = on_host("python", 20, 70, name="$augment.py:3 flip", parent=0)
    of_data = [on_host("op", 10, 80, name="map/fn:EagerPyFunc"), inside]
    for made in (jax(HOST, framework="pytorch"), jax(of_data), jax(HOST, device=0)):
        assert metrics_of(view(made))["callback_share"] == 0
