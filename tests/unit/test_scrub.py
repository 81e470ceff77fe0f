"""A scrubbed copy: nothing of the environment, the same findings, nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advisor.engine import check
from advisor.errors import AdvisorError, ReadError, UsageError
from advisor.inputs.discover import discover
from advisor.scrub import scrub
from advisor.secrets import masked_json, masked_text, owners_in_json, secret_variables
from advisor.text import PREFIXES
from tests.command import advisor
from tests.effort import every, soak
from tests.strategies_nsys import FULL, string, write

FIXTURES = Path(__file__).parents[2] / "fixtures"
SECRET, HOST, USER = "hf_0123456789abcdefghijklmn", "gpunode17", "annabel"
ENVIRONMENT = f"PATH=/usr/bin\nHF_TOKEN={SECRET}\nWANDB_API_KEY=0123456789abcdef\nAWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI\n"
HOLDS = (SECRET, HOST, USER, "0123456789abcdef", "wJalrXUtnFEMI", "hunter2", "what it printed", "bobdylan")
TEXT = f"/home/{USER}/train.py --token {SECRET} --password=hunter2 on {HOST}"
PRIVATE: dict[str, list[dict[str, Any]]] = {
    "TARGET_INFO_SYSTEM_ENV": [
        {"name": "Hostname", "value": HOST},
        {"name": "DeviceEnvironment", "value": ENVIRONMENT},
    ],
    "META_DATA_CAPTURE": [
        {"name": "PROCESS_0:ARGUMENT_0", "value": TEXT},
        {"name": "PROCESS_12:USER_NAME", "value": "bobdylan"},
    ],
    "ProcessStreams": [{"globalPid": 1, "filenameId": string(TEXT), "contentId": string("what it printed")}],
    "META_DATA_EXPORT": [{"name": "EXPORT_USER", "value": USER}],
    "DIAGNOSTIC_EVENT": [{"text": f"{TEXT} for bobdylan"}],
}

HIDDEN = (
    "CREATE TRIGGER boom BEFORE DELETE ON ProcessStreams BEGIN SELECT RAISE(ABORT, 'no'); END",
    f"CREATE VIEW v AS SELECT 'HF_TOKEN={SECRET}' AS x",
    f'CREATE TABLE "of HF_TOKEN={SECRET}" ("a HF_TOKEN={SECRET}" BLOB, b TEXT DEFAULT \'HF_TOKEN={SECRET}\')',
    f"INSERT INTO \"of HF_TOKEN={SECRET}\" VALUES (CAST('HF_TOKEN={SECRET}' AS BLOB), NULL)",  # noqa: S608 - ours
    f"CREATE TABLE keys (a TEXT UNIQUE CHECK (a LIKE '%hf%'), c TEXT AS ('HF_TOKEN={SECRET}') STORED)",
    f"INSERT INTO keys VALUES ('{SECRET}0'), ('{SECRET}1')",  # noqa: S608 - alike once they are masked
)
"""Other places in a database that hold texts, and what keeps them from being changed."""


def kineto(folder: Path) -> Path:
    source = next((FIXTURES / "simulated-input-bound-v100").glob("*.json.gz"))
    trace = json.loads(gzip.decompress(source.read_bytes()))
    env = dict(line.split("=", 1) for line in ENVIRONMENT.splitlines())
    trace |= {"host_name": HOST, "env": env, "traceName": f"/home/{USER}/t.json", "argv": TEXT.split()}
    trace["traceEvents"].append({"ph": "i", "name": TEXT, "pid": 1, "tid": 1, "ts": 1, "args": {"username": USER}})
    path = folder / source.name
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def plain_kineto(folder: Path) -> Path:
    packed = kineto(folder)
    path = packed.with_suffix("")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return path


def sized(number: int, content: bytes) -> bytes:
    """A protobuf field of bytes."""
    length = len(content)
    size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
    return bytes([number << 3 | 2]) + size + content


def xplane(folder: Path) -> Path:
    """A recorded profile with another plane, whose line has a text in each place that has texts, and a host's name."""
    (source,) = (FIXTURES / "tensorflow-cpu-generator").rglob("*.xplane.pb")
    text = TEXT.encode()
    stat, name = sized(5, text), sized(2, text)
    line = sized(3, name + sized(11, text) + sized(4, sized(4, stat)))
    described = sized(4, sized(2, name + sized(5, stat))) + sized(5, sized(2, name + sized(3, text)))
    plane = sized(1, sized(2, b"/host:extra") + line + described + sized(6, sized(6, text)))
    path = folder / source.name
    path.write_bytes(source.read_bytes() + plane + sized(4, HOST.encode()))
    return path


