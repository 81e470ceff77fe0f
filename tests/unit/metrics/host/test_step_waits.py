from __future__ import annotations

import pytest

from advisor.model.clause import Missing
from advisor.model.profile import Profile
from tests.tables import Row, kernel, metrics_of, on_host, profile, step, view

PYTORCH = [{"worker": 0, "framework": "pytorch"}]
RECEIVE = "<built-in method recv_into of socket object at 0x7f03adf65420>"
# us: the step to 10000; an op to 4000; log from 5000 to 9500, in which the library waits for a socket
REQUEST = [
    on_host("python", 0, 9_900, name="train.py(8): step"),
    on_host("op", 0, 4_000, name="aten::mm", parent=0),
    on_host("python", 5_000, 9_500, name="app/train.py(31): log", parent=0),
    on_host("python", 5_100, 9_400, name="urllib/request.py(139): urlopen", parent=2),
    on_host("python", 5_200, 9_200, name=RECEIVE, parent=3),
]


def recorded(*more: Row, end: int = 10_000, marked: bool = True) -> Profile:
    steps = [step(1, 0, end, device=None)] if marked else []
    return profile([], [*REQUEST, *more], steps, workers=PYTORCH)


def test_a_wait_for_a_socket_is_named_with_the_user_s_function_that_called_it():
    values = metrics_of(view(recorded()))
    assert values["thread_wait_share"] == pytest.approx(0.4)
    assert values["waiting_calls"] == "recv_into (built-in) in app/train.py(31): log (4 ms)"


def test_a_wait_for_a_process_on_windows_is_one():
    """A loader's `_shutdown_workers` waits so for each of its workers."""
    wait = on_host("python", 1_000, 4_000, name="<built-in function WaitForSingleObject>", parent=0)
    made = profile(
        [],
        [on_host("python", 0, 4_500, name="app/train.py(31): main"), wait],
        [step(1, 0, 10_000, device=None)],
        workers=PYTORCH,
    )
    assert metrics_of(view(made))["thread_wait_share"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    "other",
    [
        on_host("op", 5_200, 9_200, name="aten::mm", thread=7),  # the step waits for that thread's work
        on_host("input", 5_200, 9_200),
        on_host("python", 5_000, 9_500, name="wandb/sdk/run.py(5): log", thread=7),
        on_host("python", 5_000, 9_500, name="torch/serialization.py(5): save"),
    ],
)
def test_a_wait_that_has_another_cause_is_not_counted_twice(other: Row):
    assert metrics_of(view(recorded(other)))["thread_wait_share"] == 0


def test_without_marked_steps_who_waits_may_be_idle():
    share = Missing("thread_wait", share=pytest.approx(4_000 / 9_900), range=RECEIVE)
    later = on_host("op", 9_890, 9_900, name="aten::mm", parent=0)
    assert metrics_of(view(recorded(later, marked=False)))["thread_wait_share"] == share


def test_without_functions_of_python_no_wait_is_known():
    made = profile([], [on_host("op", 0, 40)], [step(1, 0, 100, device=None)], workers=PYTORCH)
    assert metrics_of(view(made))["thread_wait_share"] == Missing("no_python_calls_pytorch")


def test_what_ran_in_open_time_is_told_with_how_much_of_it_that_is():
    """Of 6 ms outside of ops: 4 in the socket, 1 + 0.4 in step, 0.3 in urlopen."""
    values = metrics_of(view(recorded()))
    assert values["open_calls"] == (
        "recv_into (built-in) in app/train.py(31): log (4 ms), train.py(8): step (1.4 ms), "
        "urllib/request.py(139): urlopen in app/train.py(31): log (0.3 ms)"
    )
    assert values["open_calls_part"] == pytest.approx(5.7 / 6)


@pytest.mark.parametrize(
    "name",
    [
        "ThunkExecutor::Execute (wait for completion)",
        "PjitFunction(update)",
        "<built-in method run_backward of torch._C._EngineBase object at 0x7f03cfda7000>",
        "$api.py:12 block_until_ready",
    ],
)
def test_executors_are_no_work_that_a_user_can_change(name: str):
    kind = "python" if name[0] in "<$" else "annotation"
    made = profile([], [on_host("op", 0, 10), on_host(kind, 20, 90, name=name)], [step(1, 0, 100, device=None)])
    values = metrics_of(view(made))
    assert (values["open_calls"], values["open_calls_part"]) == ("", 0)


def test_of_idle_time_whose_cause_is_unknown_it_is_told_what_the_host_ran():
    """No step is marked: what the device waits for before its first op is unknown, and Python's work is not."""
    host = [on_host("python", 0, 600, name="prepare.py(3): zoom", thread=2), on_host("op", 600, 640, thread=2)]
    made = profile([kernel(700, 1000, 610)], host)
    values = metrics_of(view(made))
    assert values["open_calls"].startswith("prepare.py(3): zoom (0.6 ms)")
    marked = metrics_of(view(profile([kernel(700, 1000, 610)], host, [step(1, 0, 1000, host=(0, 1000))])))
    assert marked["open_calls"] == ""
