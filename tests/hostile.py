"""What the tests of all readers on hostile files share: bytes changed, and the promises that every Profile keeps."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from advisor.errors import ReadError
from advisor.model.profile import Profile

Read = Callable[[bytes, str], Profile]

places = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4)
"""Where a file is changed, as shares of its length, and what is changed there."""


def outcome(read: Read, data: bytes, name: str) -> Profile | None:
    """What was read, checked; None where it was refused as it should be."""
    try:
        profile = read(data, name)
    except ReadError as error:
        assert str(error).startswith(f"{name}: ")
        assert "\n" not in str(error)
        return None
    assert_consistent(profile)
    return profile


def assert_consistent(profile: Profile) -> None:
    """Every reference leads somewhere, no time runs backwards or off the scale, and no note is longer than a line."""
    host, device = profile.host_ops, profile.device_ops
    assert host.height or device.height
    assert host["id"].to_list() == list(range(host.height))
    assert device["id"].to_list() == list(range(device.height))
    for reference in (host["parent"], device["launch"], device["op"]):
        assert reference.drop_nulls().is_between(0, host.height - 1).all()
    for spans in (host, device, profile.steps):
        assert (spans["dur_ns"] >= 0).all()
        assert (spans["start_ns"] + spans["dur_ns"] >= spans["start_ns"]).all()
    assert set(device["step"].drop_nulls()) <= set(profile.steps["step"])
    assert not profile.steps.select("device", "step").is_duplicated().any()
    assert profile.collectives["device_op"].is_between(0, device.height - 1).all()
    assert all("\n" not in note.words for note in profile.salvaged)


def flipped(data: bytes, at: list[tuple[float, int]]) -> bytes:
    """Data with a byte changed at each place."""
    changed = bytearray(data)
    for share, change in at:
        changed[int(share * len(data))] ^= change
    return bytes(changed)
