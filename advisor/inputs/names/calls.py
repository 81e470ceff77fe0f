"""What the names of host ranges and driver calls mean, whichever profiler recorded them."""

from typing import Final

import polars as pl

from advisor.inputs.names import shared
from advisor.model.schemas import HOST_OP_KINDS

STEP: Final = r"^ProfilerStep\s*#\s*(\d+)$"

FRAMEWORK_RANGE: Final = r"^(?:Optimizer\.|DataParallel\.|DistributedDataParallel\.|enumerate\(|nccl:|## )"
"""Ranges that PyTorch sets itself."""

NODE: Final = r"^autograd::engine::evaluate_function:"
"""The range in which PyTorch evaluates a node of the backward pass."""

OPTIMIZER_STEP: Final = shared.pattern("optimizer")
"""The range in which PyTorch's optimizer updates its parameters."""

DDP_FORWARD: Final = r"^DistributedDataParallel\.forward$"
"""The range of a forward pass of PyTorch's DistributedDataParallel."""

REDUCTION: Final = r":(?:all_?reduce|reduce_scatter)"
"""Collectives of gradients on the host: `gloo:all_reduce`."""

FUNCTION_CALL: Final = '"tf_function_call":'
"""In the details of a range in which TensorFlow calls a tf.function."""

PYTHON_CALL: Final = r"\$(\S+:\d+) (.+)"
"""A call of Python as XPlane names it: `$file.py:7 function`."""

INPUT_FUNCTION: Final = r"^InstantiatedCapturedFunction::"
"""The range in which tf.data runs a function of its pipeline, on a thread of its own or where the next is asked for."""

RESULT_WAIT: Final = (
    r"\b(?:_value|block_until_ready|synchronize|copy_to_host_async)$|^\$api\.py:\d+ device_get$"
    r"|^np\.asarray\(jax\.Array\)|^ArrayImpl\.|^\$ops\.py:\d+ _?numpy$"
    r"|(?i)\bwait for completion|BlockHostUntilReady|::Await$"
)
"""Functions and ranges in which the host waits for what the device, or another thread, computes."""

THREAD_WAIT: Final = (
    r"^<built-in (?:method|function) (?:acquire|sleep|poll|select|epoll_wait|recv\w*)\b"
    r"|^\$\S+ (?:acquire|sleep|poll|select|recv\w*)$"
)
"""Functions of Python that return when another thread or process, or time, lets them."""

WAITING_MODULES: Final = (
    r"(?:^|[/$])(?:queue|threading|selectors|socket|subprocess|connection|popen_\w+|synchronize|futures/\w+|asyncio/\w+)"
    r"\.py[(:]"
)
"""Functions of Python's library that call those."""

LOGGING: Final = shared.pattern("logging")
"""Functions of Python that log."""

SAVING: Final = shared.pattern("saving")
"""Functions of Python that save files."""

FILE_READ: Final = (
    r"(?:^|/)(?:numpy/lib/_?npyio\w*\.py\(\d+\): (?:load|loadtxt|genfromtxt|fromregex|__getitem__)"
    r"|PIL/Image\.py\(\d+\): open|PIL/ImageFile\.py\(\d+\): load|torchvision/io/\w+\.py\(\d+\): (?:read|decode)_\w+"
    r"|h5py/_hl/(?:dataset\.py\(\d+\): __getitem__|files\.py\(\d+\): __init__)|torch/serialization\.py\(\d+\): load"
    r"|pandas/io/[\w/]+\.py\(\d+\): read_\w+|pyarrow/\w+(?:/\w+)?\.py\(\d+\): read\w*|soundfile\.py\(\d+\): read"
    r"|(?:gzip|bz2|lzma|zipfile(?:/__init__)?)\.py\(\d+\): read\w*|json/__init__\.py\(\d+\): load)$"
    r"|^<built-in (?:function|method) (?:imread|fromfile)\b"
)
"""Functions of Python that read and decode a file, as Kineto names them."""

JIT_CALL: Final = r"^PjitFunction\("
"""The range in which JAX calls a compiled function; on a CPU too it may return before the program has run."""

OWN_LOADING: Final = shared.pattern("loader")
"""PyTorch's loading of a batch in the main process: its range, or where that was not recorded its function."""

WORKERS_LOADING: Final = shared.pattern("worker_loader")
"""Requests for a batch to the processes of PyTorch's loader."""

WAITS: Final = r"^(?:cuda|hip)(?:Device|Thread|Stream|Event)Synchronize|^cu(?:Ctx|Stream|Event)Synchronize"
TAKES_MEMORY: Final = r"^(?:cuda|hip)(?:Ext|Host)?(?:Malloc|Free|Alloc)|^cuMem(?:Alloc|Free|Create|Map|Unmap)"
"""Driver calls that only wait; and those that allocate or free memory."""

GRAPH_LAUNCH: Final = r"^(?:cu|cuda|hip)GraphLaunch"
CAPTURE_BEGINS: Final = r"^(?:cu|cuda|hip)StreamBeginCapture"
CAPTURE_ENDS: Final = r"^(?:cu|cuda|hip)StreamEndCapture"
"""Calls that launch a CUDA graph, and those between which calls are captured into one."""

# (kind it starts as, pattern of the name, kind it is); the first that matches decides.
_REFINED: Final = [
    ("op|annotation", r"^enumerate\(Data(?:Loader|Pipe)\)#", "input"),
    ("op|annotation", r"^(?:gloo|mpi|ucc):", "collective"),  # nccl:* only launches; its kernels communicate
    ("op|annotation", STEP, "step"),
    ("op|annotation", r"^Optimizer\.(?:step|zero_grad)#|^DataParallel\.|^DistributedDataParallel\.", "annotation"),
    ("op|annotation|python", r"compile_inner|call_user_compiler|compile_fx|fx_codegen_and_compile", "compile"),
    # nvFuser's ranges around what it does once per fusion: lowering, NVRTC, loading the module.
    ("op|annotation", r"^(?:FusionKernelRuntime|KernelExecutor|ExecutorDispatch|FusionExecutor)::compile", "compile"),
    ("op|annotation", r"^(?:CompiledKernel|ExprEvalExecutor)::(?:compile|CompiledKernel)", "compile"),
    ("op|annotation", r"^FusionKernelRuntime::FusionKernelRuntime$|::compileNewKRT$", "compile"),
    ("op|annotation", r"^GpuLower::|^executor_utils::N(?:VRTC|vrtc)", "compile"),
    ("op|annotation|python", r"^(?:Python GC|gc\.collect)|<built-in function collect>", "gc"),
    ("python", r"^nn\.Module: ", "module"),
    ("runtime", WAITS, "sync"),
    ("runtime", r"^(?:cuda|hip)(?:Memcpy|MemcpyFromSymbol|MemcpyToSymbol|Memcpy2D|Memcpy3D)(?:_v\d+)?$", "sync"),
    ("runtime", r"^cuMemcpy(?:HtoD|DtoH|2D|2DUnaligned|3D)?(?:_v\d+)?$", "sync"),
    ("runtime", TAKES_MEMORY, "allocator"),
]


def host_kinds(started_as: pl.Expr, name: pl.Expr) -> pl.Expr:
    """Kind of a host op from its category's kind and its name; `name` must be a string."""
    kind = started_as
    for starts, pattern, refined in reversed(_REFINED):
        kind = (
            pl.when(started_as.is_in(starts.split("|")) & name.str.contains(pattern))
            .then(pl.lit(refined))
            .otherwise(kind)
        )
    return kind.cast(HOST_OP_KINDS)
