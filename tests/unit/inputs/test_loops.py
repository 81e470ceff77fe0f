"""Loops without marks, in sequences by hand: one letter is one op of 1 ms, one every 2 ms."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.inputs.links import steps
from advisor.inputs.loops import are_even, loop
from advisor.inputs.step_marks import marks
from advisor.model.clause import Note
from tests.tables import Row, kernel, on_device, on_host, profile

MS = 1_000


def kernels(sequence: str, of: str = "") -> list[Row]:
    """`<` copies a result back, `>` copies an input; any other letter is a kernel, `of` a library."""
    kinds = {"<": "DtoH", ">": "HtoD"}
    return [
        kernel(2 * n * MS, (2 * n + 1) * MS, launched=2 * n * MS - 10, name=of + letter)
        if letter not in kinds
        else on_device("memcpy", 2 * n * MS, (2 * n + 1) * MS, 2 * n * MS - 10, name=letter, copy_kind=kinds[letter])
        for n, letter in enumerate(sequence)
    ]


def waits(*places: int, name: str = "cudaDeviceSynchronize") -> list[Row]:
    """Waits right after the ops at these places."""
    return [on_host("sync", (2 * n + 1) * MS, (2 * n + 1) * MS + 100, name=name) for n in places]


def turns(device: list[Row], host: list[Row] = ()) -> tuple[list[int], int] | None:
    """The places at which turns begin, and how many ops one has."""
    made = profile(device, list(host))
    found = loop(made.host_ops, made.device_ops)
    return found and ([round(ns / 2e6) for ns in found.starts.tolist()], found.ops)


def test_a_sequence_that_ends_with_a_result_is_a_step_from_its_first_op_on():
    assert turns(kernels(">ab<" * 4)) == ([0, 4, 8, 12], 4)
    assert turns(kernels("xy" + ">ab<" * 4)) == ([2, 6, 10, 14], 4)


def test_so_is_one_after_which_the_host_waits_for_all_of_the_device():
    sequence, after = "ab" * 4 + "x", (1, 3, 5, 7)
    assert turns(kernels(sequence), waits(*after)) == ([0, 2, 4, 6], 2)
    assert turns(kernels(sequence), waits(*after, name="cudaStreamSynchronize")) == ([0, 2, 4, 6], 2)
    assert (
        turns(kernels(sequence, "at::native::"), waits(*after, name="cudaStreamSynchronize")) is None
    )  # may be layers
    assert turns(kernels(sequence)) is None


def test_so_is_one_after_which_the_device_idles_for_long_in_a_program_without_layers():
    device = kernels("ab" * 4 + "x")
    late = [op | {"start_ns": op["start_ns"] + n // 2 * MS} for n, op in enumerate(device)]
    assert turns(late) == ([0, 2, 4, 6], 2)
    assert turns([op | {"name": f"at::native::{op['name']}"} for op in late]) is None


@pytest.mark.parametrize(("memory", "found"), [("pageable", ([0, 2, 4, 6], 2)), ("pinned", None)])
def test_so_is_one_whose_turns_begin_with_what_the_host_has_made(memory: str, found: tuple[list[int], int] | None):
    device = [
        op | {"source_memory": memory if op["kind"] == "memcpy" else None} for op in kernels(">a" * 4, "at::native::")
    ]
    late = [op | {"start_ns": op["start_ns"] + n // 2 * MS} for n, op in enumerate(device)]
    assert turns(late) == found
    assert turns([*late, kernel(30 * MS, 31 * MS, launched=30 * MS - 10, name="at::native::b")]) is None  # layers


def test_of_loops_that_follow_each_other_the_one_with_most_time_makes_the_steps():
    """Neither holds 80 % of the kernels' time; both hold 18 of 19 ops. Pages that move are of no turn."""
    sequence = "ab" * 4 + "x" + "cde" * 4
    places = (1, 3, 5, 7, 11, 14, 17, 20)
    assert turns(kernels(sequence), waits(*places)) == ([9, 12, 15, 18], 3)
    moves = [
        on_device("memcpy", 2 * n * MS + 1, 2 * n * MS + 2, source_memory="managed", name=f"{n}") for n in (2, 3, 12)
    ]
    assert turns([*kernels(sequence), *moves], waits(*places)) == ([9, 12, 15, 18], 3)
    assert turns(kernels(sequence + "xyzuvw"), waits(*places)) is None  # a third of the work is in no loop


