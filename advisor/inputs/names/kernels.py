"""What a GPU kernel's name alone tells: its family, whether it multiplies on Tensor Cores, in which type, how aligned.

Every function takes a series of kernel names, best the distinct ones, and judges each name by itself. Tensor Cores
stand for the matrix units of either vendor (HMMA, WGMMA, tcgen05; MFMA, WMMA). The lists began with the substrings of
XProf's `kernel_stats_utils.cc` and were corrected on the names of public traces from V100 to B200 and MI250 to MI300X.
"""

from typing import Any, Final, TypeAlias

import polars as pl

FAMILIES = pl.Enum(
    [
        "gemm",  # matrix times matrix, with the steps that finish one (split-K sums, epilogues)
        "gemv",  # matrix times vector and dot products: bound by memory
        "convolution",  # with its offset tables, tile transforms and im2col
        "attention",  # fused attention only: the unfused kind is gemm, softmax, gemm
        "normalisation",
        "softmax",
        "reduction",  # with losses
        "elementwise",  # with fills
        "copy",  # copies, and conversions from type to type
        "cat",
        "layout",  # NCHW to NHWC and back, other transposes
        "index",  # gather, scatter, permutation, routing to experts, writes to a key-value cache
        "sort",  # sort, scan, top-k, unique
        "embedding",
        "pooling",
        "rng",  # random numbers and dropout
        "optimizer",  # one kernel over many tensors: the fused and foreach implementations
        "quantisation",
        "collective",
        "fused_collective",  # a product and its exchange in one kernel: how long it does either is not in its name
        "compiled",  # fused by a compiler: Inductor, nvFuser, XLA
        "other",
    ]
)

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter"),
    *("send", "recv", "send_recv", "barrier"),
)
"""What a collective does; send_recv is a kernel of transfers that its name does not tell apart."""

PRODUCTS = ["gemm", "gemv", "convolution", "attention"]
"""Families of kernels that multiply matrices."""

# (label, pattern): the first match wins. Patterns are verbose, in lower case, and searched in lower-case text.
Rules: TypeAlias = tuple[tuple[str, str], ...]