def nsys(folder: Path) -> Path:
    path = write(folder / "report.sqlite", FULL | PRIVATE)
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for sql in ("CREATE TABLE gone (value TEXT)", *HIDDEN, "PRAGMA page_size = 1024", "VACUUM"):
            base.execute(sql)
        base.executemany("INSERT INTO gone VALUES (?)", [(TEXT * 50,)] * 20)
        base.execute("DROP TABLE gone")  # its pages are free, and hold what they did
    return path


def parquet(folder: Path) -> Path:
    path = folder / "report_pqtdir"
    path.mkdir()
    with closing(sqlite3.connect(nsys(folder))) as base:
        for name in FULL | PRIVATE | {"StringIds": []}:
            rows = base.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - names of ours
            columns = [column[0] for column in rows.description]
            frame = pl.DataFrame(rows.fetchall(), schema=columns, orient="row", infer_schema_length=None)
            frame.write_parquet(path / f"{name}.parquet")
    (folder / "report.sqlite").unlink()
    return path


MADE = {"kineto.gz": kineto, "kineto": plain_kineto, "xplane": xplane, "nsys": nsys, "parquet": parquet}


def judged(path: Path) -> dict[str, Any]:
    """The report, but for what it says of the file itself."""
    report = check([str(path)]).model_dump(mode="json")
    (run,) = report["runs"]
    for name in ("path", "files", "bytes", "workers", "notes", "salvaged"):
        run["source"].pop(name, None)
    run.pop("notes", None)
    return {**run, "name": None}


def content(path: Path) -> bytes:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if path.is_dir():
        return "".join(str(pl.read_parquet(file).to_dicts()) for file in files).encode()
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize("kind", soak(MADE, unless=lambda kind: kind == "kineto"))
def test_a_copy_holds_no_secret_and_is_checked_to_the_same_findings(tmp_path: Path, kind: str):
    source = MADE[kind](tmp_path)
    target = tmp_path / "clean" / source.name
    target.parent.mkdir()
    before = content(source)
    scrub(source, target)
    assert all(text.encode() in before for text in HOLDS[:3])
    assert [text for text in HOLDS if text.encode() in content(target)] == []
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert content(source) == before
    assert judged(target) == judged(source)
    assert "holds the values" not in str(check([str(target)]).model_dump())


def test_a_check_names_the_variables_that_a_file_holds_and_never_their_values(tmp_path: Path):
    done = advisor("check", nsys(tmp_path), "-v", cwd=tmp_path)
    assert "AWS_SECRET_ACCESS_KEY, HF_TOKEN, WANDB_API_KEY" in " ".join(done.stdout.split())
    assert not [text for text in (SECRET, "wJalrXUtnFEMI", "hunter2") if text in done.stdout + done.stderr]