def test_turns_between_which_most_of_the_time_passes_are_parts_of_what_repeats():
    turns = [500, 4, 4, 4, 4, 4, 4, 4]  # the first of a process is cold
    assert are_even(np.cumsum([0, *turns, 27]))
    assert not are_even(np.cumsum([0, *turns, 29]))
    assert are_even(np.cumsum([0, 4, 4, 12, 12, 4, 4, 4]))  # three times the median


def test_layers_of_one_pass_are_no_steps():
    assert turns(kernels("e" + "qkv" * 6 + "h<")) is None
    assert turns(kernels("e" + "q<k" * 6 + "h<"), waits(20)) is None  # a head follows


def test_turns_that_take_more_and_more_memory_are_layers_of_a_first_pass():
    taken, given = (
        [on_host("runtime", 2 * n * MS - 100, 2 * n * MS - 90, name=name) for n in range(1, 16, 2)]
        for name in ("cudaMalloc", "cudaFree")
    )
    passes = kernels(">ab<" * 4, "at::native::")
    assert turns(passes) == ([0, 4, 8, 12], 4)
    assert turns(passes, taken) is None
    assert turns(passes, taken + given) == ([0, 4, 8, 12], 4)  # as much is given back
    assert turns(passes, taken[:2]) == ([0, 4, 8, 12], 4)  # the first alone
    assert turns(kernels(">ab<" * 4), taken) == ([0, 4, 8, 12], 4)  # no framework that keeps memory


def test_stages_are_no_steps_where_most_of_the_time_passes_between_groups_of_them():
    """Along x, along z, and the other way round: five stages of six in a row along x, then six along z."""
    there_and_back = "xaxaxa" + "zb" * 6 + "xaxaxa"
    assert turns(kernels("i" + there_and_back * 10)) == ([1 + 24 * n for n in range(10)], 24)


@pytest.mark.parametrize(
    ("sequence", "of", "is_loop"),
    [
        ("i" + "xxz" * 10, "", True),  # time steps without a wait, after a sum
        ("i" + "xxz" * 9, "", False),
        ("i" + "xxz" * 10 + "i", "", False),  # more than a twentieth is something else
        ("i" + "xxz" * 10, "at::native::", False),
        ("i" + "xxz" * 10, "at::native::reduce_kernel<at::native::AbsFunctor<", True),  # sums alone are no model
        ("i" + "xxz" * 9, "at::native::reduce_kernel<at::native::AbsFunctor<", False),
        ("i" + "xxz" * 10, "matmul_", False),  # layers of a model without a framework
    ],
)
def test_many_turns_of_no_model_that_are_nearly_all_of_the_work_are_steps(sequence: str, of: str, *, is_loop: bool):
    found = turns(kernels(sequence, of))
    assert found == ([1 + 3 * n for n in range(10)], 3) if is_loop else found is None