# Searched in the kernel's own name without its arguments. Products come before what is fused to them.
_FAMILY: Rules = (
    ("other", r"^nccl:"),  # a range around a call, not a kernel
    # What only speaks of communication: Inductor names a kernel after its neighbours, a reduction may stay in a block.
    ("compiled", r"^triton_(?:poi|red|per|for|split_scan)_"),
    ("reduction", r"(?:block|warp|wave|cta|thread|cub)\w*_?all_?reduce"),
    (
        "index",
        r"""get_dispatch_layout | (?:permute|recat)\w*_all_?to_?all
        | (?:all_?gather|reduce_?scatter|all_?to_?all)\w*_(?:copy_in|copy_out|permute|recat|layout|offsets)""",
    ),
    (
        "fused_collective",
        r"""bytedance::flux | agkernel(?:tile|streamk) | (?:all_?gather|ag)_gemm | kernel_consumer_\w*gemm
        | gemm_?(?:rs|ar|all_?reduce|reduce_?scatter)(?:_|$)""",
    ),
    (
        "collective",  # also with the norm that follows an all-reduce: next to the exchange it takes no time
        r"""^nccl | nccl(?:dev|kernel|sym) | rccl | msccl | hccl | ^hcom_ | oneccl | cross_device_(?:reduce|store)
        | (?:intra|inter)node(?:_\w+)?:: | (?:^|[:_])ep::(?:\w+::)*\w*(?:dispatch|combine|notify|barrier|sync)
        | (?:^|::)ep(?:dispatch|combine) | a2a_?(?:dispatch|combine)
        | nvshmem | roc_?shmem | _on_stream_kernel | symmetric_memory:: | (?:put|wait)_signal_kernel
        | quickreduce:: | userbuffers | multimem_ | ^collective-(?:permute|broadcast)
        | ^(?:\w*::)*[\w-]*(?:all[_-]?reduce|all[_-]?gather|reduce[_-]?scatter|all[_-]?to[_-]?all)""",
    ),
    ("compiled", r"nvfuser_(?:[^m]|multi)"),
    ("index", r"_and_cache | kv_buffer | cache_kernel | gather_and_maybe | gather_cache"),
    (
        "attention",
        r"""flash_?(?:fwd|bwd|attn|attention|mla|fprop|bprop) | flash:: | fmha | attn_(?:fwd|bwd) | attention | _sdpa_
        | merge_attn | kvcachekernel | prefill_kernel | (?:^|[_:])(?:mha|mqa|mla|gqa)_""",
    ),
    (
        "convolution",
        r"""conv(?:olution|olve|[123]d|nd|_|\dx\d) | asmconv | [fdw](?:prop|grad) | [hs468]cudnn | winograd | fft2d_
        | cutlass_cudnn | igemm_(?:fwd|bwd|wrw) | im2col | im[23]d2col | col2im | cask_\w+::compute | kern_precompute
        | direct_group""",
    ),
    ("layout", r"nchw_?(?:to|2)_?nhwc | nhwc_?(?:to|2)_?nchw | transpose | shuffleintensor3 | swapdimension1and2"),
    ("gemv", r"gemv | gevm | mul_mat_vec | wvsplitk | ^dot_kernel"),
    ("normalisation", r"(?:layer|rms|batch|group|instance)_?norm | bn_[fb]w | gamma_?beta | (?:^|[_:])ln_[fb]wd"),
    (
        "gemm",
        r"""gemm | cijk_ | nvjet | matmul | _b?mm_ | _b?mm$ | ^b?mm_ | ^b?mm$ | _addmm | mul_mat_q | marlin
        | machete | flatmm | mfma | splitkreduce | epilogue::impl | fused_moe_kernel | contractionkernel""",
    ),
    ("softmax", r"soft_?max"),
    ("embedding", r"embedding_(?:backward|bag|forward|codegen|dense) | embeddingbag | pooled_embs"),
    ("optimizer", r"multi_?tensor | adam | fused_?(?:sgd|lamb) | optimizer"),
    ("quantisation", r"quant"),
    ("rng", r"distribution_ | dropout | philox | bernoulli | random | curand"),
    ("sort", r"sort | scan | topk | top_k | unique | runlength | reducebykey | deviceselect | compactinit"),
    ("pooling", r"pool(?:_|ing|2d|3d|$)"),
    ("cat", r"catarray | concat | chunk_cat"),
    ("reduction", r"reduce | reduction | nll_?loss | nllcriterion | cross_entropy | (?:^|[_:])sum"),
    ("copy", r"copy | memcpy | withcast | _cast | cast_"),
    ("elementwise", r"elementwise_kernel_with_index"),
    ("index", r"index | indices | gather | scatter | permut | rout(?:ing|e) | moe | offsets_range"),
    (
        "elementwise",
        r"""elementwise | pointwise | eigenmetakernel | ^fill | _fill | ::fill | fillbuffer | memset | rotary | rope_
        | act_and_mul | silu | gelu | swiglu | activation | bias_ | op_tensor | subtensorop | scalepacked
        | parallel_?for""",
    ),
    ("compiled", r"^(?:loop|input|wrapped)_ | fusion(?:_\d+)*(?:\.kd)?$"),
)

# What a collective does, by the name of its kernel, of the range around the call, or of the profiler's metadata.
_COLLECTIVE: Rules = (
    # PyTorch's is an all_reduce of one element: nccl:all_reduce_barrier. An exchange of experts begins with one: ranks
    # tell each other how many tokens will come, a few bytes, so that all it takes is waiting for the last rank.
    ("barrier", r"barrier | notify | (?:sync|quiet)_all | device_sync_kernel | wait_signal"),
    ("reduce_scatter", r"reduce[_-]?scatter | userbuffers_\w*_rs(?:_|$)"),
    ("all_gather", r"all[_-]?gather | userbuffers_\w*_ag(?:_|$)"),
    ("all_reduce", r"all[_-]?reduce | cross_device_reduce | quickreduce | userbuffers_fp16_sum"),
    ("all_to_all", r"all[_-]?to[_-]?all | dispatch | combine"),
    ("send_recv", r"send_?recv | collective-permute"),
    ("broadcast", r"broadcast"),
    ("gather", r"gather"),
    ("scatter", r"scatter"),
    ("reduce", r"reduce"),
    ("send", r"(?:^|[_:.]|push)i?send"),
    ("recv", r"(?:^|[_:.]|push)i?recv"),
)