@pytest.mark.parametrize(
    ("kind", "target", "says"),
    [
        ("kineto", "{source}", "is a recording"),
        ("parquet", "{source}/clean", "is a recording"),
        ("nsys", "none/clean.sqlite", "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_written_is_said_and_nothing_is_left(tmp_path: Path, kind: str, target: str, says: str):
    source = MADE[kind](tmp_path)
    before, files = content(source), sorted(tmp_path.rglob("*"))
    with pytest.raises(AdvisorError, match=says):
        scrub(source, Path(target.format(source=source)) if "{" in target else tmp_path / target)
    assert (content(source), sorted(tmp_path.rglob("*"))) == (before, files)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, partial(os.symlink, "/dev/zero")])
def test_a_pipe_a_folder_or_a_link_is_not_replaced(tmp_path: Path, make: Callable[[Path], None]):
    make(target := tmp_path / "target")
    before = target.lstat()
    with pytest.raises(UsageError, match="no regular file"):
        scrub(kineto(tmp_path), target)
    assert target.lstat().st_ino == before.st_ino


def test_a_copy_is_no_less_private(tmp_path: Path):
    (source := kineto(tmp_path)).chmod(0o600)
    scrub(source, target := tmp_path / "clean.json")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_no_other_recording_is_replaced(tmp_path: Path):
    source, target = kineto(tmp_path), tmp_path / "other.json"
    shutil.copy(source, target)
    before = target.read_bytes(), target.stat().st_ino, target.stat().st_mtime_ns
    with pytest.raises(UsageError, match="is a recording"):
        scrub(source, target)
    assert (target.read_bytes(), target.stat().st_ino, target.stat().st_mtime_ns) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals):
    def interrupted(_: Path, target: Path, __: object) -> None:
        target.write_text("half")
        assert signal.getsignal(number) is not signal.SIG_DFL
        os.kill(os.getpid(), number)

    monkeypatch.setattr("advisor.inputs.readers.nsys.copies.clean_copy", interrupted)
    source = MADE["nsys"](tmp_path)
    signal.signal(number, signal.SIG_DFL)  # under `nohup` it is ignored, and stays so
    with pytest.raises(SystemExit) as ended:
        scrub(source, tmp_path / "clean.sqlite")
    assert ended.value.code == 128 + number
    assert [*tmp_path.iterdir()] == [source]
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("kind", every(2, ["kineto.gz", "kineto", "xplane", "nsys"]))
def test_a_damaged_recording_is_no_half_copy(tmp_path: Path, kind: str):
    source = MADE[kind](tmp_path)
    source.write_bytes(source.read_bytes()[: -source.stat().st_size // 3])
    with pytest.raises(AdvisorError) as caught:
        scrub(source, tmp_path / f"clean-{source.name}")
    assert caught.value.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


@pytest.mark.parametrize("kind", every(3, ["reference", "text", "bytes"]))
def test_a_stat_of_an_xplane_file_is_told_by_its_name(tmp_path: Path, kind: str):
    """The name stands in another message than the value, which may be another stat's name; numbers stay."""
    values = {b"WANDB_API_KEY": b"orchid77", b"hostname": b"gpunode18", b"max_token": b"4096", b"note": b"of gpunode18"}
    names = [*values, *(values.values() if kind == "reference" else ())]
    of = {name: bytes([8, number]) if number else b"" for number, name in enumerate(names)}  # 0 is not written
    plane = b"".join(sized(5, of[name] + sized(2, of[name] + sized(2, name))) for name in names)
    for name, value in values.items():
        refers = bytes([56, names.index(value)]) if kind == "reference" else sized(6 if kind == "bytes" else 5, value)
        plane += sized(6, of[name] + refers)
    source = xplane(tmp_path)
    source.write_bytes(source.read_bytes() + sized(1, sized(2, b"/host:more") + plane))
    scrub(source, target := tmp_path / "clean.xplane.pb")
    holds = {text: text in content(target) for text in (b"orchid77", b"gpunode18", b"4096", b"of xxxxxxxxx")}
    assert holds == {b"orchid77": False, b"gpunode18": False, b"4096": True, b"of xxxxxxxxx": True}
    assert judged(target) == judged(source)


@pytest.mark.parametrize("field", [5, 6])
@pytest.mark.parametrize(
    ("text", "secret"),
    every(
        4,
        [
            (b"AKIAIOSFODNN7EXAMPLE", b"AKIA"),
            (b"USER=annlee", b"annlee"),
            (b"SSH_CLIENT=10.20.30.40 5", b"10.20.30.40"),
            (f"{HOST} hi".encode(), HOST.encode()),
        ],
    ),
)
def test_a_secret_at_the_start_of_a_stat_of_an_xplane_file_is_masked(
    tmp_path: Path, field: int, text: bytes, secret: bytes
):
    """The tag of bytes is `2`, which with the length and a letter looks like a word that something unseen splits."""
    source = xplane(tmp_path)
    stat = b"\x08\x01" + sized(field, text)
    source.write_bytes(source.read_bytes() + sized(1, sized(2, b"/host:more") + sized(6, stat)))
    assert secret in content(source)
    scrub(source, target := tmp_path / "clean.xplane.pb")
    assert secret not in content(target)
    assert len(content(target)) == len(content(source))


def test_a_number_where_a_text_of_an_xplane_file_belongs_is_no_place_in_it(tmp_path: Path):
    source, number = xplane(tmp_path), b"\x08\x01"
    called = sized(5, number + sized(2, number + sized(2, b"hostname")))
    nameless = sized(5, b"\x08\x02" + sized(2, b"\x08\x02\x10\x07"))
    plane = sized(1, sized(2, b"/host:more") + called + nameless + sized(6, number + b"\x28\x07"))
    source.write_bytes(source.read_bytes() + b"\x20\x07" + plane)
    scrub(source, target := tmp_path / "clean.xplane.pb")
    assert len(content(target)) == len(content(source))
    assert judged(target) == judged(source)


@pytest.mark.parametrize(
    "text",
    every(
        3,
        [
            "pass\x1b[0mword\x1b[1m=\x1b[33morchid77",
            "h\x1b[0mf_orchid770123456789abcd",
            "hf_\u200borchid770123456789abcd",
        ],
    ),
)
def test_what_nobody_sees_splits_no_secret_of_an_xplane_file(tmp_path: Path, text: str):
    source = xplane(tmp_path)
    plane = sized(1, sized(2, b"/host:more") + sized(6, sized(5, text.encode())))
    source.write_bytes(source.read_bytes() + plane)
    scrub(source, target := tmp_path / "clean.xplane.pb")
    assert b"orchid77" not in content(target)
    assert len(content(target)) == len(content(source))


def test_a_number_of_more_than_64_bits_is_damage(tmp_path: Path):
    source = xplane(tmp_path)
    source.write_bytes(source.read_bytes() + b"\x08" + b"\xff" * 10 + b"\x01")  # of millions of bytes it takes minutes
    with pytest.raises(AdvisorError, match="damaged"):
        scrub(source, tmp_path / "clean.xplane.pb")


def test_a_damaged_table_is_no_half_copy(tmp_path: Path, capfd):
    source = parquet(tmp_path)
    table = source / "StringIds.parquet"
    data = table.read_bytes()
    table.write_bytes(data[:4] + data[-8 - int.from_bytes(data[-8:-4], "little") :])
    with pytest.raises(AdvisorError, match="a table of the folder is damaged"):
        scrub(source, tmp_path / "clean")
    assert [path.name for path in tmp_path.iterdir()] == [source.name]
    assert capfd.readouterr().err == ""


def test_a_report_is_to_be_exported_first(tmp_path: Path):
    (tmp_path / "a.nsys-rep").write_bytes(b"x")
    done = advisor("scrub", "a.nsys-rep", "-o", "b.nsys-rep", cwd=tmp_path)
    assert (done.returncode, "nsys export --type=sqlite" in done.stderr) == (2, True)


@pytest.mark.parametrize("log", ["nccl-inspector/host0-pid4000.log", "flight-recorder/json/nccl_trace_rank_0.json"])
def test_a_log_of_collectives_is_refused_in_one_line(tmp_path: Path, log: str):
    done = advisor("scrub", FIXTURES / log, "-o", "clean.log", cwd=tmp_path)
    assert (done.returncode, done.stdout, [*tmp_path.iterdir()]) == (2, "", [])
    (line,) = done.stderr.splitlines()
    assert "cannot be scrubbed; pass on its report instead: `advisor check FILE -o report.html`" in line


SECRETS = {
    "--token abc def": "--token xxx def",
    "--hub-token=abcdef": "--hub-token=xxxxxx",
    '"--api-key", "abcdef"': '"--api-key", "xxxxxx"',
    "postgres://ann:pw@db:5432/x": "postgres://xxxxxx@db:5432/x",
    "PGPASSWORD=hunter2 x": "PGPASSWORD=xxxxxxx x",
    "SSHPASS=hunter2 MYSQL_PWD=hunter2": "SSHPASS=xxxxxxx MYSQL_PWD=xxxxxxx",
    '--password "two words" x': '--password "xxxxxxxxx" x',
    "DB_PASSWORD='a b' x": "DB_PASSWORD='xxx' x",
    '{"a": "token=", "b": "c"}': '{"a": "token=", "b": "c"}',
    "accessToken=abcd&clientSecret=abcd&auth=abcd": "accessToken=xxxx&clientSecret=xxxx&auth=xxxx",
    "?X-Goog-Signature=abcd&x=1&Signature=abcd": "?X-Goog-Signature=xxxx&x=1&Signature=xxxx",
    "secretAccessKey=abcd accessKeyId=abcd": "secretAccessKey=xxxx accessKeyId=xxxx",
    "SharedAccessSignature=abcd wandb_key=abcd": "SharedAccessSignature=xxxx wandb_key=xxxx",
    "--pass=abcd ?u=a%26token%3Dabcd": "--pass=xxxx ?u=a%26token%3Dxxxx",
    'A={"r.io":{"auth":"abcd"}}': 'A={"r.io":{"auth":"xxxx"}}',
    "bearer abcdefgh": "bearer xxxxxxxx",
    "?X-Amz-Signature=abcd&x": "?X-Amz-Signature=xxxx&x",
    "Cookie: a=b; c=d": "Cookie: xxxxxxxx",
    "Authorization: Token abcdef": "Authorization: Token xxxxxx",
    "https://abcdefgh@host/x": "https://xxxxxxxx@host/x",
    "-----BEGIN RSA PRIVATE KEY-----abcd-----END": "-----BEGIN RSA PRIVATE KEY-----xxxx-----END",
    "hooks.slack.com/services/T0/B0/x1": "hooks.slack.com/services/xxxxxxxx",
    **{form + "a1B2c3D4e5" * 2: "x" * (len(form) + 20) for form in (*PREFIXES, "SG.0123456789abcdef.")},
    "curl -s -u ann:pw x": "curl -s -u xxxxxx x",
    "mysql -h x -phunter2 db": "mysql -h x -pxxxxxxx db",
    'x ["mysql", "-phunter2"]': 'x ["mysql", "-pxxxxxxx"]',
    "sshpass -p hunter2 ssh": "sshpass -p xxxxxxx ssh",
    "openssl enc -k hunter2 -keyout x": "openssl enc -k xxxxxxx -keyout x",
    "keytool -storepass hunter2 -keypass hunter2": "keytool -storepass xxxxxxx -keypass xxxxxxx",
    "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=12ab": "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=xxxx",
    "machine x password \thunter2": "machine x password \txxxxxxx",
    "LDAP_BIND_PW=hunter2 JWT=abc.def": "LDAP_BIND_PW=xxxxxxx JWT=xxxxxxx",
    "creds=('ann', 'hunter2')": "creds=('xxx', 'xxxxxxx')",
    "lftp -u ann,hunter2 ftp.x": "lftp -u xxxxxxxxxxx ftp.x",
    "my pwd is hunter2": "my pwd is xxxxxxx",
    "pwd is /data/exp1": "pwd is /data/exp1",
    "SK0123456789abcdef0123456789abcdef": "x" * 34,
    "Uid=ann;Pwd=hunter2;": "Uid=ann;Pwd=xxxxxxx;",
    "sv=1&sig=a%2Bb": "sv=1&sig=xxxxx",
    "https://x/a?sv=1&sig=a%2Bb 'gs://x/a;session=ann#b'": "https://x/a?xxxxxxxxxxxxxx 'gs://x/a;xxxxxxxxxxxxx'",
    "WANDB_API_KEY abcd login(key='abcd')": "WANDB_API_KEY xxxx login(key='xxxx')",
    "USER=ann LOGNAME=ann --user=ann user_name='ann' Hostname=n18": "USER=xxx LOGNAME=xxx --user=xxx "
    "user_name='xxx' Hostname=xxx",
    "/nfs/users/ann/x /scratch/ann/x ~ann/x /u/home/a/ann/x": "/nfs/users/xxx/x /scratch/xxx/x ~xxx/x /u/home/a/xxx/x",
    "ann@gpu3.example.com:/x": "xxxxxxxxxxxxxxxxxxxx:/x",
    "HF%5FTOKEN%3Dabcd pa%73sword=ab%63d": "HF%5FTOKEN%3Dxxxx pa%73sword=xxxxxx",
    "\uff34\uff2f\uff2b\uff25\uff2e=abcd \U0001d413\U0001d40e\U0001d40a\U0001d404\U0001d40d\uff1d\uff41bcd": (
        "\uff34\uff2f\uff2b\uff25\uff2e=xxxx \U0001d413\U0001d40e\U0001d40a\U0001d404\U0001d40d\uff1dxxxxxx"
    ),
    "wandb login 0123456789abcdef0123456789abcdef01234567": f"wandb login {'x' * 40}",
    "A=Gy2AJ0ifllvLurfbGQrSVb3XfaCoW1NPecr8": f"A={'x' * 36}",
    "https://x/webhooks/1/Jtys67S-o3vD-8eWmrxy2SMOpZ8dgAEJh": f"https://x/webhooks/1/{'x' * 33}",
    "set aws_secret_access_key kJ8s/Qp2Zx9Lm4Nv7Rt1Yw6Ub3Ec5Gd0Hf+Ka/S3": f"set aws_secret_access_key {'x' * 40}",
    "SharedAccessKey=kJ8s/Qp2Zx9Lm4Nv7Rt1Yw6Ub3Ec5Gd0Hf+KaS3=": f"SharedAccessKey={'x' * 40}",
    "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXPJBSWY3DP": "x" * 40,
    "-----BEGIN OPENSSH PRIVATE KEY-----abcd, cut": f"-----BEGIN OPENSSH PRIVATE KEY-----{'x' * 9}",
    "SECRET /p2Zx9Lm4Nv7Rt1Yw6Ub3Ec5Gd0HfkJ8sKaS3QsT7": f"SECRET {'x' * 41}",
    "SharedAccessKeyIs kJ8s/Qp2/x9Lm4NvRt1/Yw6UbEc5Gd/0HfKaSuvwQ3bA0==": f"SharedAccessKeyIs {'x' * 47}",
    "machine x password hunter2": "machine x password xxxxxxx",
    "DB_PASSWORD: hunter2": "DB_PASSWORD: xxxxxxx",
    "Authorization: Bearer abcdef": "Authorization: Bearer xxxxxx",
    "/home/ann/x.py(3): f": "/home/xxx/x.py(3): f",
    "C:\\Users\\ann\\x": "C:\\Users\\xxx\\x",
    "ghp_0123456789abcdefghij": "x" * 24,
    "next_token=4096, tokens: all, sglang::detokenize": "next_token=4096, tokens: all, sglang::detokenize",
    "attention(key=float16)": "attention(key=float16)",
    "SSH_CLIENT=10.11.12.13 54 22\nSSH_CONNECTION=10.1.2.3 5\nA=b": (
        "SSH_CLIENT=xxxxxxxxxxxxxxxxx\nSSH_CONNECTION=xxxxxxxxxx\nA=b"
    ),
    "password:\n  hunter2\nTOKEN=\\\nhunter2 --token \\\n  hunter2\nHF_TOKEN=\nPATH=/usr/bin": (
        "password:\n  xxxxxxx\nTOKEN=\\\nxxxxxxx --token \\\n  xxxxxxx\nHF_TOKEN=\nPATH=/usr/bin"
    ),
    "the password is hunter2, pass: hunter2, Password for ann: hunter2, my secret abcdefgh1234": (
        "the password is xxxxxxx, pass: xxxxxxx, Password for ann: xxxxxxx, my secret xxxxxxxxxxxx"
    ),
    "next token is 17, pass: backward, token float32 int8_per_token_group_quant": (
        "next token is 17, pass: backward, token float32 int8_per_token_group_quant"
    ),
    **{
        name: name
        for name in (
            "_ZN7cutlass7epilogue10collective6detail31Sm90TmaWarpSpecializedAdapterINS1",
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
            "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
            "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE_APM1_AF0EM8_AF1EM1_AMAS3_ASGT_ASAE01",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
            "SparseSoftmaxCrossEntropyLossWithLogits2Grad",
            "ResNet50/Conv2D/BN1/ReLU6/Block3A/Conv2D/BN2/ReLU6",
            "models/Qwen2/MLP/GeLU/BatchNormalizationV3/Conv2DBackpropInput",
            "data/Qp2Zx9Lm4Nv7Rt1Yw6Ub3Ec5Gd0Hf",
            "/data/Qp2Zx9Lm4Nv7Rt1Yw6Ub3Ec5Gd0Hf/run",
            "ab/cdef0123456789abcdef0123456789abcdef",
            "memcpy@GLIBC_2.2.5 std::vector::~vector()/x ::~T/x fusion@main /site/users.py(3): f 100%25 of user=1",
            "triton__0d1d2d3d4d5d6d7d8d9d10d11d12d13d14",
            "triton_poi_fused_native_layer_norm_backward_0d1d2d3de",
        )
    },
}


def test_secrets_are_told_by_their_names_and_their_forms():
    assert {text: masked_text(text) for text in SECRETS} == SECRETS


@pytest.mark.parametrize("kind", soak(MADE, unless=lambda kind: kind == "nsys"))
def test_a_copy_holds_nothing_that_is_not_read(tmp_path: Path, kind: str):
    """However innocent it looks: a table, a field around the events or of one, a field of a message."""
    source = MADE[kind](tmp_path)
    if kind == "parquet":
        pl.DataFrame({"a": ["orchid"]}).write_parquet(source / "notes.parquet")
    elif kind == "nsys":
        with closing(sqlite3.connect(source)) as base, base:
            base.execute("CREATE TABLE notes AS SELECT 'orchid' AS a")
    elif kind == "xplane":
        source.write_bytes(
            source.read_bytes() + sized(1, sized(2, TEXT.encode()) + sized(14, b"orchid") + sized(13, b"orchid!"))
        )
    else:
        text = content(source).replace(b'"traceEvents"', b'"notes": {"a": "orchid"}, "traceEvents"')
        text = text.replace(b'"External id"', b'"notes": "orchid", "External id"')
        assert text.count(b"orchid") > 2
        source.write_bytes(gzip.compress(text) if source.suffix == ".gz" else text)
    assert b"orchid" in content(source)
    done = advisor("scrub", source, "-o", target := tmp_path / f"clean-{source.name}", cwd=tmp_path)
    assert b"orchid" not in content(target)
    assert kind != "xplane" or target.stat().st_size == source.stat().st_size
    assert ("left out what advisor does not read" in done.stdout) == (kind != "xplane")
    assert SECRET not in done.stdout
    assert judged(target) == judged(source)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (r'["PASSW\u004fRD=hunter2"]', ["PASSWORD=xxxxxxx"]),
        (r'["hf\u005f0123456789abcdefghijklmn"]', ["x" * 32]),  # bytes
        (r'["\/home\/alice\/x"]', ["/home/xxxxx/x"]),
        (r'["a\npassword=hunter2"]', ["a\npassword=xxxxxxx"]),
        (r'["token=\u0001hunter2"]', ["token=" + "x" * 13]),
        (r'["password\u001b[0m=\u001b[33mhunter2"]', ["password\x1b[0m=\x1b[33mxxxxxxx"]),
        (r'["hf_\u001b[0m0123456789abcdefghijklmn"]', [f"xxx\x1b[0m{'x' * 24}"]),
        ('["pass\N{ZERO WIDTH SPACE}word=hun\N{ZERO WIDTH JOINER}ter2"]', ["pass\u200bword=xxx\u200dxxxx"]),
        (r'["\u001b[0m stays"]', ["\x1b[0m stays"]),
        (r'["token=\nhunter2"]', ["token=\nxxxxxxx"]),
        (r'["C:\\Users\nann"]', ["C:\\Users\nann"]),
        (r'{"user": "anna\u0062el", "a": "on\nannabel"}', {"user": "x" * 12, "a": "on\nxxxxxxx"}),
        (r'["half \ud800", "\u00e9"]', ["half \ud800", "é"]),
    ],
)
def test_secrets_in_json_are_told_by_what_its_strings_say(text: str, clean: object):
    assert json.loads(masked_json(text.encode(), owners_in_json([text.encode()]))) == clean


