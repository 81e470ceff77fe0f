from __future__ import annotations

from advisor.present.document import SourceLine
from advisor.present.findings import frames, source_lines
from tests.render_samples import RESNET, changed, place


def lines(*stacks: str | None) -> list[SourceLine]:
    where = tuple(place("op", n, 1.0, **({} if s is None else {"stack": s})) for n, s in enumerate(stacks))
    return list(source_lines(changed(RESNET.findings[0], where=where)))


def test_the_innermost_frame_of_the_users_code_is_the_line():
    stack = "torch/nn/modules/module.py(1501): _call_impl;src/model.py(42): forward;train.py(7): main"
    assert lines(stack) == [SourceLine("src/model.py", 42)]


def test_the_frames_worth_reading_are_those_whose_lines_are_the_users():
    own, inner = ["src/model.py(42): forward", "nn.Module: Net_0"], ["numpy/core.py(3): dot", "<built-in method sum>"]
    torch, bare = "torch/nn/modules/module.py(9): call", "threading.py(9): wait"
    assert frames(";".join([*inner, own[0], torch, bare, own[1]])) == own
    assert frames(";".join([*inner, torch])) == [*inner, torch]


def test_a_line_is_named_once_and_libraries_never():
    library = "/env/lib/python3.11/threading.py(3): run"
    assert lines("train.py(7): f", "train.py(7): f", None, library, "<string>(1): x") == [SourceLine("train.py", 7)]


def test_the_standard_library_is_not_the_users_code():
    assert lines("threading.py(9): wait;multiprocessing/spawn.py(1): main;train.py(7): f") == [
        SourceLine("train.py", 7)
    ]
    assert lines("transformers/models/bert/modeling_bert.py(9): forward;train.py(7): f") == [SourceLine("train.py", 7)]
    assert lines("src/queue/typing.py(9): f") == [SourceLine("src/queue/typing.py", 9)]


def test_a_folder_that_only_ends_like_a_library_is_the_users():
    assert lines("mytorch/train.py(7): f") == [SourceLine("mytorch/train.py", 7)]
