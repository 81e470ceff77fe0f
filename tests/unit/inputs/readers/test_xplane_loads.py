"""What stands in for a request for input: told by its place in the step alone."""

from __future__ import annotations

import polars as pl

from advisor.inputs.readers.xplane.links import with_loads
from advisor.model.profile import HOST_OP_KINDS

US = 1_000


def host(*rows: tuple[str, str, int, int, int | None]) -> pl.DataFrame:
    """Rows of (kind, name, start, end, parent) in us, all of one thread and of step 1."""
    return pl.DataFrame(
        [
            {
                "id": i,
                "kind": kind,
                "name": name,
                "start_ns": start * US,
                "dur_ns": (end - start) * US,
                "parent": parent,
            }
            for i, (kind, name, start, end, parent) in enumerate(rows)
        ],
        schema_overrides={"kind": HOST_OP_KINDS, "parent": pl.Int64},
    ).with_columns(thread=pl.lit(1, pl.Int64), step=pl.lit(1, pl.Int32))


def loads(frame: pl.DataFrame) -> list[str]:
    return with_loads(frame).filter(pl.col("kind") == "input")["name"].to_list()


STEP = ("step", "train", 0, 1000, None)
DISPATCH = ("annotation", "PjitFunction(step)", 500, 600, 0)


def test_the_outermost_ranges_before_the_first_dispatch():
    frame = host(STEP, ("annotation", "x", 0, 400, 0), ("python", "$time sleep", 10, 390, 1), DISPATCH)
    assert loads(frame) == ["x"]


def test_not_what_comes_after_it_nor_what_holds_it():
    after = ("annotation", "save", 700, 900, 0)
    holder = ("python", "$train.py:1 step", 450, 650, 0)
    inner = ("annotation", "augment", 455, 490, 2)
    frame = host(STEP, after, holder, inner, ("annotation", "PjitFunction(step)", 500, 600, 2))
    assert loads(frame) == ["augment"]


def test_not_what_is_too_short_or_of_a_step_that_dispatches_nothing():
    assert loads(host(STEP, ("annotation", "x", 0, 9, 0), DISPATCH)) == []
    assert loads(host(STEP, ("annotation", "x", 0, 400, 0))) == []


def test_not_where_the_framework_names_its_requests():
    asked = ("input", "IteratorGetNextOp::DoCompute", 410, 420, 0)
    assert loads(host(STEP, ("annotation", "x", 0, 400, 0), asked, DISPATCH)) == [asked[1]]


def test_not_what_follows_a_wait_for_a_result():
    """us 0 to 480: a batch, a log line that fetches the last loss, then what may need that loss, then the dispatch."""
    rows = [
        STEP,
        ("python", "$feed.py:9 crop", 5, 45, 0),
        ("python", "$log.py:4 report", 50, 290, 0),
        ("python", "$array.py:321 __float__", 60, 280, 2),
        ("python", "$array.py:615 _value", 65, 275, 3),
        ("python", "$train.py:7 evaluate", 300, 340, 0),
        ("annotation", "np.asarray(jax.Array)", 345, 400, 0),
        ("python", "$api.py:2479 block_until_ready", 405, 480, 0),
        ("python", "$tree_util.py:101 tree_leaves", 410, 440, 7),
        DISPATCH,
    ]
    assert loads(host(*rows)) == ["$feed.py:9 crop"]


def test_what_another_thread_makes_is_taken_over_after_a_result_too():
    waits, other = ("annotation", "np.asarray(jax.Array)", 5, 90, 0), ("python", "$train.py:7 evaluate", 100, 150, 0)
    for name in ("$queue.py:154 get", "$_base.py:428 result"):
        asks = ("python", "$train.py:9 next_batch", 200, 400, 0), ("python", name, 210, 390, 3)
        assert loads(host(STEP, waits, other, *asks, DISPATCH)) == ["$train.py:9 next_batch"]
        assert loads(host(STEP, waits, other, (*asks[1][:4], 0), DISPATCH)) == [name]
    assert loads(host(STEP, waits, ("python", "$queue.py:122 put", 200, 400, 0), DISPATCH)) == []


def test_not_what_follows_a_result_in_another_step_or_saves_or_logs():
    """A result that is ready needs no wait."""
    first = host(
        STEP, ("python", "$train.py:7 evaluate", 100, 300, 0), ("python", "$numpy save", 310, 400, 0), DISPATCH
    )
    waits = ("python", "$api.py:2479 block_until_ready", 10, 90, 0)
    other = host(STEP, waits, ("python", "$train.py:7 evaluate", 100, 300, 0), DISPATCH)
    later = other.with_columns(
        pl.col("id", "parent") + first.height, pl.col("start_ns") + 1000 * US, step=pl.lit(2, pl.Int32)
    )
    assert loads(first) == ["$train.py:7 evaluate"]
    assert loads(pl.concat([first, later])) == []