def test_variables_are_told_by_their_names():
    text = (
        b'HF_TOKEN=abcd\nTOKENS=4096\nEMPTY_TOKEN=\nRANGE_KEY=false "MY_KEY": "abcd", SSH_AUTH_SOCK=/tmp/x MONKEY=abcd'
    )
    assert secret_variables(text) == ["HF_TOKEN", "MY_KEY"]


def test_an_excerpt_holds_no_secret(tmp_path: Path):
    source = kineto(tmp_path)
    trace = json.loads(gzip.decompress(source.read_bytes()))
    for event in trace["traceEvents"]:
        if event.get("cat") == "user_annotation" and not event["name"].startswith("ProfilerStep"):
            event["name"] += f" --token {SECRET}"
    source.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert advisor("excerpt", source, "--finding", "input-bound", "-o", "e.json", cwd=tmp_path).returncode == 0
    text = (tmp_path / "e.json").read_text()
    assert "--token xxx" in text
    assert SECRET not in text
    shutil.rmtree(tmp_path)


def test_the_error_that_ended_a_program_stays_without_secrets_and_what_it_printed_goes(tmp_path: Path):
    printed = f"what it printed\n{'x' * 9_000}\nValueError: no access for {SECRET}\n"
    stream = {"globalPid": 1, "filenameId": string("pid_1_stderr.log"), "contentId": string(printed)}
    source, target = (
        write(tmp_path / "run.sqlite", FULL | PRIVATE | {"ProcessStreams": [stream]}),
        tmp_path / "c.sqlite",
    )
    scrub(source, target)
    assert not any(word.encode() in target.read_bytes() for word in HOLDS)
    for path in (source, target):
        failed = next(f for f in check([str(path)]).runs[0].findings if f.rule == "program-failed")
        assert f"`ValueError: no access for {'x' * len(SECRET)}`" in failed.says


