"""What XLA's programs tell: lines of ops, and number formats of the kernels fused around a product."""

from __future__ import annotations

import pytest

from advisor.model.profile import Profile
from tests.strategies_xplane import GPU, event, host, line, message, plane, read, space
from tests.tables import kernel, metrics_of, profile, step, view

F16, F32, F64, BF16, F8, S8 = 10, 11, 12, 16, 20, 2


def instruction(opcode: str, number: int, element_type: int, *operands: int) -> bytes:
    return message((2, opcode), (3, message((2, element_type))), (35, number), (36, bytes(operands) or None))


def fusion(name: str, operand: int, result: int = F32) -> bytes:
    """A product of two parameters of one type; numbers of instructions up to 127 take a byte each."""
    body = (
        instruction("parameter", 11, F64),  # of nobody
        instruction("parameter", 12, operand),
        instruction("parameter", 13, operand),
        instruction("dot", 14, result, 12, 13),
        instruction("convert", 15, S8, 14),
    )
    return message((1, f"{name}_computation"), *((2, part) for part in body))


def program(module: str, *computations: bytes) -> bytes:
    return message((1, message((1, module), *((3, each) for each in computations))))


def metadata(*programs: bytes) -> bytes:
    """The plane that holds them."""
    named = [
        (4, message((1, i), (2, message((1, i), (2, f"program({i})"), (5, message((1, 1), (6, each)))))))
        for i, each in enumerate(programs, 1)
    ]
    return message((2, "/host:metadata"), *named, (5, message((1, 1), (2, message((1, 1), (2, "Hlo Proto"))))))


def stacks(*calls: tuple[int, int]) -> bytes:
    """Two files, two functions, two lines of them, and these calls: line and what is around it."""
    texts = ((1, "net.py"), (1, "train.py"), (2, "call"), (2, "main"))
    places = ((3, message((1, i), (2, i), (3, 10 * i))) for i in (1, 2))
    return message(*texts, *places, *((4, message((1, place), (2, around or None))) for place, around in calls))


def ops_on_cpu(index: bytes, *fields: tuple[int, object], shape: bytes = b"") -> Profile:
    """An op on the CPU with this metadata, and one that no program has."""
    op = message((1, "fusion.1"), (2, "fusion"), (3, shape), (7, message(*fields)))
    computation = message((1, "main"), (2, op))
    one = message((1, message((1, "jit_f"), (3, computation), (17, index))))
    ran = [event(name, at, 9, hlo_op=name, hlo_module="jit_f", run_id=1) for at, name in ((0, "fusion.1"), (10, "a"))]
    return read(space(metadata(one), host(*ran)))


def operand_types(*programs: bytes, kernel: str = "gemm_fusion_dot_1", module: str = "jit_f") -> list[str | None]:
    """Of the kernel of this fusion."""
    ran = event(kernel, 0, 10, hlo_module=module, hlo_op="command_buffer", kernel_details="grid:1,1,1 block:64,1,1")
    read_back = read(space(metadata(*programs), plane(GPU, line(ran, name="Stream #1", id=1))))
    return read_back.device_ops["operand_type"].cast(str).to_list()


@pytest.mark.parametrize(
    ("element_type", "name"), [(F16, "fp16"), (BF16, "bf16"), (F32, "fp32"), (F64, "fp64"), (F8, "fp8"), (S8, None)]
)
def test_a_fused_product_has_the_format_of_its_first_factor(element_type: int, name: str | None):
    assert operand_types(program("jit_f", fusion("gemm_fusion_dot.1", element_type))) == [name]


def test_each_fusion_has_its_own():
    programs = (
        program("jit_g", fusion("gemm_fusion_dot.1", F64)),
        program("jit_f", fusion("gemm_fusion_dot.2", F32), fusion("gemm_fusion_dot.1", BF16)),
    )
    assert operand_types(*programs) == ["bf16"]
    assert operand_types(*programs, kernel="gemm_fusion_dot_2") == ["fp32"]
    assert operand_types(*programs, kernel="gemm_fusion_dot_2.kd") == ["fp32"]  # as AMD names it
    assert operand_types(*programs, kernel="loop_fusion") == [None]
    assert operand_types(*programs, module="jit_g") == ["fp64"]