def test_updates_of_parameters_are_no_steps():
    """Ten parameters, the same three kernels for each: as many threads as it has values."""
    updates = kernels("xyz" * 10, "at::native::vectorized_elementwise_kernel<")
    assert turns([op | {"grid": 8} for op in updates]) == ([3 * n for n in range(10)], 3)
    assert turns([op | {"grid": 8 + n // 27} for n, op in enumerate(updates)]) is None  # the last has more
    assert turns(updates, [on_host("op", 0, 60 * MS)]) is None  # of which ops are known, optimizers are told


def test_three_turns_do_not_show_a_loop():
    assert turns(kernels(">ab<" * 3)) is None


def test_of_nested_loops_the_outer_one_is_the_step():
    layers = "e" + "qkv" * 6 + "h<"
    assert turns(kernels(layers * 4)) == ([0, 21, 42, 63], 21)


def test_stages_along_each_axis_are_parts_of_one_time_step():
    stages = "<xa" * 3 + "za" * 3  # of a scheme that takes three along x, then three along z
    assert turns(kernels("i" + stages * 4 + "<")) == ([1, 16, 31, 46], 15)
    assert turns(kernels("i" + stages * 2 + "<")) is None


def test_a_loop_that_uses_the_kernels_of_another_is_one_of_its_own():
    alone, with_others = "ab<", "ab>>b<"
    assert turns(kernels(alone * 12 + with_others * 11)) == ([34 + 6 * n for n in range(11)], 6)
    assert turns(kernels("ab<" * 3 + "aab<" * 3 + "abb<" * 3)) is None


def test_a_loop_may_set_itself_up_and_log_now_and_then():
    assert turns(kernels("iab<" + "ab<" * 5 + "aab<" + "ab<" * 3)) is not None
    assert turns(kernels("ab<" + "aab<" * 2 + "abb<" * 2)) is None


def test_what_is_a_small_part_of_the_work_is_no_loop():
    long = [kernel(100 * MS, 300 * MS, name="long")]
    assert turns([*kernels("ab<" * 4), *long]) is None


def test_on_a_cpu_equal_sequences_of_outermost_ops_are_steps_unless_others_run_around_them():
    def ops(sequence: str) -> list[Row]:
        return [on_host("op", 2 * n * MS, (2 * n + 1) * MS, name=letter) for n, letter in enumerate(sequence)]

    assert turns([], ops("rcl" * 5)) == ([0, 3, 6, 9, 12], 3)
    assert turns([], ops("e" + "rcl" * 5)) is None


@pytest.mark.parametrize(
    ("sequence", "silent_us", "last_ns"),
    [
        ("rcl" * 5, 10, 2_990_000),  # from the first op to the end of its last
        ("rcl" * 5 + "r", 10, 2_990_000),  # the next one, which the recording cuts off, is no turn
        ("lrcrc" * 5 + "lrcr", 10, None),  # the last one lacks its last op
        ("rcl" * 5, 200, None),  # what passes before the next turn is part of a turn too
    ],
)
def test_on_a_cpu_the_last_turn_is_a_whole_step_if_it_ends_with_its_last_op(
    sequence: str, silent_us: int, last_ns: int | None
):
    ops = [on_host("op", n * MS, (n + 1) * MS - silent_us, name=letter) for n, letter in enumerate(sequence)]
    made = profile(host_ops=ops)
    chosen = marks(made.host_ops, made.device_ops, None)
    last = steps(made.host_ops, made.device_ops, chosen.steps, cut_off=False)[0].row(-1, named=True)
    assert (last["incomplete"], last["dur_ns"]) == ((None, last_ns) if last_ns else ("no_end", 0))


def test_an_op_that_stalls_makes_a_long_step_and_silence_ends_a_group_of_parts():
    """The fourth of five turns takes five times as long: its last op does, or nothing runs."""

    def ops(length: int) -> list[Row]:
        starts = np.cumsum([0, *[2 * MS] * 7, 18 * MS, 2 * MS]).tolist()
        return [on_host("op", at, at + (length if n == 7 else MS), name="rc"[n % 2]) for n, at in enumerate(starts)]

    assert turns([], ops(17 * MS)) is not None
    assert turns([], ops(MS)) is None


def test_the_note_says_how_the_steps_were_found_and_how_sure_that_is():
    made = profile(kernels(">ab<" * 5))
    chosen = marks(made.host_ops, made.device_ops, None)
    assert chosen.steps["step"].to_list() == [0, 1, 2, 3, 4]
    assert chosen.how == Note("steps_by_work", turns=5, ops=4, share=1.0, confidence="medium")


@pytest.mark.parametrize(
    ("sequence", "begins"),
    [
        (">ab<" * 5, [0, 8, 16, 24, 32]),
        (">ab<" * 5 + "o", [-1]),  # an optimizer after so many batches
        ("eab<" + "ab<" * 4, [-1]),  # layers behind an embedding
    ],
)
def test_a_single_mark_is_a_step_unless_all_that_it_launches_are_turns(sequence: str, begins: list[int]):
    """What ran before the mark, and its launches were not recorded, belongs to no turn."""
    of_before = on_device("kernel", -900, -500, name="b")
    mark = on_host("step", -1 * MS, 2 * len(sequence) * MS, name="ProfilerStep#2")
    made = profile([of_before, *kernels(sequence)], [mark])
    chosen = marks(made.host_ops, made.device_ops, None)
    assert (chosen.steps["host_start_ns"] / 1e6).round().cast(int).to_list() == begins
    assert (chosen.how and chosen.how.code) == ("steps_in_mark" if len(begins) > 1 else None)
