"""What fills the large parts of the bar, in words: names with their times, or why nobody knows."""

from __future__ import annotations

from advisor.model.clause import Missing
from advisor.model.reason import Reason
from advisor.model.report import Part, Run
from advisor.present import document as doc
from advisor.present.accounting import accounting, large_parts
from tests.render_samples import ACCOUNTING, INPUT_BOUND, RESNET, changed, part
from tests.render_samples import saving as won


def of_parts(*parts: Part, **metrics: tuple[dict[str, object], ...]) -> Run:
    """A run of two steps without findings, of such parts."""
    steps = changed(RESNET.source.steps, used=2)
    source = changed(RESNET.source, steps=steps)
    known = changed(ACCOUNTING, parts=parts)
    return changed(RESNET, source=source, accounting=known, findings=(), not_evaluable=(), metrics=metrics)


def kernel(name: str, total_ms: float, family: str = "gemm") -> dict[str, object]:
    return {"name": name, "family": family, "total_ms": total_ms}


def test_the_largest_kernels_are_named_with_their_time_in_a_step():
    rows = (kernel("void naive<float>(int)", 100.0), kernel("void naive<half>(int)", 20.0), kernel("tiny", 1.0))
    run = of_parts(part("compute", 1.0), kernel_group=rows)
    assert large_parts(run) == "Largest kernels: `naive` (60 ms)."


def test_kernels_that_take_more_than_the_time_in_which_any_runs_lay_beside_each_other():
    run = of_parts(part("compute", 0.9), kernel_group=(kernel("one", 200.0), kernel("two", 160.0)))  # 0.9 of 177.6 ms
    assert large_parts(run) == "Largest kernels: `one` (100 ms) and `two` (80 ms), several at once."
    apart = of_parts(part("compute", 0.9), kernel_group=(kernel("one", 200.0), kernel("two", 100.0)))
    assert large_parts(apart) == "Largest kernels: `one` (100 ms) and `two` (50 ms)."


def test_what_kernels_hide_lay_beside_these_and_not_beside_each_other():
    """The bar has the copies and exchanges that no kernel overlaps; `communication_ms` has all exchanges."""
    copies = ({"name": "coming", "kind": "memcpy", "ms_per_step": 100.0}, {"name": "going", "kind": "memcpy"})
    assert large_parts(of_parts(part("memcpy", 0.5), launch=copies)) == "Largest copies: `coming` (100 ms)."
    rows = (kernel("gathers", 100.0, "collective"), kernel("scatters", 90.0, "collective"))

    def words(communication_ms: float) -> str:
        whole = {"worker": RESNET.source.steps.worker, "communication_ms": communication_ms}
        return large_parts(of_parts(part("collective", 0.5), kernel_group=rows, worker=(whole,)))

    assert words(95.0) == "Largest communication: `gathers` (50 ms) and `scatters` (45 ms)."
    assert words(60.0) == "Largest communication: `gathers` (50 ms) and `scatters` (45 ms), several at once."


def test_what_is_not_judged_has_no_share_that_is_busy_and_a_job_of_copies_computes_nothing():
    def brief(run: Run) -> list[str]:
        return [block.text for block in accounting(run) if isinstance(block, doc.Text)]

    copies = of_parts(part("memcpy", 1.0))
    assert brief(copies) == ["Nothing computes in a step of 178 ms."]
    half = of_parts(part("compute", 0.5), part("host_busy", 0.5))
    assert brief(half)[0] == "Busy 50 %."
    short = changed(INPUT_BOUND, of_recording=True, loss="unknown", saving=None)
    assert not any(text.startswith("Busy") for text in brief(changed(half, findings=(short,))))


def test_kernels_of_a_library_are_called_what_they_compute():
    names = (
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "cutlass_80_tensorop_f16_s16816gemm_relu_f16",
    )
    rows = (*(kernel(name, 60.0) for name in names), kernel("naive", 40.0))
    assert large_parts(of_parts(part("compute", 1.0), kernel_group=rows)) == (
        "Largest kernels: matrix products (60 ms) and `naive` (20 ms)."
    )


def test_communication_names_its_kernel_and_the_rank_that_is_awaited():
    rows = (kernel("ncclDevKernel_AllReduce(int)", 80.0, "collective"), kernel("gemm", 10.0))
    wait = {"awaited": 7, "awaited_name": "rank 7", "wait_ms": 3.0}
    lost = part("collective", 0.5, "collective-waiting")
    run = of_parts(lost, part("compute", 0.1), kernel_group=rows, wait=(wait,))
    told = "Largest communication: `ncclDevKernel_AllReduce` (40 ms); the ranks wait longest for rank 7."
    assert large_parts(run) == told


