from __future__ import annotations

import pytest

from tests.tables import metrics_of, on_host, profile, step, values_of, view

ALONE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loop(samples: int, apart: int, decoded: int = 0):
    """Two steps of 10 ms, each of two batches of so many samples; copying takes 100 us, elsewhere too.

    Before the samples, something is decoded.
    """
    host = []
    for at in (0, 4_000, 10_000, 14_000):
        taken, copied = at + decoded, at + decoded + samples * apart
        host.append(on_host("input", at, copied + 100, name=ALONE))
        host += [on_host("op", take, take + 2, name="aten::select") for take in range(taken, copied, apart)]
        host.append(on_host("op", copied, copied + 100, name="aten::stack"))
        host.append(on_host("op", at + 3_500, at + 3_600, name="aten::stack"))
    return view(profile((), host, [step(i, 10_000 * i, 10_000 * i + 10_000, device=None) for i in (0, 1)], devices=()))


def test_samples_that_follow_each_other_are_taken_from_memory():
    expected = {"batches_per_step": 2, "indexed_samples": 8, "collating_part": 0.2}
    assert values_of(expected, loop(8, 50)) == pytest.approx(expected)


@pytest.mark.parametrize(("samples", "apart"), [(8, 51), (7, 50)], ids=["work for each sample", "few samples"])
def test_other_samples_are_not(samples: int, apart: int):
    assert metrics_of(loop(samples, apart))["indexed_samples"] == 0


def test_parts_of_a_few_pictures_are_not():
    """Within a picture the parts follow each other; between two pictures, one is decoded."""
    assert metrics_of(loop(8, 20, decoded=240))["indexed_samples"] == 8
    assert metrics_of(loop(8, 20, decoded=241))["indexed_samples"] == 0


def test_elements_that_a_line_of_the_program_takes_are_no_samples():
    of = loop(8, 50)
    fetch = "torch/utils/data/_utils/fetch.py: _MapDatasetFetcher.fetch"
    line = {"line": "data.py:9", "function": "Noisy.__getitem__", "call": "x[i]", "below": [], "above": fetch}
    of.process["stacks"] = [line | {"samples": 60, "ns": 600, "of_loader": False}]  # type: ignore[index]
    assert metrics_of(of)["indexed_samples"] == 0


def test_without_a_loader_there_are_no_batches():
    host = [on_host("op", 10, 20, name="aten::select"), on_host("op", 20, 30, name="aten::stack")]
    values = metrics_of(view(profile((), host, [step(0, 0, 100, device=None)], devices=())))
    assert {values[name] for name in ("batches_per_step", "indexed_samples", "collating_part")} == {0}
