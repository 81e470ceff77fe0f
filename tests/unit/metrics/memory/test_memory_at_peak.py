from __future__ import annotations

import pytest

from advisor.metrics.memory.allocator import blocks_at_peak
from tests.tables import Row, on_device, on_host, profile, step, view

ENGINE = "autograd::engine::evaluate_function: MmBackward0"
MIB = 1 << 20


def block(at: int, mib: int, total: int, address: int, **columns: object) -> Row:
    """An allocation, negative a release, of so many MiB at a microsecond, and the total after it."""
    memory = {"bytes": mib * MIB, "allocated_bytes": total * MIB, "address": address, "at_ns": at * 1000}
    return {"worker": 0, "device": 0, "thread": 1} | memory | columns


def peak_rows(*allocations: Row, host: tuple[Row, ...] = ()) -> list[tuple[object, ...]]:
    """What, op, within, blocks and MiB, in order."""
    recording = profile([on_device("kernel", 0, 1)], host, [step(1, 0, 100)], allocations=list(allocations))
    rows = blocks_at_peak(view(recording))
    return [(*row[:-1], row[-1] / MIB) for row in rows.rows()]


def test_what_is_released_before_the_peak_or_asked_for_after_it_is_not_there():
    host = (on_host("op", 1, 4, name="aten::mm"), on_host("op", 5, 9, name="aten::add"))
    rows = [
        block(2, 3, 13, 100),
        block(3, -3, 10, 100),
        block(6, 5, 15, 100),
        block(7, 4, 19, 200),
        block(8, -4, 15, 200),
    ]
    assert peak_rows(*rows, block(20, 2, 17, 300), host=host) == [
        ("op", "aten::add", None, 2, 9),
        ("earlier", None, None, None, 10),
    ]


def test_a_block_belongs_to_the_outermost_op_and_to_its_module():
    host = (
        on_host("annotation", 0, 50, name="train"),
        on_host("module", 1, 20, name="nn.Module: Net_0"),
        on_host("module", 2, 19, name="nn.Module: Linear_7"),
        on_host("op", 3, 18, name="aten::linear"),
        on_host("op", 4, 17, name="aten::mm"),
    )
    assert peak_rows(block(5, 2, 2, 100), host=host) == [("op", "aten::linear", "Linear", 1, 2)]


def test_the_backward_pass_and_the_optimizer_are_told():
    host = (
        on_host("op", 0, 10, name=ENGINE),
        on_host("op", 1, 9, name="MmBackward0"),
        on_host("annotation", 20, 40, name="Optimizer.step#Adam.step"),
        on_host("op", 21, 39, name="aten::zeros_like"),
    )
    assert peak_rows(block(5, 2, 2, 100), block(30, 1, 3, 200), host=host) == [
        ("op", "MmBackward0", "backward pass", 1, 2),
        ("op", "aten::zeros_like", "optimizer", 1, 1),
    ]


def test_what_the_allocator_was_told_comes_first_and_numbers_do_not_part():
    regions = [block(n, 1, n, 100 * n, framework_op=f"net/layer_{n}/mul", region="temp") for n in (1, 2)]
    assert peak_rows(*regions) == [("op", "net/layer_*/mul", "temp", 2, 2)]


def test_small_ones_are_one_row_and_all_add_up_to_the_peak():
    host = tuple(on_host("op", 10 * n, 10 * n + 9, name=f"aten::op{n}") for n in range(20))
    rows = [block(10 * n + 1, n + 1, 5 + (n + 1) * (n + 2) // 2, n) for n in range(20)]
    rows_at_peak = peak_rows(*rows, host=host)
    assert rows_at_peak[0] == ("op", "aten::op19", None, 1, 20)
    assert rows_at_peak[-2] == ("others", None, None, 8, 36)
    assert sum(float(str(row[-1])) for row in rows_at_peak) == 215


@pytest.mark.parametrize("missing", ["address", "allocated_bytes"])
def test_blocks_that_cannot_be_told_apart_are_not_told(missing: str):
    assert peak_rows(block(5, 2, 2, 100) | {missing: None}) == []