def test_ops_of_a_cpu_have_their_shapes_and_those_of_tensorflow_their_type():
    rows = (
        {"name": "aten::mm", "shapes": "[[64,512],[512,8],[]]", "ms_per_step": 90.0},
        {"name": "a/MatMul:_MklMatMul", "ms_per_step": 30.0},
        {"name": "b/MatMul:_MklMatMul", "ms_per_step": 30.0},
    )
    run = of_parts(part("operators", 0.9), op=rows)
    x = "\N{MULTIPLICATION SIGN}"
    largest = f"Largest ops: `aten::mm 64{x}512 512{x}8` (90 ms) and `_MklMatMul` (60 ms)."
    assert large_parts(run) == largest
    lines = (
        {"name": "train.py:8 `net(...)`", "share": 0.5},
        {"name": "train.py:9 `loss.backward(...)`", "share": 0.25},
    )
    run = of_parts(changed(part("operators", 0.9), lines=lines), op=rows)
    told = "Largest lines: train.py:8 `net(...)` (50 %), train.py:9 `loss.backward(...)` (25 %)."
    assert large_parts(run) == f"{told} {largest}"


def test_without_an_action_four_ops_with_a_twentieth_of_the_time_are_named_and_with_one_two_with_a_tenth():
    """Then what takes the time is all that a reader can ask about."""
    rows = tuple({"name": f"Op{n}", "ms_per_step": took} for n, took in enumerate((60, 30, 12, 9, 8.5, 5), 1))
    run = of_parts(changed(part("operators", 0.9), ms=160.0), op=rows)
    assert large_parts(run) == "Largest ops: `Op1` (60 ms), `Op2` (30 ms), `Op3` (12 ms) and `Op4` (9 ms)."
    saves = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    advised = changed(run, findings=(saves,))
    assert advised.worthwhile
    assert large_parts(advised) == "Largest ops: `Op1` (60 ms) and `Op2` (30 ms)."


def test_ops_of_jax_have_their_module_and_the_users_line():
    in_library = "/venv/lib/python3.11/site-packages/flax/linen/linear.py(9): Dense.__call__"
    rows = (
        {"name": "fusion.2", "stack": f"jit(step)/jvp(Net)/Dense_0/dot_general;{in_library};/a/net.py(20): call"},
        {"name": "wrapped_tanh", "stack": "jit(step)/tanh"},
    )
    run = of_parts(part("operators", 0.9), op=tuple({**row, "ms_per_step": 40.0} for row in rows))
    assert large_parts(run) == "Largest ops: `jvp(Net)/Dense_0/dot_general at net.py:20` (40 ms) and `tanh` (40 ms)."


def test_a_loss_that_a_listed_action_shortens_needs_no_words():
    saves = changed(INPUT_BOUND, saving=won(30, 59, "input", ""))
    lost = part("input", 0.4, saves.key)
    run = changed(of_parts(part("compute", 0.1), lost), findings=(saves,))
    assert run.worthwhile
    assert large_parts(run) == ""


def test_a_loss_of_unknown_cause_says_why_and_one_without_a_rule_too():
    why = Reason.of(Missing("no_collective_sizes"))
    lost, other = part("allocator", 0.3), part("memset", 0.45, reasons=(why,))
    run = of_parts(part("compute", 0.1), lost, other, run=({"allocator_calls": "cudaMalloc (50 ms)"},))
    assert run.unexplained == other
    assert large_parts(run) == "Allocation: cudaMalloc (50 ms)."


def test_a_large_loss_of_which_nothing_is_known_says_so():
    of_nobody = of_parts(part("compute", 0.1), part("collective", 0.3), part("unknown", 0.6))
    assert large_parts(of_nobody) == "Communication: cause not recorded."


def test_an_op_that_python_calls_and_waits_for_is_named_once():
    rows = tuple(
        {"name": name, "ms_per_step": 80.0 - n}
        for n, name in enumerate(("EagerLocalExecute: Conv2D", "Conv2D:Conv2D", "EagerLocalExecute: Sum"))
    )
    assert large_parts(of_parts(part("operators", 0.9), op=rows)) == "Largest ops: `Conv2D` (79 ms) and `Sum` (78 ms)."
