from __future__ import annotations

from advisor.analysis.device.places import places
from tests.tables import kernel, on_host, profile, step, view

# us        0    20           100   120                 1300  1320
# kernels   =====             =====                     =====        the calls return as they start, after 1 us
DEVICE = [kernel(0, 20, 0), kernel(100, 120, 100), kernel(1300, 1320, 1300)]


def test_places_are_those_of_used_steps_the_longest_first():
    host = [on_host("op", 5, 6, name="a"), on_host("op", 110, 130, name="b"), on_host("op", 210, 290, name="late")]
    trace = view(profile(DEVICE, host, [step(7, 0, 100), step(8, 100, 200)]))
    ranges = places(lambda trace: trace.host.filter(trace.host["kind"] == "op"))(trace)
    assert ranges.select("step", "name", "op").rows() == [(8, "b", 1), (7, "a", 0)]
