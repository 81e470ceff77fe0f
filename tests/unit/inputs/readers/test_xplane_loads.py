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


def test_not_a_wait_for_what_an_earlier_step_computes():
    """us 0 to 480: a log line that fetches the last loss, 300 to 340 the batch, then the dispatch."""
    rows = [
        STEP,
        ("python", "$log.py:4 report", 0, 290, 0),
        ("python", "$array.py:321 __float__", 10, 280, 1),
        ("python", "$array.py:615 _value", 15, 275, 2),
        ("python", "$feed.py:9 crop", 300, 340, 0),
        ("annotation", "np.asarray(jax.Array)", 345, 400, 0),
        ("python", "$api.py:2479 block_until_ready", 405, 480, 0),
        ("python", "$tree_util.py:101 tree_leaves", 410, 440, 6),
        DISPATCH,
    ]
    assert loads(host(*rows)) == ["$feed.py:9 crop"]
