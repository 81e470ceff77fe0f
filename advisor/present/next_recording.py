"""How to record the next profile, so that it answers what this one does not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.report import Run


class Option(NamedTuple):
    """What to record next time: an option of a profiler, what it is about, what it adds, and the reasons that it ends.

    `flag` is the option of `advisor record` that sets it, empty where that is set by default.
    """

    option: str
    topic: str
    adds: str
    reasons: tuple[str, ...]
    flag: str = ""


_TORCH_OPTIONS: Final = (
    Option("record_shapes=True", "shapes", "the input shapes of every op", ("no_shapes",)),
    Option("profile_memory=True", "memory", "how full the memory is", ("no_memory_profile",), "--memory"),
    Option(
        "with_stack=True",
        "Python calls",
        "the source lines; slows the host, so in a second recording",
        ("no_stacks", "no_python_calls_pytorch", "no_python_calls_recorder"),
        "--stacks",
    ),
)
_NSYS_OPTIONS: Final = (
    Option(
        "--cuda-graph-trace=node",
        "CUDA graphs",
        "what runs in CUDA graphs",
        ("graphs_not_traced", "no_launch_dimensions_nsys"),
    ),
    Option("--cuda-memory-usage=true", "memory", "how full the memory is", ("no_memory_usage",)),
    Option("--cpuctxsw=process-tree", "waits for a CPU", "when threads get no CPU", ("no_context_switches",)),
    Option("--gpu-metrics-devices=all", "counters", "the device's counters", ("no_gpu_metrics",)),
    Option("--pytorch=autograd-shapes-nvtx", "shapes", "the input shapes of every op", ("no_pytorch_range_shapes",)),
)
_PYTHON_CALLS: Final = "the Python functions that run between the ops"
_HOST_OPS: Final = "the ops of the host, and of tf.data"
_TENSORFLOW_OPTIONS: Final = (
    Option("host_tracer_level=2", "ops of the host", _HOST_OPS, ("no_host_tracer", "no_iterators")),
)
_JAX_OPTIONS: Final = (
    Option("python_tracer_level=1", "Python calls", _PYTHON_CALLS, ("no_python_calls_jax",)),
    Option("host_tracer_level=2", "ops of the host", _HOST_OPS, ("no_host_tracer", "no_iterators")),
)


def recording(run: Run) -> str | None:
    """The profiler's call with the options that this profile was recorded without; None where no option would help."""
    return recipe(run) if missing_options(run) else None


def recipe(run: Run) -> str:
    """The profiler's call that marks ten steps, with the options that this profile was recorded without."""
    return _profiler(run).call(missing_options(run))


def command(run: Run) -> str:
    """The same as a command to paste; empty of an engine that starts its profiler itself, and of no format."""
    return _profiler(run).command(missing_options(run))


def answered(run: Run) -> list[str]:
    """The rules that could not be judged for the lack of these options."""
    codes = {code for option in missing_options(run) for code in option.reasons}
    return [rule.rule for rule in run.not_evaluable if any(why.code in codes for why in rule.missing.values())]


def missing_options(run: Run) -> list[Option]:
    """The profiler's options that would have recorded what this profile lacks."""
    reasons = [*run.source.lacks.values(), *(why for rule in run.not_evaluable for why in rule.missing.values())]
    missing = {why.code for why in reasons}
    return [option for option in _profiler(run).options if missing & set(option.reasons)]


def _nsys(missing: Sequence[Option]) -> str:
    lines = [f" \\\n    {option.option}" for option in missing]
    return f"nsys profile --trace=cuda,nvtx,osrt{''.join(lines)} <command>\n"


def _torch(missing: Sequence[Option]) -> str:
    lines = "".join(f"    {option.option},  # {option.adds}\n" for option in missing)
    return (
        "with torch.profiler.profile(\n"
        "    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n"
        "    schedule=schedule(skip_first=10, wait=1, warmup=2, active=10, repeat=1),\n"
        '    on_trace_ready=tensorboard_trace_handler("logdir"),\n'
        f"{lines}) as prof:\n"
        "    for batch in loader:\n"
        "        run_step(batch)\n"
        "        prof.step()  # marks the end of a step\n"
    )


def _torch_of_engine(missing: Sequence[Option]) -> str:
    """Of a server, whose engine calls the profiler and marks its steps."""
    lines = "".join(f"    {option.option},  # {option.adds}\n" for option in missing)
    return (
        "torch.profiler.profile(  # where the engine starts its profiler\n"
        "    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],\n"
        f"{lines})\n"
    )


def _tensorflow(missing: Sequence[Option]) -> str:
    lines = "".join(f"    {option.option},  # {option.adds}\n" for option in missing)
    setup = f"options = tf.profiler.experimental.ProfilerOptions(\n{lines})\n" if lines else ""
    return (
        f"{setup}"
        f'tf.profiler.experimental.start("logdir"{", options" if lines else ""})  # after the warm-up\n'
        "for step in range(10):\n"
        '    with tf.profiler.experimental.Trace("train", step_num=step, _r=1):  # marks a step\n'
        "        batch = next(batches)\n"
        "        run_step(batch)\n"
        "tf.profiler.experimental.stop()\n"
    )


def _jax(missing: Sequence[Option]) -> str:
    lines = "".join(f"options.{o.option.replace('=', ' = ')}  # {o.adds}\n" for o in missing)
    setup = f"options = jax.profiler.ProfileOptions()\n{lines}" if lines else ""
    return (
        f"{setup}"
        f'with jax.profiler.trace("logdir"{", profiler_options=options" if lines else ""}):  # after the warm-up\n'
        "    for step in range(10):\n"
        '        with jax.profiler.StepTraceAnnotation("train", step_num=step):  # marks a step\n'
        "            batch = next(batches)\n"
        "            state = run_step(state, batch)\n"
        "    jax.block_until_ready(state)  # the device work of the last step too\n"
    )


def _record(missing: Sequence[Option]) -> str:
    return " ".join(("advisor record", *(option.flag for option in missing if option.flag), "-- COMMAND"))


def _nsys_command(missing: Sequence[Option]) -> str:
    return " ".join(("nsys profile --trace=cuda,nvtx,osrt", *(option.option for option in missing), "COMMAND"))


def _nothing(_: Sequence[Option]) -> str:
    return ""


class _Profiler(NamedTuple):
    """A profiler's options, and its call with some of them, by hand and as a command to paste."""

    options: Sequence[Option]
    call: Callable[[Sequence[Option]], str]
    command: Callable[[Sequence[Option]], str] = _record


_PROFILERS: Final[Mapping[str, Mapping[str, _Profiler]]] = {
    "kineto": {"serving": _Profiler(_TORCH_OPTIONS, _torch_of_engine, _nothing), "": _Profiler(_TORCH_OPTIONS, _torch)},
    "nsys": {"": _Profiler(_NSYS_OPTIONS, _nsys, _nsys_command)},
    "xplane": {"tensorflow": _Profiler(_TENSORFLOW_OPTIONS, _tensorflow), "": _Profiler(_JAX_OPTIONS, _jax)},
}
"""By format what records it: for one kind of work or framework, or for all others."""

_OF_NO_READER: Final = _Profiler((), _nothing, _nothing)


def _profiler(run: Run) -> _Profiler:
    """The one that recorded this profile."""
    ways = _PROFILERS.get(run.source.format, {"": _OF_NO_READER})
    work = run.source.workload.kinds[0] if len(run.source.workload.kinds) == 1 else ""
    return ways.get(work) or ways.get(run.source.framework or "") or ways[""]