# PyTorch copies with its generic kernels: only their functor tells.
_GENERIC = r"elementwise_kernel|multi_tensor_apply"
_COPY_FUNCTOR = r"direct_copy_kernel|float(?:16|8\w*)_copy_kernel|copy_device_to_device|TensorListMetadata.*::Copy<"

# Steps around a multiplication, and depthwise convolutions: they multiply no matrices.
_HELPERS = r"""
    split_?k_?reduce | reducesplitk | postgsu | epilogue::impl | finalize_matmul | repack | permute_cols | reduce_wgrad
    | compute\w*offsets | kern_precompute | winograd_nonfused | generatewinograd | im2col | im[23]d2col | col2im
    | fft2d_ | dot_do_o | convert_d[kq] | clear_d[kq] | bwdpreprocess | bwdpostprocess | prepare_varlen
    | merge_attn | (?:splitkv|fwd|mla|attn)_?combine | conv_depthwise | depthwiseconv | causal_conv1d"""

_TENSOR_CORES: Rules = (
    (  # The instruction or its shape is in the name: certain, whatever else the name holds.
        "used",
        r"""tensorop | tensor\d+x\d+x\d | warpgroupsize | _mi\d+x\d | mfma | gtcx | _xdl | sm(?:80|90|120)_\d+x\d+x
        | [hs](?:884|1688|16816|161616) | [dcbi](?:884|8816|1688|16816|16832)(?:gemm|cudnn|[fdw](?:prop|grad)|_)
        | [_:][hibdu]mma | ^[hibdu]mma | wmma | gmma | tmaumma | tcgen05""",
    ),
    (  # Instructions of the ordinary cores, and engines that are older than Tensor Cores and were never changed.
        "unused",
        r"""simt | ffma | dfma | _sgemm | ^sgemm | (?:volta|turing|ampere)_(?:fp16_)?[a-z]{1,2}gemm_ | maxwell_
        | pascal_ | gemm(?:sn|k1)_ | gemm_?\d+x\d+_(?:nn|nt|tn)_kernel | gemv | gevm | mul_mat_vec | ^dot_kernel
        | \sdot_kernel | scudnn | hcudnn | convolve\w*_(?:sgemm|engine) | [dw]grad\w*_engine | 2d_grouped_direct
        | naive_conv | fmha_cutlass[fb]_(?:f32\w*_sm(?:50|70|75)|bf16\w*_sm70|\w*_sm50) | batchdecodewith
        | contractionkernel | cijk_.*_mt\d+x\d+x\d+_s[en]_ | _dl(?:ops)?_ | gtcn | asmconv_v""",
    ),
    (  # Libraries and operands that there are only with Tensor Cores.
        "used",
        r"""nvjet | xmma_\w*(?:tf32|f16|i8|s8|e4m3|e5m2) | conv1x1 | conv2d_c1_k1 | dgrad_1x1_stride_2x2 | direct_group
        | first_layer_wgrad_kernel | cutlass3x_sm(?:90|1\d\d) | sm(?:90|1\d\d)_(?:fp8|bf16|fp16) | blockscaled
        | flash_(?:fwd|bwd) | flashatt | fmha | native_sdpa | batchprefillwith | deep_gemm | marlin | machete
        | ck_tile | (?:bmm|gemm)_(?:b?float16|mx|e\dm\d) | matmul_ogs\w*(?:bf16|fp16|fp8|mxfp4)""",
    ),
)

