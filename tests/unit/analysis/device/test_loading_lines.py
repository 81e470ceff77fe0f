"""Which lines make a batch: in worker processes or the main one, and what the loader itself does."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.analysis.device.loading_stages import loading_lines, once
from tests.tables import on_host, profile, step, view

FETCH = "torch/utils/data/_utils/fetch.py: _MapDatasetFetcher.fetch"
COLLATE = "torch/utils/data/_utils/collate.py: default_collate"
WAIT = "torch/utils/data/_utils/worker.py: _worker_loop"
LOOP = {"line": "train.py:30", "function": "main", "call": "enumerate", "needed": []}


def stack(line: str, call: str, samples: int, *below: str, of_loader: bool, **more: Any) -> dict[str, Any]:
    known = {"line": line, "call": call, "below": [*below], "samples": samples, "ns": samples, "of_loader": of_loader}
    return {"function": "main", "above": None, "callers": []} | known | more


def parts(*, of_loader: bool) -> list[tuple[str, float]]:
    """Of 100 samples, 61 decode in two lines, 15 augment, 20 collate, 4 are the loader's; the worker also waits."""
    item = {"line": "data.py:8", "function": "Images.__getitem__", "call": "self.decode", "needed": []}
    of_item = {"above": FETCH, "callers": [LOOP, item], "function": "Images.decode"}
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    stacks = [
        stack("train.py:31", "loss.backward", 500, "torch/_tensor.py: Tensor.backward", of_loader=False),
        stack("data.py:20", "Image.open", 40, of_loader=of_loader, **of_item),
        stack("data.py:21", ".resize", 21, of_loader=of_loader, **of_item),
        stack("data.py:9", "flip", 15, of_loader=of_loader, above=FETCH, callers=[LOOP], function="Images.__getitem__"),
        stack("train.py:30", "enumerate", 20, FETCH, COLLATE, of_loader=of_loader),
        stack("train.py:30", "enumerate", 4, FETCH, of_loader=of_loader),
        stack("train.py:30", "enumerate", 900, WAIT, of_loader=of_loader),
    ]
    of.process.update({"stacks": stacks})  # type: ignore[attr-defined]
    return loading_lines(of)


def test_the_lines_of_a_batch_are_those_that_the_loader_calls():
    expected = [
        ("data.py:20-21 in `Images.decode`", 0.61),
        ("collating samples into a batch", 0.20),
        ("data.py:9 `flip(...)` in `Images.__getitem__`", 0.15),
    ]
    assert parts(of_loader=True) == expected
    assert parts(of_loader=True) == parts(of_loader=False)


def test_what_need_not_be_done_for_each_sample_has_its_part_of_the_loading():
    """Of 100 samples, 30 look rows up, 45 match expressions; the 500 of the step's own work do not count."""
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    of_item = {"above": FETCH, "callers": [LOOP], "function": "Texts.__getitem__", "of_loader": False}
    stacks = [
        stack("train.py:31", "re.sub", 500, "re/__init__.py: sub", of_loader=False),
        stack("data.py:8", "rows[i]", 30, "pandas/core/frame.py: DataFrame.__getitem__", **of_item),
        *(stack(f"data.py:{line}", "re.sub", 15, "re/__init__.py: sub", **of_item) for line in (9, 10, 11)),
        stack("data.py:12", "flip", 25, **of_item),
    ]
    of.process.update({"stacks": stacks})  # type: ignore[attr-defined]
    advice, part = once(of)
    assert (advice[:15], part) == ("Clean the texts", 0.45)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("[src == i]", "Group all rows"),
        ("[self.table[...] == self.users[i]]", "Group all rows"),
        ("i in self.kept", "Ask a `set`"),
        ("labels[:, None] == labels", None),
        ("labels == labels.T", None),
    ],
)
def test_a_sample_that_is_found_among_all_has_an_advice(line: str, advice: str | None):
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    of_item = {"above": FETCH, "callers": [LOOP], "function": "Nodes.__getitem__", "of_loader": False}
    stacks = [stack("data.py:9", line, 60, **of_item), stack("data.py:9", "mean", 40, **of_item)]
    of.process.update({"stacks": stacks})  # type: ignore[attr-defined]
    named, part = once(of)
    assert (named.startswith(advice), part) == (True, 0.6) if advice else part == 0


def test_a_sampler_that_takes_most_of_the_loading_is_named_with_what_to_do_about_it():
    """Of 100 samples 60 choose, in the program's sampler or in PyTorch's."""
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    chooses = {"above": "torch/utils/data/dataloader.py: _BaseDataLoaderIter._next_index", "callers": [LOOP]}
    loads = {"above": FETCH, "callers": [LOOP]}
    of_torch = stack(
        "train.py:30", "enumerate", 5, "torch/utils/data/sampler.py: RandomSampler.__iter__", of_loader=False
    )
    of.process["stacks"] = [  # type: ignore[index]
        stack("data.py:4", "draw", 55, of_loader=False, function="Sampler.__iter__", **chooses),
        of_torch,
        stack("data.py:9", "flip", 40, of_loader=False, function="Images.__getitem__", **loads),
    ]
    assert loading_lines(of)[0] == ("data.py:4 `draw(...)` in `Sampler.__iter__`", 0.55)
    advice, part = once(of)
    assert (advice[:10], part) == ("Choose the", 0.55)


def test_a_data_set_of_a_library_has_no_line_of_the_program():
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    decode = stack("train.py:30", "enumerate", 40, "PIL/ImageFile.py: ImageFile.load", of_loader=True, of_fetch=0)
    of.process.update({"stacks": [decode]})  # type: ignore[attr-defined]
    assert loading_lines(of) == [("the loader, with its libraries,", 1.0)]


def test_without_stacks_no_line_is_known():
    assert loading_lines(view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))) == []


def test_batches_of_keras_are_not_advised_to_be_made_by_a_dataloader():
    of = view(profile([], [on_host("op", 0, 10)], [step(1, 0, 100, device=None)]))
    resize = {"above": FETCH, "callers": [LOOP], "known": "imaging", "of_loader": False}
    of.process.update({"stacks": [stack("data.py:8", "picture.resize", 90, "PIL/Image.py: Image.resize", **resize)]})  # type: ignore[attr-defined]
    assert "DataLoader" in once(of)[0]
    of.process.update({"marker": "fit"})  # type: ignore[attr-defined]
    assert once(of)[0].endswith("`numpy.save`.")
