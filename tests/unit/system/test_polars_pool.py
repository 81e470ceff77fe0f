import sys
import threading
from collections.abc import Callable

import polars as pl
import pytest

from advisor.system.polars_pool import inside_pool


def test_work_runs_on_a_thread_of_the_pool_or_where_it_is_under_a_debugger() -> None:
    here = threading.get_native_id()
    is_watched = sys.gettrace() is not None or sys.getprofile() is not None  # coverage, too
    assert (inside_pool(threading.get_native_id) == here) == is_watched

    def watch(*_: object) -> None: ...

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        assert inside_pool(threading.get_native_id) == here
    finally:
        sys.setprofile(before)


def test_polars_and_the_pool_itself_work_inside() -> None:
    def total() -> int:
        rows = pl.DataFrame({"name": ["a", "b"] * 500, "ns": range(1000)}).group_by("name").agg(pl.col("ns").sum())
        return int(rows["ns"].sum())

    assert inside_pool(lambda: inside_pool(total)) == 499_500


def _wrong_name() -> None:
    pl.DataFrame({"a": [1]}).select("b")


def _stop() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "error"), [(_wrong_name, pl.exceptions.ColumnNotFoundError), (_stop, KeyboardInterrupt)]
)
def test_an_error_comes_out_as_it_is(work: Callable[[], None], error: type[BaseException]) -> None:
    with pytest.raises(error) as caught:
        inside_pool(work)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_nothing_is_a_result_too() -> None:
    assert inside_pool(lambda: None) is None