def test_a_recording_that_goes_meanwhile_is_an_error_in_one_line(tmp_path, monkeypatch):
    recording, clean = kineto(tmp_path), tmp_path / "clean.json.gz"
    clean.write_bytes(b"an earlier one")

    def found(paths):
        runs = discover(paths)
        recording.unlink()
        return runs

    monkeypatch.setattr("advisor.scrub.discover", found)
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        scrub(recording, clean)
    assert [path.name for path in tmp_path.iterdir()] == ["clean.json.gz"]


@pytest.mark.parametrize("form", ["xplane", "gzip", "nsys"])
def test_a_copy_is_of_no_larger_file_than_a_check_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str):
    name = {"xplane": "a.xplane.pb", "gzip": "a.pt.trace.json.gz", "nsys": "a.sqlite"}[form]
    source, clean = tmp_path / name, tmp_path / f"clean-{name}"
    if form == "xplane":
        source.write_bytes(next(FIXTURES.glob("jax-cpu-none/**/*.xplane.pb")).read_bytes())
    elif form == "nsys":
        write(source, FULL)
    else:
        source.write_bytes(
            gzip.compress(gzip.decompress(kineto(tmp_path).read_bytes()).rstrip()[:-1] + b" " * (1 << 23) + b"}")
        )
    with monkeypatch.context() as small:
        small.setattr("advisor.system.file_size._LEAST", 0)
        if form != "gzip":
            small.setattr("advisor.system.file_size.usable_memory", lambda: 2000)
        with pytest.raises(ReadError, match=r"a\.[\w.]+: larger than .* unpacked, .* with --max-size"):
            scrub(source, clean)
        assert not clean.exists()
        scrub(source, clean, max_bytes=1 << 30)
    assert clean.exists()
