from __future__ import annotations

import pytest

from advisor.analysis.device.view import DeviceView
from advisor.model.clause import Missing
from tests.profiles import of_rule
from tests.tables import Row, kernel, metrics_of, on_device, on_host, profile, step, view

PINNED = {"copy_kind": "HtoD", "source_memory": "pinned", "target_memory": "device", "bytes": 2_000_000}


def pinned(start: float = 20, end: float = 320, stream: int = 7, **columns: object) -> Row:
    return on_device("memcpy", start, end, 2, **PINNED | {"stream": stream} | columns)


def with_kernels(copy: Row) -> DeviceView:
    """A copy, then two kernels from 320 to 1000 us."""
    ran = [copy, kernel(320, 620, 3), kernel(620, 1000, 4)]
    return view(profile(ran, steps=[step(1, 0, 1000, host=(0, 5))]))


def test_a_copy_on_the_kernels_stream_can_be_made_ahead():
    values = metrics_of(with_kernels(pinned()))
    assert values["exposed_copy_share"] == pytest.approx(0.3)
    assert values["exposed_copy_bytes_per_step"] == 2_000_000
    assert values["copy_gain_ms"] == pytest.approx(0.3, abs=0.002)
    assert values["copy_least_gain_ms"] == pytest.approx(0.21, abs=0.002)


@pytest.mark.parametrize(
    "columns",
    [{"bytes": 999_999}, {"source_memory": "pageable"}, {"copy_kind": "DtoH"}],
    ids=["small", "pageable", "to the host"],
)
def test_other_copies_are_left_out(columns: dict[str, object]):
    values = metrics_of(with_kernels(pinned(**columns)))
    assert values["exposed_copy_of"] == ""
    shares = ("exposed_copy_share", "exposed_copy_same_stream_share", "exposed_copy_parameter_share")
    rest = ("exposed_copy_bytes_per_step", "copy_least_gain_ms", "copy_gain_ms")
    assert {values[name] for name in (*shares, *rest)} == {0}


def test_a_copy_from_memory_of_unknown_kind_counts():
    assert metrics_of(with_kernels(pinned(source_memory=None)))["exposed_copy_share"] == pytest.approx(0.3)


def test_what_runs_beside_a_kernel_is_hidden_and_never_gained():
    values = metrics_of(with_kernels(pinned(220, 520, stream=9)))
    assert values["exposed_copy_share"] == pytest.approx(0.1)
    assert values["copy_gain_ms"] <= 0.1


@pytest.mark.parametrize(("kernel_us", "gained_us"), [(0, 0), (100, 100), (400, 300)])
def test_no_more_is_gained_than_kernels_can_hide(kernel_us: float, gained_us: float):
    ran = [pinned(), *([kernel(320, 320 + kernel_us, 3)] if kernel_us else [])]
    values = metrics_of(view(profile(ran, steps=[step(1, 0, 1000, host=(0, 5))])))
    assert values["exposed_copy_share"] == pytest.approx(0.3)
    assert values["copy_gain_ms"] == pytest.approx(gained_us / 1e3, abs=0.002)


def test_without_launches_the_exposed_time_is_the_most():
    ran = [on_device("memcpy", 0, 300, **PINNED), kernel(200, 1000)]
    values = metrics_of(view(profile(ran, steps=[step(1, 0, 1000)])))
    assert values["copy_least_gain_ms"] == 0
    assert values["copy_gain_ms"] == pytest.approx(0.2)


def test_copies_whose_launch_was_not_recorded_are_gained_at_most_beside_what_the_replay_gives():
    # us: 300 of copy called in the recording, then 200 called before it; no replay can hold the latter
    ran = [pinned(), on_device("memcpy", 320, 520, stream=7, **PINNED), kernel(520, 1000, 4)]
    values = metrics_of(view(profile(ran, steps=[step(1, 0, 1000, host=(0, 5))])))
    alone = metrics_of(view(profile([pinned(), kernel(320, 1000, 4)], steps=[step(1, 0, 1000, host=(0, 5))])))
    assert values["copy_gain_ms"] == pytest.approx(0.48, abs=0.002)  # no more kernels are there to hide behind
    assert values["copy_least_gain_ms"] <= alone["copy_least_gain_ms"]


def test_copies_in_one_stream_with_kernels_are_told_from_those_in_one_of_their_own():
    assert metrics_of(with_kernels(pinned(stream=7)))["exposed_copy_same_stream_share"] == 1
    assert metrics_of(with_kernels(pinned(stream=9)))["exposed_copy_same_stream_share"] == 0


def test_the_outermost_range_that_is_not_around_all_tells_what_is_pinned():
    # us: forward 0 to 900 is around everything; FSDP's range 1 to 10 holds the op 1 to 9, which launches 300 us of copy
    ranges = [
        on_host("annotation", 0, 900, thread=2, name="forward"),
        on_host("annotation", 1, 10, thread=2, name="FSDP::pre_forward (block.14.layer.1)", parent=0),
        on_host("op", 1, 9, thread=2, name="aten::to", parent=1),
    ]
    ran = [pinned(), pinned(320, 420), kernel(420, 1000, 4)]
    ran[0]["call"] |= {"parent": 2}
    values = metrics_of(view(profile(ran, ranges, [step(1, 0, 1000)])))
    assert values["exposed_copy_of"] == "FSDP::pre_forward (block.N.layer.N)"
    assert values["exposed_copy_parameter_share"] == pytest.approx(300 / 400)


def test_what_a_program_of_xla_fetches_by_itself_is_kept_in_host_memory_and_in_no_ones_way():
    values = metrics_of(with_kernels(pinned(hlo_module="jit_f", hlo_category="copy-done")))
    assert values["exposed_copy_share"] == pytest.approx(0.3)
    assert (values["exposed_copy_parameter_share"], values["exposed_copy_same_stream_share"]) == (1, 0)


@pytest.mark.parametrize(("module", "share"), [(None, 0.3), ("jit_f", 0)])
def test_what_a_program_of_xla_fetches_by_itself_is_no_batch(module, share):
    assert of_rule("host-transfer-bound", with_kernels(pinned(hlo_module=module)))["enqueue_share"] == pytest.approx(
        share
    )


def test_a_copy_of_no_telling_range_is_of_unknown_content():
    values = metrics_of(with_kernels(pinned()))
    assert (values["exposed_copy_of"], values["exposed_copy_parameter_share"]) == ("", 0)


def test_copies_of_unknown_direction_leave_it_open():
    large, small = (on_device("memcpy", 0, us, 0) for us in (60, 4))
    values = metrics_of(view(profile([large, kernel(60, 100, 60)], [], [step(1, 0, 100)])))
    assert isinstance(values["exposed_copy_share"], Missing)
    assert metrics_of(view(profile([small, kernel(60, 100, 60)], [], [step(1, 0, 100)])))["exposed_copy_share"] == 0
