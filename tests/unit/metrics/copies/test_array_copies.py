"""Copies of arrays in the steps of JAX on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.analysis.device.view import DeviceView
from tests.profiles import of_rule
from tests.tables import on_host, profile, step, view


def of(framework: str, *host: dict[str, object]) -> DeviceView:
    worker = view(profile((), list(host), [step(1, 0, 100, device=None)]))
    return replace(worker, process={**worker.process, "framework": framework}, _computed={})


def test_copies_count_once_on_whichever_thread_while_nothing_compiles_or_computes():
    # 0 to 20 and 30 to 50 of 100 are copies, from 40 on beside a program; what compilation puts is none of a step's
    rows = [
        on_host("python", 0, 10, name="$<unknown> copy"),
        on_host("annotation", 5, 20, name="H2D Dispatch", thread=2),
        on_host("annotation", 30, 50, name="DevicePutWithSharding"),
        on_host("op", 40, 55, name="dot.3", thread=3, step=1),
        on_host("python", 50, 60, name="$copy.py:3 copy_tree"),
        on_host("compile", 60, 75, name="backend_compile"),
        on_host("annotation", 60, 70, name="DevicePut"),
    ]
    values = of_rule("array-copies", of("jax", *rows))
    assert values["array_copy_share"] == pytest.approx(0.3)
    names = "H2D Dispatch (15 µs), $<unknown> copy (10 µs), DevicePutWithSharding (10 µs)"
    assert values["array_copy_names"] == names
