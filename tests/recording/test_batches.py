"""What is noted of a batch: its sequences, and how much of them is padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from advisor.recording.inside.job import LoaderWatch, UnheldWatch, noted

ROWS = [[5, 6, 7, 8, 0, 0, 0, 0], [5, 6, 0, 0, 0, 0, 0, 0]]


@pytest.fixture
def torch() -> Any:
    """Not every process that collects this module needs it: it takes seconds to import."""
    return pytest.importorskip("torch")


def test_a_mask_says_what_is_padding(torch: Any):
    mask = torch.tensor([[1] * 4 + [0] * 4, [1] * 2 + [0] * 6])
    batch = {"input_ids": torch.ones(2, 8, dtype=torch.long), "attention_mask": mask}
    shape = {"rows": 2, "length": 8, "longest": 4, "tokens": True, "largest": 0}
    assert noted(batch) == {**shape, "padding": 1 - 6 / 16, "unlabelled": 0}


def test_places_that_the_loss_ignores_have_no_label(torch: Any):
    ids = torch.arange(16).view(2, 8)
    note = noted({"input_ids": ids, "labels": torch.where(ids % 4 == 0, ids, -100), "scales": ids.float() - 100})
    assert note is not None
    assert (note["padding"], note["unlabelled"]) == (0, 0.75)


@pytest.mark.parametrize(
    ("batch", "longest", "padding"),
    [
        (lambda torch: torch.tensor(ROWS), 4, 10 / 16),
        (lambda torch: [torch.tensor(ROWS).flip(1), torch.tensor([0, 1])], 4, 10 / 16),  # padded on the left
        (lambda torch: torch.tensor(ROWS).float().unsqueeze(-1).expand(2, 8, 3), 4, 10 / 16),
        (lambda torch: torch.arange(16).view(2, 8), 8, 0),
        (
            lambda torch: torch.tensor([[1, 2, 3, 4, 5, 6, 7, 9], [2, 4, 6, 8, 1, 3, 5, 9]]),
            8,
            0,
        ),  # each text ends alike
    ],
)
def test_without_a_mask_tails_and_heads_that_repeat_a_value_are_padding(
    torch: Any, batch: Callable[[Any], Any], longest: int, padding: float
):
    note = noted(batch(torch))
    assert note is not None
    assert (note["longest"], note["padding"]) == (longest, pytest.approx(padding))


@pytest.mark.parametrize("shape", [(4, 3, 8, 8), (4, 16), (4,)])
def test_pictures_features_and_labels_are_no_sequences(torch: Any, shape: tuple[int, ...]):
    assert noted(torch.zeros(shape)) is None


def sequences(*batches: Any) -> list[dict[str, Any]]:
    watch = LoaderWatch()
    for batch in batches:
        watch.look(batch, profiled=False)
    return watch.sequences()


def test_zeros_at_the_edge_of_images_and_of_labels_for_several_classes_are_no_padding(torch: Any):
    image = torch.ones(2, 16, 16, dtype=torch.long)
    image[:, 8:] = 0
    assert sequences(image, image) == []
    assert sequences(image.float(), image.float()) == []
    assert sequences(torch.tensor(ROWS).clamp(max=1)) == []


def test_features_whose_length_varies_between_batches_are_sequences(torch: Any):
    frames = torch.ones(2, 16, 4)
    frames[:, 12:] = 0
    assert [note["length"] for note in sequences(frames, frames[:, :14])] == [16, 14]
    assert len(sequences(torch.tensor(ROWS), torch.tensor(ROWS))) == 2


@pytest.mark.parametrize("batch", [{"x": 3}, None, "text"])
def test_what_is_no_tensor_is_no_sequence(batch: object):
    assert noted(batch) is None


def test_of_many_batches_the_first_are_noted_and_none_while_a_profiler_runs(torch: Any):
    batches = LoaderWatch()
    batches.look(torch.tensor(ROWS), profiled=True)
    assert not batches.looked
    for _ in range(20):
        batches.look(torch.tensor(ROWS), profiled=False)
    assert len(batches.batches) == batches.looked == 8


@pytest.mark.parametrize(("does_change", "unheld", "part"), [(False, 2, "backbone"), (True, 1, None)])
def test_parameters_with_gradients_that_no_optimizer_has_are_counted(
    torch: Any, *, does_change: bool, unheld: int, part: str | None
):
    model = torch.nn.ModuleDict({"backbone": torch.nn.Linear(3, 4), "head": torch.nn.Linear(4, 2)})
    optimizer, watch = torch.optim.SGD(model.head.parameters(), 0.1), UnheldWatch()
    watch.start()
    model.head(model.backbone(torch.ones(1, 3))).sum().backward()
    optimizer.step()
    if does_change:
        model.backbone.weight.data.add_(1)  # of an optimizer of another kind
    assert watch.facts() == {"unheld": unheld, "unheld_part": part}


def test_parameters_of_a_class_of_their_own_are_not_looked_at(torch: Any):
    """As sharded ones, of which one value may be on another rank."""

    class Sharded(torch.nn.Parameter):  # type: ignore[misc]
        pass

    model = torch.nn.Linear(3, 4)
    model.weight = Sharded(torch.ones(4, 3))
    optimizer, watch = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1), UnheldWatch()
    watch.start()
    assert id(model.bias) in watch.before
    assert id(model.weight) not in watch.before
    assert optimizer


def test_without_an_optimizer_nothing_is_known_of_parameters(torch: Any):
    model, watch = torch.nn.Linear(3, 4), UnheldWatch()
    watch.start()
    model(torch.ones(1, 3)).sum().backward()
    assert not watch.before
    assert watch.facts()["unheld"] == 0


def test_the_largest_id_is_noted(torch: Any):
    note = noted({"input_ids": torch.tensor(ROWS), "attention_mask": torch.ones(2, 8)})
    assert note is not None
    assert note["largest"] == 8
