"""Many small calls of polars, made where polars works: none of them wakes a thread and waits for it."""

import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, TypeVar

import polars as pl

_T = TypeVar("_T")

_SEVERAL: Final = pl.DataFrame({"first": [0], "second": [0]})  # expressions of one are not handed to the pool


def inside_pool(work: Callable[[], _T]) -> _T:
    """What `work` gives, or raises, on a thread of polars' pool: a call from outside wakes one and waits for it.

    That takes longer than all that a call does with a small table. `work` must not wait for another thread that calls
    polars. Under a debugger or a measurement of coverage, which sees only threads of Python, it runs where it is.
    """
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return work()
    context, results = copy_context(), list[_T]()
    errors: list[BaseException] = []

    def run(column: pl.Series, **_: object) -> pl.Series:
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again below: polars would make another of it
            errors.append(error)
        return column

    expression = pl.col("first").map_batches(run, return_dtype=pl.Int64)
    _SEVERAL.select(expression, "second")
    for error in errors:
        raise error
    return results[0]