# Of two different inputs the wider one, at whose rate they are multiplied: fp8 with fp4 is fp8, bf16 with fp4 is bf16.
# Tensile (`Cijk_<A>_<B>_<type>...`) and nvJet (`nvjet_<type>...`) code the type of the inputs in a letter.
_TYPES: Rules = (
    ("fp64", r"d(?:884|1688|16816)gemm | _[dz]gemm | ^[dz]gemm | f64f64 | <double | cijk_[a-z]+_[a-z]+_[dz]"),
    ("fp8", r"e[45]m[23] | fp8 | float8 | nvjet_(?:sm\d+_)?[qr] | cijk_[a-z]+_[a-z]+_[bf]8"),
    ("bf16", r"bf16 | bfloat | df16b | xdl\w*?[ie_]t{2,3}f | nvjet_(?:sm\d+_)?t | cijk_[a-z]+_[a-z]+_b"),
    ("fp4", r"e2m1 | fp4 | nvjet_(?:sm\d+_)?o"),
    ("int8", r"i(?:8816|16832)(?:gemm|cudnn) | i8i8 | i8f32 | s8s8 | int8 | cijk_[a-z]+_[a-z]+_(?:4x)?i8"),
    (
        "fp16",
        r"""fp16 | f16f16 | _f16_(?:\w*gemm|aligned|s\d) | gemm_f16 | half | float16 | _hgemm | df16_
        | h(?:884|1688|16816) | (?:volta|turing)_\w*(?:hmma|884|1688) | nvjet_(?:sm\d+_)?h
        | cijk_[a-z]+_[a-z]+_h""",
    ),
    ("tf32", r"tf32 | tfloat32 | s1688 | fmha_cutlass[fb]_f32\w*_sm8 | cijk_[a-z]+_[a-z]+_s_mx"),
    (
        "fp32",
        r"""sgemm | cgemm | scudnn | ffma | f32f32 | _f32_aligned | (?:conv|igemm)\w*fp32 | engineif
        | <(?:(?:int|long),\s)*float2?[,>] | cijk_[a-z]+_[a-z]+_[sc]""",
    ),
)

_SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "name": pl.String,
    "family": FAMILIES,
    "multiplies": pl.Boolean,
    "tensor_cores": pl.Boolean,
    "element_type": pl.String,
    "alignment": pl.UInt8,
}
_MOST_NAMES: Final = 100_000
_classes: dict[str | None, tuple[Any, ...]] = {}
"""What is known of the names so far: the ranks of a job run the same kernels, and a search takes long."""


def classify(names: pl.Series) -> pl.DataFrame:
    """All that each kernel name tells, one row per name, in order; a null name is null in every column.

    Columns:
        name
        family: What the kernel does, as FAMILIES.
        multiplies: Whether it may multiply matrices; false where its family or its role rules that out.
        tensor_cores: Whether Tensor Cores are used, null where the name does not settle it. False as well for a kernel
            that multiplies no matrices: `multiplies` tells it from a missed chance.
        element_type: Input type of the multiplication (fp64 fp32 tf32 fp16 bf16 fp8 fp4 int8); null where not told.
        alignment: The N of `alignN` in CUTLASS and cuDNN names, in elements; null where the name holds none.
    """
    text = names.cast(pl.String).alias("name")
    distinct = text.unique().to_list()
    if unseen := [name for name in distinct if name not in _classes]:
        _classes.update(zip(unseen, _searched(unseen).iter_rows(), strict=True))
    classes = pl.DataFrame([_classes[name] for name in distinct], schema=_SCHEMA, orient="row")
    if len(_classes) > _MOST_NAMES:
        _classes.clear()
    return text.to_frame().join(classes, on="name", how="left", nulls_equal=True, maintain_order="left")


def family(names: pl.Series) -> pl.Series:
    """What each kernel does, as FAMILIES."""
    return classify(names)["family"]