def test_two_programs_of_one_name_that_disagree_tell_nothing():
    one, other = (program("jit_f", fusion("gemm_fusion_dot.1", of)) for of in (BF16, F32))
    assert operand_types(one, other) == [None]
    assert operand_types(one, one) == ["bf16"]


def test_a_long_program_is_read_to_its_end():
    others = (fusion(f"gemm_fusion_dot.{i}", F32) for i in range(2, 3_000))
    assert operand_types(program("jit_f", *others, fusion("gemm_fusion_dot.1", BF16))) == ["bf16"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff\xff", program("jit_f", b"\x12\x7f"), program("jit_f", message((2, message((2, "dot")))))],
    ids=["empty", "no message", "cut off", "a product of nothing"],
)
def test_a_damaged_program_tells_nothing_and_the_others_are_read(damaged: bytes):
    assert operand_types(damaged) == [None]
    assert operand_types(damaged, program("jit_f", fusion("gemm_fusion_dot.1", BF16))) == ["bf16"]


def test_the_format_counts_among_the_products():
    ops = [
        kernel(0, 30, name="gemm_fusion_dot_1", operand_type="bf16"),
        kernel(30, 40, name="gemm_fusion_dot_2", operand_type="fp32"),
    ]
    values = metrics_of(view(profile(ops, steps=[step(1, 0, 100)])))
    assert values["sixteen_bit_kernel_share"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("index", "fields", "told"),
    [
        (
            stacks((2, 0), (1, 1)),
            ((2, "jit(f)/Net/dot"), (15, 2)),
            "jit(f)/Net/dot;net.py(10): call;train.py(20): main",
        ),
        (stacks((2, 0), (1, 1)), ((2, "jit(f)/Net/dot"), (15, 9)), "jit(f)/Net/dot"),  # no such call
        (stacks((1, 1)), ((2, "jit(f)/dot"), (15, 1)), "jit(f)/dot;net.py(10): call"),  # it is around itself
        (stacks((7, 0)), ((2, "jit(f)/dot"), (15, 1)), "jit(f)/dot;(0): "),  # in no known place
        (b"", ((2, "jit(f)/dot"), (3, "train.py"), (4, 31)), "jit(f)/dot;train.py(31): "),  # as before JAX 0.8
        (b"\xff", ((2, "jit(f)/dot"), (15, 1)), "jit(f)/dot"),
        (b"", (), None),
    ],
    ids=["calls", "no such call", "a circle", "no place", "a file and a line", "damaged", "nothing"],
)
def test_an_op_on_a_cpu_has_the_path_and_the_lines_of_its_program(
    index: bytes, fields: tuple[tuple[int, object], ...], told: str | None
):
    assert ops_on_cpu(index, *fields).host_ops["stack"].cast(str).to_list() == [told, None]


def test_stacks_take_no_more_room_than_many_times_that_of_their_program():
    """A long name of a file stands in each frame of each op, and a file has many ops."""
    index = message((1, "f" * 10_000), (3, message((1, 1))), *((4, message((1, 1), (2, i))) for i in range(20)))
    ops = [message((1, f"add.{i}"), (7, message((2, "jit(f)/add"), (15, 20)))) for i in range(1_000)]
    module = message((1, message((1, "jit_f"), (3, message((1, "main"), *((2, op) for op in ops))), (17, index))))
    ran = [
        event(name, at, 9, hlo_op=name, hlo_module="jit_f", run_id=1) for at, name in ((0, "add.0"), (10, "add.999"))
    ]
    told = read(space(metadata(module), host(*ran))).host_ops["stack"].cast(str).to_list()
    assert told == ["jit(f)/add" + f";{'f' * 512}(0): " * 20, "jit(f)/add"]


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (message((2, F64)), '["double"]'),
        (message((2, BF16)), '["c10::BFloat16"]'),
        (message((2, S8)), None),
        (message((2, 13), (4, message((2, F64)))), None),  # several arrays
        (b"", None),
    ],
    ids=["64 bits", "bfloat16", "no floating point", "several", "nothing"],
)
def test_an_op_on_a_cpu_has_the_type_of_its_result(shape: bytes, told: str | None):
    read_back = ops_on_cpu(b"", (2, "jit(f)/dot"), shape=shape)
    assert read_back.host_ops["dtypes"].cast(str).to_list() == [told, None]
    assert ("host_ops.shapes" in read_back.lacks) == (told is None)
