"""Whatever is in the file, the reader gives a Profile that keeps its promises, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.model.profile import Profile
from tests import hostile as files
from tests.effort import examples
from tests.hostile import flipped, places
from tests.strategies_xplane import GPU, HOST, JAX, event, field, line, messages, plane, read, space, spaces

SMALL = Path(__file__).parents[2].parent / "shared/traces/xplane/jax-cpu/plugins/profile"


def outcome(data: bytes) -> Profile | None:
    """What was read, checked; None where it was refused as it should be."""
    profile = files.outcome(read, data, "a/host.xplane.pb")
    assert profile is None or profile.device_ops["occupancy"].drop_nulls().is_between(0, 1).all()
    return profile


@examples(0.6)
@given(st.binary(max_size=300) | messages)
def test_any_bytes(data: bytes):
    outcome(data)
    outcome(field(1, data))
    outcome(field(1, field(2, HOST) + field(3, data)))
    outcome(field(1, field(2, HOST) + field(4, data) + field(5, data) + field(3, field(4, data))))
    outcome(JAX + data)
    outcome(JAX[: len(JAX) // 2] + data + JAX[len(JAX) // 2 :])


@examples(0.6)
@given(places, st.floats(0, 1))
def test_a_profile_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[float, int]], kept: float):
    changed = flipped(JAX, changes)
    outcome(changed)
    outcome(changed[: int(kept * len(JAX))])
    cut = outcome(JAX[: int(kept * len(JAX))])
    assert cut is None or cut.salvaged or kept > 0.9


@examples(0.15)
@given(places, st.floats(0, 1))
def test_a_real_profile_with_bytes_changed_and_its_end_cut_off(changes: list[tuple[float, int]], kept: float):
    if not SMALL.is_dir():
        pytest.skip(f"{SMALL} is not there")
    (data,) = (path.read_bytes() for path in SMALL.glob("*/*.xplane.pb"))
    outcome(flipped(data, changes))
    outcome(data[: int(kept * len(data))])


@examples(1.5)
@given(spaces)
@example(space(plane(GPU, line(event("k", 0, 1), name="Stream #1(Kernel)"), core_count=2**31, memory_size=2**63 - 1)))
def test_any_values_in_any_stat(data: bytes):
    outcome(data)


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a plane of 2**63 bytes
        b"\x0a" + b"\xff" * 11,
        field(1, field(2, HOST) + field(3, b"\x22\xff\xff\xff\xff\x0f")),  # an event of 4 GB
        field(1, field(2, HOST) + field(3, field(4, b"\x22\x00" * 100_000))),  # one with 100,000 stats
        field(1, field(2, HOST) + field(3, b"\x22\x00" * 100_000)),  # 100,000 empty events
        field(1, field(2, HOST) + b"\x2a\x00" * 50_000),
        field(1, field(2, HOST) + b"\x1a\x00" * 20_000),  # 20,000 empty lines
        b"\x0a\x00" * 1_000,
        plane(HOST)[:-1] * 3,
    ],
    ids=lambda hostile: repr(hostile[:24]),
)
def test_what_may_take_for_ever_or_all_memory(hostile: bytes):
    outcome(hostile)
    profile = outcome(JAX + hostile)
    assert profile is None or profile.steps.height == 2
