"""Reports made by hand for the tests of the renderers, and to look at: `python -m tests.render_samples FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from advisor.model.clause import Missing
from advisor.model.finding import Evidence, Finding, Fix, NotEvaluable, Place, Reach, Saving, Suppressed, Symptom, Value
from advisor.model.reason import Reason
from advisor.model.report import Accounting, Events, Idle, Part, Piece, Report, Run, Span, Timeline, Track, Unreadable
from advisor.model.source import Device, LeftOutStep, Source, Steps, Worker
from advisor.render.registry import Request, draw
from advisor.vocabulary.severities import Severity

Model = TypeVar("Model", bound=BaseModel)

STEP_MS = 177.6
NO_MEMORY = Reason.of(Missing("no_memory_profile"))
NO_SHAPES = Reason.of(Missing("no_shapes"))
NO_DEVICE = Reason.of(Missing("no_device_used"))


def saving(low_ms: float, high_ms: float, of: str, method: str) -> Saving:
    shares = {"low_share": low_ms / STEP_MS, "high_share": high_ms / STEP_MS}
    return Saving(low_ms=low_ms, high_ms=high_ms, of=of, method=method, **shares)


def place(name: str, start_ms: float, dur_ms: float, step: int | None = 9, **more: str) -> Place:
    times = {"start_ns": int(start_ms * 1e6), "at_ms": start_ms, "dur_ns": int(dur_ms * 1e6)}
    return Place(table="host_ops", name=name, worker=0, device=0, step=step, **times, **more)


INPUT_BOUND = Finding(
    key="input-bound",
    rule="input-bound",
    title="The GPU waits for input data",
    severity="high",
    confidence="high",
    saving=saving(
        29.65,
        59.3,
        "input",
        "At most the time in which the step does nothing but wait for the loader. At least half of it: batches that "
        "arrive in time still have to be handed over.",
    ),
    scope=Reach(workers=(0,), steps=(8, 9, 10, 11, 12, 13)),
    says="33 % of each step (59 ms of 178 ms) passes waiting for the data loader, with the GPU idle.",
    sentence_share=0.334,
    why="The training loop asks the loader for a batch, and the batch is not ready. Reading, decoding, augmenting and "
    "collating take longer than the GPU takes to train on a batch, or they run in the training process itself, one "
    "after the other with everything else. The wait is counted only where nothing runs on the GPU and no CUDA call "
    "is in progress, so a wait that hides behind running kernels is no part of it.",
    evidence=(
        Evidence(
            metric="input_share",
            value=0.334,
            unit="share",
            meaning="Part of the step in which the device idles while the data loader is asked for the next batch.",
            limit=0.05,
            limits={"high": 0.2},
            formula="time of input outside compute, memcpy, memset, collective, launch / step time",
        ),
        Evidence(
            metric="input_exposed_ms", value=59.3, unit="ms", meaning="Time per step that passes waiting for input."
        ),
    ),
    where=tuple(
        place("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 310 + 178 * i, 61.2 - i, 9 + i)
        for i in range(3)
    ),
    fixes=(
        Fix(
            framework="pytorch",
            do="Let worker processes prepare batches ahead of time. Start with four per GPU and raise it while the "
            "wait shrinks.",
            code="loader = DataLoader(\n    dataset, batch_size=..., num_workers=4, prefetch_factor=2,\n"
            "    persistent_workers=True, pin_memory=True,\n)\n",
            link="https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading",
        ),
        Fix(
            framework="pytorch",
            do="If workers are already there, make a batch cheaper: decode and resize once and store the result, move "
            "augmentation to the GPU, read from fewer and larger files.",
            link="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
        Fix(
            framework="tensorflow",
            do="Prefetch, and run the map and the reading in parallel.",
            code="ds = ds.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(n).prefetch(tf.data.AUTOTUNE)\n",
            link="https://www.tensorflow.org/guide/data_performance",
        ),
        Fix(
            framework="jax",
            do="Prefetch batches to the device from a background thread or a loader with worker processes.",
            link="https://docs.jax.dev/en/latest/notebooks/data_loading.html",
        ),
    ),
    symptoms=(
        Symptom(
            rule="low-gpu-utilisation",
            title="The GPU is idle most of the time",
            says="Something runs on the GPU in only 46 % of each step. The rest of the time: 33 % input, 15 % launch.",
        ),
    ),
    explains=("low-gpu-utilisation",),
    docs="docs/rules/input-bound.md",
    condition="input_share >= moderate",
    params={"moderate": 0.05},
    references=("5 % moderately, 20 % highly input-bound: XProf, input pipeline analyzer",),
)

THIRTY_TWO_BIT = Finding(
    key="amp-unused",
    rule="amp-unused",
    title="Matrices are multiplied in 32 bits",
    severity="medium",
    confidence="medium",
    saving=saving(5.2, 41.4, "compute", "These kernels 1.5 to 3 times as fast."),
    scope=Reach(workers=(0,), steps=(8, 9, 10, 11, 12, 13)),
    says="62 ms of each step (35 %) are matrix kernels on 32-bit inputs, which the Tesla V100-DGXS-32GB multiplies "
    "faster in 16 bits: aten::cudnn_convolution_backward 41 ms, aten::cudnn_convolution 21 ms.",
    why="Tensor Cores multiply 16-bit matrices several times as fast as the ordinary cores multiply 32-bit ones, and "
    "every other kernel moves half the bytes. Mixed precision keeps weights and optimizer state in 32 bits.",
    evidence=(
        Evidence(
            metric="thirty_two_bit_share",
            value=0.349,
            unit="share",
            meaning="Part of the step in which 32-bit matrices are multiplied that TF32 would make no faster.",
            limit=0.05,
        ),
        Evidence(
            metric="thirty_two_bit_ms",
            value=62.0,
            unit="ms",
            meaning="The same, per step.",
        ),
        Evidence(
            metric="sixteen_bit_share",
            value=None,
            unit="share",
            meaning="Part of the matrix kernels' time spent on inputs of 16 bits or fewer.",
        ),
        Evidence(metric="device_name", value="Tesla V100-DGXS-32GB", unit="text", meaning="Name of the device."),
    ),
    where=(
        place(
            "volta_scudnn_128x64_relu_interior_nn_v1",
            402.1,
            1.83,
            op="aten::cudnn_convolution",
            stack="train.py(61): train_step\ntorchvision/models/resnet.py(285): _forward_impl",
        ),
        place("volta_sgemm_128x64_nt", 451.7, 0.74, op="aten::mm"),
    ),
    fixes=(
        Fix(
            framework="pytorch",
            do="Train in mixed precision; `bfloat16` from Ampere on, `float16` with a gradient scaler before.",
            code='scaler = torch.amp.GradScaler("cuda")\nwith torch.autocast("cuda", dtype=torch.float16):\n'
            "    loss = criterion(model(x), y)\nscaler.scale(loss).backward()\nscaler.step(optimizer)\n",
            link="https://docs.pytorch.org/docs/stable/amp.html",
        ),
    ),
    symptoms=(),
    explains=(),
    docs="docs/rules/amp-unused.md",
)

LAUNCH_BOUND = Finding(
    key="launch-bound",
    rule="launch-bound",
    title="The GPU waits for the host to launch work",
    severity="medium",
    confidence="medium",
    saving=saving(6.1, 12.2, "launch_gap", "At most the idle time before ops that the host launched too late."),
    scope=Reach(workers=(0,), steps=(8, 9, 10, 11, 12, 13)),
    says="6.9 % of each step the GPU is idle because the next kernel has not been launched yet: 412 such gaps per "
    "step, kernels of 38 \N{MICRO SIGN}s at the median.",
    why="Python and the framework need 5 to 20 us of host time for each op they launch. Where the kernels are shorter "
    "than that the GPU runs dry and waits for the next launch.",
    evidence=(
        Evidence(
            metric="launch_gap_share",
            value=0.069,
            unit="share",
            meaning="Part of the step in which the device idles because the host launched the next op too late.",
            limit=0.05,
        ),
    ),
    where=(),
    fixes=(
        Fix(
            framework="pytorch",
            do='Compile the model; mode "reduce-overhead" also captures it in CUDA graphs, which launch with one call.',
            code='model = torch.compile(model, mode="reduce-overhead")\n',
            link="https://docs.pytorch.org/docs/stable/generated/torch.compile.html",
        ),
    ),
    symptoms=(),
    explains=("low-gpu-utilisation",),
    docs="docs/rules/launch-bound.md",
)

STEP_ROWS = tuple(
    {
        "worker": 0,
        "device": 0,
        "step": n,
        "step_ms": 412.0 if n == 14 else 170.0 + n,
        "left_out": "412 ms long, more than median + 3 x MAD" if n == 14 else None,
    }
    for n in range(8, 15)
)
PART_ROWS = tuple(
    {"worker": 0, "device": 0, "step": n, "part": code, "share": share}
    for n in range(8, 15)
    for code, share in (("compute", 0.5), ("launch_gap", 0.2), ("input", 0.3))
)


def kernel_row(n: int) -> dict[str, Value]:
    return {
        "name": f"volta_sgemm_{n}",
        "op": "aten::mm" if n % 2 else "aten::addmm",
        "shapes": f"[[{n}, 64], [64, 64]]",
        "grid": 64,
        "block": 128 * (n % 3 + 1),
        "registers": 32,
        "occupancy": 0.5,
        "family": "gemm",
        "verdict": ("unused", "used", "unknown", "no use")[n % 4],
        "calls": 6 * n + 1,
        "total_ms": 40.0 - n,
    }


def operator_row(n: int) -> dict[str, Value]:
    spent = {"ms_per_step": 0.5 * n, "total_ms_per_step": 0.6 * n, "device_ms_per_step": 20.0 - n}
    name, types = f"aten::op_{n % 10}", ("fp32", "bf16")[n % 2]
    return {"name": name, "shapes": f"[[{n}]]", "types": types, "stack": None, "calls_per_step": n + 1, **spent}


def frame_rows(layers: int = 4) -> tuple[dict[str, Value], ...]:
    """A model of layers, the first the longest, each with one op; beside it what was launched by nothing known."""
    rows: list[dict[str, Value]] = [
        {"id": 0, "parent": None, "name": "Net_0", "kind": "module", "total_ms": 90.0, "self_ms": 0.0},
        {"id": 1, "parent": None, "name": None, "kind": "op", "total_ms": 10.0, "self_ms": 10.0},
    ]
    for n in range(layers):
        spent = 90.0 * 2 ** (layers - 1 - n) / (2**layers - 1)
        of_layer = {"name": f"Linear{n}", "kind": "module", "total_ms": spent, "self_ms": 0.0}
        rows.append({"id": 2 + 2 * n, "parent": 0, **of_layer})
        of_op = {"name": "aten::linear", "kind": "op", "total_ms": spent, "self_ms": spent}
        rows.append({"id": 3 + 2 * n, "parent": 2 + 2 * n, **of_op})
    return tuple(rows)


def timeline(amount: int = 400) -> Timeline:
    """A step in which kernels follow one another on a stream and ops nest on a thread, the loader before them."""
    half = amount // 2
    gap = 59_000_000
    each = 118_000_000 // half
    start = [gap + i * each for i in range(half)]
    return Timeline(
        worker=0,
        device=0,
        step=9,
        start_ns=310_000_000,
        dur_ns=178_000_000,
        recorded=amount + 5,
        tracks=(Track(kind="stream", number=7), Track(kind="thread", number=25738)),
        texts=("volta_sgemm_128x64_nt", "aten::mm", "kernel", "op"),
        events=Events(
            track=(0,) * half + (1,) * half,
            name=(0,) * half + (1,) * half,
            kind=(2,) * half + (3,) * half,
            depth=(0,) * half + tuple(i % 3 for i in range(half)),
            start_ns=(*start, *start),
            dur_ns=(each - each // 4,) * amount,
        ),
        idle=(Idle(start_ns=0, dur_ns=gap, cause="input"), Idle(start_ns=gap + each, dur_ns=each, cause="sync")),
        strip=(
            Piece(start_ns=0, dur_ns=gap, part="input"),
            Piece(start_ns=gap, dur_ns=178_000_000 - gap, part="compute"),
        ),
        shows={
            "input-bound": (Span(start_ns=0, dur_ns=gap),),
            "amp-unused": (Span(start_ns=gap + 10 * each, dur_ns=each), Span(start_ns=gap + 20 * each, dur_ns=each)),
        },
    )


TIMELINE = timeline()


def part(code: str, share: float, *findings: str, saved_ms: float = 0.0, reasons: tuple[Reason, ...] = ()) -> Part:
    """A part of a step of 177.6 ms."""
    return Part(
        part=code,
        is_useful=code in {"compute", "operators"},
        ms=share * 177.6,
        share=share,
        findings=findings,
        saved_ms=saved_ms,
        is_explained=bool(findings),
        reasons=reasons,
    )


ACCOUNTING = Accounting(
    step_ms=177.6,
    parts=(
        part("compute", 0.4412),
        part("memcpy", 0.0119, reasons=(NO_SHAPES,)),
        part("input", 0.334, "input-bound", saved_ms=59.3),
        part("launch_gap", 0.2129, "launch-bound", saved_ms=12.2),
    ),
)

IMPOSSIBLE = Accounting(step_ms=1.0, parts=(part("compute", 1.0), part("input", 1.0)))

RESNET = Run(
    name="resnet50-workers0",
    verdict="The GPU waits for input data: 33 % of each step. Fixing this saves 30\N{EN DASH}59 ms of each 178 ms "
    "step.",
    source=Source(
        path="logs/resnet50-workers0",
        format="kineto",
        framework="pytorch",
        world_size=None,
        workers=(
            Worker(
                worker=0,
                rank=None,
                name="worker0",
                file="logs/resnet50-workers0/worker0.1623143089861.pt.trace.json.gz",
            ),
        ),
        devices=(
            Device(
                worker=0, device=0, name="Tesla V100-DGXS-32GB", model="v100-dgxs-32gb", memory_bytes=34_084_028_416
            ),
        ),
        steps=Steps(
            timed_by="period",
            marked=True,
            count=8,
            used=6,
            step_ms=177.4,
            step_mean_ms=STEP_MS,
            left_out=(
                LeftOutStep(worker=0, device=0, step=7, why=Reason(code="x", words="not recorded from its beginning")),
                LeftOutStep(
                    worker=0, device=0, step=14, why=Reason(code="x", words="412 ms long, more than median + 3 x MAD")
                ),
            ),
        ),
        salvaged=(
            Reason(code="x", words="worker0.1623143089861.pt.trace.json.gz: cut off after 83 MB; the rest was read"),
        ),
        lacks={"allocations": NO_MEMORY, "host_ops.shapes": NO_SHAPES},
        environment={
            "hardware": "Tesla V100-DGXS-32GB (31.7 GiB, 80 multiprocessors, capability 7)",
            "software": "CUDA 11.3, driver for CUDA 11.4",
            "profiler": "Kineto schema 1",
            "recorded with": "with_stack",
        },
    ),
    accounting=ACCOUNTING,
    findings=(INPUT_BOUND, THIRTY_TWO_BIT, LAUNCH_BOUND),
    not_evaluable=(
        NotEvaluable(
            rule="memory-near-capacity",
            title="GPU memory is nearly full",
            missing={"peak_memory_share": NO_MEMORY, "peak_memory_bytes": NO_MEMORY},
        ),
        NotEvaluable(
            rule="small-matrices",
            title="Matrix sizes fit the Tensor Cores badly",
            missing={"gemm_waste_share": NO_SHAPES},
        ),
    ),
    passed=("frequent-synchronisation", "too-few-steps"),
    not_applicable=("slow-rank",),
    suppressed=(
        Suppressed(
            rule="pageable-copies",
            title="Copies between host and GPU use pageable memory",
            severity="low",
            reason="the dataset library cannot pin, fixed upstream",
            until="2027-03-01",
        ),
    ),
    metrics={
        "worker": ({"worker": 0, "input_share": 0.334, "step_ms": 177.4, "occupancy": None, "steps": 6},),
        "run": ({"tensor_core_share": 0.1, "tensor_core_eligible_share": 0.5},),
        "recorded_step": STEP_ROWS,
        "step_part": PART_ROWS,
        "kernel_group": tuple(kernel_row(n) for n in range(40)),
        "call_tree": frame_rows(),
        "memory_peak": (
            {"what": "op", "op": "aten::conv2d", "within": "Bottleneck", "blocks": 53, "bytes": 4 * 2**30},
            {"what": "op", "op": None, "within": "backward pass", "blocks": 1, "bytes": 2**30},
            {"what": "others", "op": None, "within": None, "blocks": 46, "bytes": 2**29},
            {"what": "earlier", "op": None, "within": None, "blocks": None, "bytes": 3 * 2**29},
        ),
        "op": tuple(operator_row(n) for n in range(20)),
        "memory": tuple(
            {"start_ns": n * 10**6, "allocated_bytes": 2**30 * (n % 7 + 1), "reserved_bytes": 2**33} for n in range(50)
        ),
    },
    timeline=TIMELINE,
)

PIPELINE: tuple[dict[str, Value], ...] = tuple(
    {
        "iterator": name,
        "parent": parent,
        "transformation": name.rpartition("::")[2],
        "stage": "preprocessing",
        "calls": 12,
        "slow_calls": 0,
        "total_ms": 600.0,
        "self_ms": works,
        "waited_ms": waited,
        "parallelism": 1 if waited > 50 else None,
        "critical": waited > 0,
        "bottleneck": waited > 50,
    }
    for name, parent, works, waited in (
        ("Iterator::Prefetch", None, 4.0, 6.0),
        ("Iterator::Prefetch::Map", "Iterator::Prefetch", 400.0, 54.0),
        ("Iterator::Prefetch::Map::Zip", "Iterator::Prefetch::Map", 0.8, 0.0),
        ("Iterator::Prefetch::Map::Zip::TFRecord", "Iterator::Prefetch::Map::Zip", 80.0, 0.0),
        ("Iterator::Prefetch::Map::Zip::Range", "Iterator::Prefetch::Map::Zip", 0.08, 0.0),
    )
)


def changed(model: Model, **fields: object) -> Model:
    """A copy with other fields, checked like any other."""
    return type(model).model_validate({**dict(model), **fields})


def drawn(value: Report, kind: str, *, verbose: bool = False, **screen: bool | int) -> str:
    """The report as text of this kind."""
    return draw(Request(value, verbose=verbose, screen=screen), kind).decode()


def report(*runs: Run, unreadable: tuple[Unreadable, ...] = ()) -> Report:
    return Report(advisor_version="0.1.0", runs=runs, unreadable=unreadable)


def cpu_only() -> Report:
    """A recording without a device and without step marks: most rules cannot be judged."""
    steps = Steps(marked=False, count=0, used=0, step_ms=2310.0, step_mean_ms=2310.0, left_out=())
    source = changed(
        RESNET.source, path="logs/cpu-only", devices=(), steps=steps, salvaged=(), lacks={"device_ops": NO_DEVICE}
    )
    unknown = tuple(
        NotEvaluable(rule=rule, title=rule.replace("-", " "), missing={f"{rule}_share": NO_DEVICE})
        for rule in ("launch-bound", "pageable-copies", "low-gpu-utilisation", "amp-unused")
    )
    run = changed(
        RESNET,
        name="cpu-only",
        verdict="Nothing found by the 2 rules that could be judged; 4 more could not be judged.",
        source=source,
        accounting=None,
        findings=(),
        not_evaluable=unknown,
        passed=("input-bound", "too-few-steps"),
        suppressed=(),
    )
    return report(run)


def healthy() -> Report:
    """Every rule could be judged, and none found anything."""
    run = changed(
        RESNET,
        name="tuned",
        verdict="Nothing found by the 11 rules that could be judged.",
        source=changed(RESNET.source, salvaged=(), lacks={}),
        findings=(),
        not_evaluable=(),
        passed=tuple(f"rule-{n}" for n in range(11)),
        not_applicable=(),
        suppressed=(),
        accounting=Accounting(step_ms=177.6, parts=(part("compute", 0.97), part("memcpy", 0.03))),
    )
    return report(run)


def tensorflow() -> Report:
    """A job of TensorFlow whose pipeline branches."""
    source = changed(RESNET.source, framework="tensorflow", format="xplane")
    return report(changed(RESNET, name="tf", source=source, metrics={**RESNET.metrics, "iterator": PIPELINE}))


def unknown() -> Report:
    """Nothing at all could be told."""
    steps = Steps(marked=False, count=0, used=0, step_ms=None, step_mean_ms=None, left_out=())
    run = changed(
        cpu_only().runs[0],
        source=changed(RESNET.source, framework=None, workers=(), devices=(), steps=steps),
        passed=(),
        metrics={},
    )
    return report(run)


def many_workers() -> Report:
    """Eight workers on eight devices, a finding that holds for some of them, and no saving for it."""
    source = changed(
        RESNET.source,
        world_size=16,
        workers=tuple(Worker(worker=n, rank=n, name=f"rank{n}", file=f"rank{n}.json") for n in range(8)),
        devices=tuple(
            Device(worker=n, device=0, name="NVIDIA H100 80GB HBM3", model="h100-sxm", memory_bytes=85_520_809_984)
            for n in range(8)
        ),
    )
    finding = changed(
        INPUT_BOUND, saving=None, confidence="low", severity="low", scope=Reach(workers=(0, 1, 2, 5), steps=(3, 4))
    )
    spent = changed(LAUNCH_BOUND, saving=saving(0, 0, "launch_gap", "None is left of what others claim."))
    metrics = {**RESNET.metrics, **of_ranks(8)}
    run = changed(RESNET, name="llama-16x", source=source, findings=(THIRTY_TWO_BIT, spent, finding), metrics=metrics)
    return report(run)


def of_ranks(ranks: int, steps: int = 6) -> dict[str, tuple[dict[str, Value], ...]]:
    """The tables that only jobs of many ranks have: rank 1 is slow, all others wait for it."""
    shares = {"compute": 0.5, "collective": 0.2, "input": 0.3}
    names = [f"rank {n}" for n in range(ranks)]
    return {
        "device": tuple({"worker": n, "device": 0, "step_mean_ms": 100.0 + n} for n in range(ranks)),
        "accounting": tuple(
            {"worker": n, "device": 0, "part": part, "share": share}
            for n in range(ranks)
            for part, share in shares.items()
        ),
        "pace": tuple(
            {"rank": n, "name": names[n], "step": s, "step_ms": 100.0, "own_ms": 90.0 + 9 * (n == 1), "wait_ms": 9.0}
            for n in range(ranks)
            for s in range(steps)
        ),
        "wait": tuple(
            {"waiting": n, "awaited": 1, "waiting_name": names[n], "awaited_name": names[1], "wait_ms": 8.5 + n}
            for n in range(ranks)
            if n != 1
        ),
        "collective": tuple(
            {
                "op": "all_reduce",
                "group_size": ranks,
                "bytes": 2**n,
                "dtype": "Float",
                "calls": 48,
                "transfer_us": 20 + 2**n / 1e5,
                "exact": n % 2,
                "algorithm_gbs": 2**n / (20e3 + 2**n / 1e2),
                "bus_gbs": 1.75 * 2**n / (20e3 + 2**n / 1e2),
                "expected_us": 15 + 2**n / 2e5,
                "basis": "model",
                "quick_us": 2**n / 2e5,
                "exposed_ms": 1.0,
            }
            for n in range(14, 28, 2)
        ),
    }


def large(ranks: int = 64) -> Report:
    """Many ranks and a timeline of the most events that a page shows."""
    run = many_workers().runs[0]
    workers = tuple(Worker(worker=n, rank=n, name=f"rank{n}", file=f"rank{n}.json") for n in range(ranks))
    metrics = {**run.metrics, **of_ranks(ranks, 50)}
    source = changed(run.source, workers=workers, devices=(), world_size=ranks)
    return report(changed(run, name="large", source=source, metrics=metrics, timeline=timeline(10_000)))


def several() -> Report:
    """Three runs and two files that could not be read."""
    unreadable = (
        Unreadable(path="logs/broken.json", why="is empty"),
        Unreadable(path="logs/notes.txt", why="is no profile: neither JSON nor XPlane"),
    )
    return report(RESNET, cpu_only().runs[0], many_workers().runs[0], unreadable=unreadable)


def crowded(amount: int = 200) -> Report:
    """More findings than anybody reads."""
    severities: tuple[Severity, ...] = ("high", "medium", "low")
    findings = tuple(
        changed(
            (INPUT_BOUND, THIRTY_TWO_BIT, LAUNCH_BOUND)[n % 3],
            key=f"finding-{n}",
            title=f"Finding number {n + 1}",
            severity=severities[3 * n // amount],
        )
        for n in range(amount)
    )
    return report(changed(RESNET, name="crowded", findings=findings))


def hostile(text: str) -> Report:
    """The rich report with `text` in every field that may hold text, keys of mappings included."""
    tagged = (*SEVERITY_FIELDS, "schema_version", "kind", "timed_by")

    def put(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            fixed = ("code",) if "words" in value else ()  # of a reason: the vocabulary's, never a trace's
            return {(f"{text}{k}" if key in MAPPINGS else k): v if k in fixed else put(v, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [put(v, key) for v in value]
        return f"{text}{value}" if isinstance(value, str) and key not in tagged else value

    in_range = changed(ACCOUNTING, parts=[changed(each, range="load", range_share=0.9) for each in ACCOUNTING.parts])
    ranged = changed(RESNET, metrics={**RESNET.metrics, "iterator": PIPELINE}, accounting=in_range)
    runs = (ranged, many_workers().runs[0])
    full = report(*runs, unreadable=(Unreadable(path="broken", why="empty"),))
    return Report.model_validate(put(full.model_dump()))


MAPPINGS = ("missing", "lacks", "breakdown", "shows", "params", "environment")
SEVERITY_FIELDS = ("severity", "confidence")

HOSTILE = {
    "script": "<script>fetch('//evil.example')</script>",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "style": "</style></code></details></td></svg><style>*{display:none}</style>",
    "template": "{{ 7 * 7 }}{% raw %}",
    "ansi": "\x1b[31mred\x1b]8;;https://evil.example\x07link\x9b2J",
    "null": "a\x00b\x08c\x7fd\r\ne\tf",
    "rtl": "abc\u202edef\u2066ghi\u200f",
    "long": "x" * 10_000,
    "emoji": "👩\u200d🚀🔥漢字",
    "pipes": "a|b\\|c\n|---|---|\n",
    "blocks": "\n\n# title\n\n- item\n\n```\ncode\n```\n<!-- \n",
    "backticks": "`code` ``` ```` `",
    "links": "[click](javascript:alert(1)) ![x](https://evil.example/x.png) https://evil.example www.evil.example",
    "mentions": "@torvalds #1 !2 $3 %4 &5 ~label org/repo#6 GH-7 me@evil.example",
    "actions": "/close\n/assign @root\n",
    "emphasis": "**bold** _it_ ~~gone~~ $x$ &lt; 1. 2) + = ---",
    "markup": "[red]alert[/red] [link=https://evil.example]x[/link] :bomb:",
}

SAMPLES = {
    "resnet": report(RESNET),
    "cpu-only": cpu_only(),
    "healthy": healthy(),
    "unknown": unknown(),
    "many-workers": many_workers(),
    "tensorflow": tensorflow(),
    "several": several(),
    "crowded": crowded(),
    "large": large(),
    "none": report(unreadable=(Unreadable(path="logs", why="holds no profile"),)),
    **{f"hostile-{name}": hostile(text) for name, text in HOSTILE.items()},
}

SHAPES = [name for name in SAMPLES if not name.startswith("hostile-") and name != "large"]
"""Samples of which none is like another: the hostile ones differ in their text alone, "large" only in its size."""
QUICK = {*SHAPES, "hostile-script", "hostile-attribute", "hostile-template", "hostile-rtl"}
"""Samples for what the text of a trace hardly changes; `make soak` has all of them."""

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, sample in SAMPLES.items():
        for suffix, kind in {"html": "html", "md": "markdown", "txt": "terminal"}.items():
            (folder / f"{name}.{suffix}").write_bytes(draw(Request(sample), kind))