def collective_op(names: pl.Series) -> pl.Series:
    """String: which of COLLECTIVES it is; null where the name does not say, as of `ncclDevKernel_Generic`.

    Names that are no collective's are not told from others: ask `family` first. The names of NCCL's kernels are right
    about the operation, not about algorithm and protocol.
    """
    if names.is_empty():
        return pl.Series(dtype=pl.String)
    text = pl.col("name").pipe(_subject)
    return names.cast(pl.String).alias("name").to_frame().select(op=_first(_COLLECTIVE, text)).to_series()


def _searched(names: list[str | None]) -> pl.DataFrame:
    """The columns of `classify`."""
    frame = pl.LazyFrame({"name": names}, schema={"name": pl.String})
    frame = frame.with_columns(subject=_subject(pl.col("name")))
    frame = frame.with_columns(kind=_kind(pl.col("name"), pl.col("subject")))
    frame = frame.with_columns(multiplies=_multiplies(pl.col("kind"), pl.col("subject")))
    # Null where there is nothing to ask, which is cheaper than a search.
    text = pl.when("multiplies").then(pl.col("name").str.to_lowercase())
    product = pl.when(pl.col("kind").is_in(PRODUCTS)).then(text)
    judged = frame.with_columns(
        family=pl.col("kind").cast(FAMILIES),
        tensor_cores=pl.when("multiplies").then(_first(_TENSOR_CORES, text) == "used").otherwise("multiplies"),
        element_type=_first(_TYPES, _inputs(product)),
        alignment=product.str.extract(r"_align[abc]?(\d+)").cast(pl.UInt8, strict=False),
    )
    return judged.select(*_SCHEMA).collect()


def _subject(name: pl.Expr) -> pl.Expr:
    """The part that says what the kernel is, in lower case.

    That is its own name without return type, anonymous namespace and arguments (nor FBGEMM's name, which promises a
    product that most of its kernels are not); but of a template that runs what it is given, everything.
    """
    plain = name.str.replace_many(["(anonymous namespace)::", "<unnamed>::", "fbgemm"], [""])
    plain = plain.str.replace(r"^(?:void )?(?:std::enable_if<.*?>::type )?", "")
    head = _before(_before(plain, "<"), "(")
    is_wrapper = head.str.contains(r"^(?:cutlass\w*|ck|ck_tile|thrust)::")
    return pl.when(is_wrapper).then(name).otherwise(head).str.to_lowercase()


def _before(text: pl.Expr, mark: str) -> pl.Expr:
    return text.str.split_exact(mark, 1).struct.field("field_0")


def _kind(name: pl.Expr, subject: pl.Expr) -> pl.Expr:
    """The family, as a string."""
    is_copy = subject.str.contains(_GENERIC) & name.str.contains(_COPY_FUNCTOR)
    kind = pl.when(is_copy).then(pl.lit("copy")).otherwise(_first(_FAMILY, subject)).fill_null("other")
    return pl.when(name.is_not_null()).then(kind)


def _multiplies(kind: pl.Expr, subject: pl.Expr) -> pl.Expr:
    return kind.is_in([*PRODUCTS, "other"]) & ~subject.str.contains(_ascii(_HELPERS))


def _inputs(name: pl.Expr) -> pl.Expr:
    """The name without types that are not of an input: `bmm_<result>_<inputs>`, `Qkv<in>O<result>`, scales, caches."""
    name = name.str.replace(r"^(?:bmm|gemm)_(?:mx)?(?:b?float16|e\dm\d)_", "")
    name = name.str.replace_many(["ue4m3", "ue8m0", "fp8kvcache"], [""])
    return name.str.replace(r"(_q\w*?(?:float16|e\dm\d))o(?:b?float16|e\dm\d)", "$1")


def _first(rules: Rules, text: pl.Expr) -> pl.Expr:
    """The label of the first rule whose pattern occurs in the text; null where none does."""
    return pl.coalesce(pl.when(text.str.contains(_ascii(pattern))).then(pl.lit(label)) for label, pattern in rules)


def _ascii(pattern: str) -> str:
    r"""The verbose pattern without the letters and digits of all scripts, which take three times as long to compile."""
    return "(?x)" + pattern.replace(r"\w", "[a-z0-9_]").replace(r"\d", "[0-9]")
