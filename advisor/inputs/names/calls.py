"""What the names of host ranges and driver calls mean, by calls.yaml; patterns that rules share, by selections.yaml."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl

from advisor.model.profile import HOST_OP_KINDS
from advisor.system.resources import rules_folder
from advisor.vocabulary.limits import table
from advisor.yamltree import Yaml, content_of, decoded

FILE: Final = "selections.yaml"  # of a folder of rules: its shared selections, and no rule
FIXES: Final = "fixes.yaml"  # the same of fixes


@cache
def written(path: Path) -> Mapping[str, Any]:
    """The selections in a file by name, as they are written there."""
    selections: Mapping[str, Any] = Yaml(decoded(content_of(path))).value
    return selections


def pattern(name: str) -> str:
    """The pattern of a shared selection that selects by one."""
    joined: str = alternatives(next(iter(written(rules_folder() / FILE)[name].values())))
    return joined


def alternatives(written: object) -> Any:  # noqa: ANN401 - what a file holds
    """A list of patterns as one that each of them matches; what is no list as it is."""
    is_list = isinstance(written, list) and all(isinstance(each, str) for each in written)
    return "|".join(f"(?:{each})" for each in written) if is_list else written  # type: ignore[attr-defined]


_WRITTEN: Final = table(__file__, "calls")
_PATTERNS: Final[dict[str, str]] = {name: alternatives(written) for name, written in _WRITTEN["patterns"].items()}

STEP: Final = _PATTERNS["step"]
FRAMEWORK_RANGE: Final = _PATTERNS["framework_range"]
OWN_OPTIMIZER: Final = _PATTERNS["own_optimizer"]
NODE: Final = _PATTERNS["node"]
DDP_FORWARD: Final = _PATTERNS["ddp_forward"]
REDUCTION: Final = _PATTERNS["reduction"]
FUNCTION_CALL: Final = _PATTERNS["function_call"]
PYTHON_CALL: Final = _PATTERNS["python_call"]
INPUT_FUNCTION: Final = _PATTERNS["input_function"]
RESULT_WAIT: Final = _PATTERNS["result_wait"]
THREAD_WAIT: Final = _PATTERNS["thread_wait"]
SYSTEM_WAIT: Final = _PATTERNS["system_wait"]
FILE_CALL: Final = _PATTERNS["file_call"]
WAITING_MODULES: Final = _PATTERNS["waiting_modules"]
TAKES_OVER: Final = _PATTERNS["takes_over"]
HANDS_OVER: Final = _PATTERNS["hands_over"]
POOL_TASK: Final = _PATTERNS["pool_task"]
FILE_READ: Final = _PATTERNS["file_read"]
JIT_CALL: Final = _PATTERNS["jit_call"]
EAGER_CALL: Final = _PATTERNS["eager_call"]
COMPILED_CALL: Final = _PATTERNS["compiled_call"]
KERAS_STEP: Final = _PATTERNS["keras_step"]
FREES: Final = _PATTERNS["frees"]
GRAPH_LAUNCH: Final = _PATTERNS["graph_launch"]
LAUNCHING: Final = _PATTERNS["launching"]
CAPTURE_BEGINS: Final = _PATTERNS["capture_begins"]
CAPTURE_ENDS: Final = _PATTERNS["capture_ends"]
DEVICE_WAIT: Final = _PATTERNS["device_wait"]

OPTIMIZER_STEP: Final = pattern("optimizer")  # the range in which PyTorch's optimizer updates its parameters
OUTDATED: Final = "INVALID_DEVICE|not supported by this"  # what Nsight Systems says of a driver that is newer than it
FULL: Final = r"(?i)out ?of ?memory|MemoryAllocation|RESOURCE_EXHAUSTED"  # what frameworks say of full memory
OF_CPU, OF_GPU = pattern("cpu_ops"), pattern("gpu_ops")  # ops of PyTorch that only a CPU runs, and that only a GPU runs
LOGGING, SAVING = pattern("logging"), pattern("saving")  # functions of Python that log, and that save files
# PyTorch's loading of a batch in the main process: its range, or where that was not recorded its function
OWN_LOADING: Final = pattern("loader")
WORKERS_LOADING: Final = pattern("worker_loader")  # requests for a batch to the processes of PyTorch's loader


def host_kinds(started_as: pl.Expr, name: pl.Expr) -> pl.Expr:
    """Kind of a host op from its category's kind and its name; `name` must be a string."""
    rows = ((row["kind"], row["of"], name.str.contains(alternatives(row["names"]))) for row in _WRITTEN["kinds"])
    kinds = (pl.when(started_as.is_in(of) & fits).then(pl.lit(kind)) for kind, of, fits in rows)
    return pl.coalesce(*kinds, started_as).cast(HOST_OP_KINDS)
