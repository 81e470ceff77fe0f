"""Settings of all tests, and the servers that several of them need, started once in a process.

`make test` draws few examples, the same ones each time: it passes or fails each time. `make fuzz` draws many new ones.
"""

import gc
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial, wraps

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests import effort

# Tests run side by side in processes: threads of a data frame would only wait for one another.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.pop("COLUMNS", None)  # errors are in one line where there is no terminal

# Looked for after every 700 objects, as by default, garbage costs more than a twentieth of the time.
gc.set_threshold(50_000)

# A busy machine is no failure: speed is measured by benchmarks, never by a test. What hangs shows in `make fuzz`.
settings.register_profile("quick", deadline=None, max_examples=4, derandomize=True)
settings.register_profile("fuzz", deadline=timedelta(seconds=20), max_examples=1_000, print_blob=True)
settings.load_profile("quick")


# Each runs in one process: golden files check the same recordings, browser tests look at the same pages, the traces of
# a fleet are alike and its servers slow to import.
ROOMS = ("tests/golden/", "tests/browser/", "tests/unit/fleet/")
LONG = (
    *ROOMS,
    "tests/pull_request/test_pipelines.py",
    "tests/metamorphic/",
    "tests/recording/",
    "tests/unit/test_cli.py",
    "tests/unit/simulator/",
    "tests/unit/test_server.py",
)


# Hundreds of small calls of polars each, and no other thread that calls it.
IN_POOL = (
    "tests/golden/",
    "tests/metamorphic/",
    "tests/properties/",
    "tests/rules/",
    *(
        f"tests/unit/{room}/"
        for room in ("analysis", "comparing", "inputs", "metrics", "present", "rules", "simulator")
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    effort.is_quick = config.option.markexpr == "not soak" and not any("::" in str(word) for word in config.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: what is short fills the gaps at the end."""
    for item in items:
        if isinstance(item, pytest.Function) and item.nodeid.startswith(IN_POOL):
            item.obj = _inside_pool(item.obj)
    items.sort(key=lambda item: next((at for at, place in enumerate(LONG) if item.nodeid.startswith(place)), len(LONG)))


def pytest_collection_finish() -> None:
    """Tests and modules stay to the end: no search for garbage, of which hypothesis makes many, looks at them."""
    gc.collect()
    gc.freeze()


def _inside_pool(test: Callable[..., object]) -> Callable[..., object]:
    @wraps(test)
    def run(*args: object, **fixtures: object) -> None:
        from advisor.system.polars_pool import inside_pool  # noqa: PLC0415 - not every process needs data frames

        inside_pool(partial(test, *args, **fixtures))

    return run


class ByRoom(LoadFileScheduling):
    """Tests of one file run in one process, and so do those of a room."""

    def _split_scope(self, nodeid: str) -> str:
        return next((room for room in ROOMS if nodeid.startswith(room)), str(super()._split_scope(nodeid)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: tests wait for browsers, servers and other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByRoom:
    return ByRoom(config, log)


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that several tests check is read and measured once."""
    from advisor.runs import files  # noqa: PLC0415 - data frames are slow to import, and not every process needs them
    from tests import once  # noqa: PLC0415 - as above

    monkeypatch.setattr(files, "parts", once.parts)
    monkeypatch.setattr(files, "_read", once.read)


@pytest.fixture(scope="session")
def moto() -> Iterator[tuple[str, int]]:
    """Host and port of an S3 server."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture(scope="module")
def s3(moto: tuple[str, int]) -> Iterator[str]:
    """The address of an S3 server; the environment leads all S3 clients there."""
    clients = pytest.importorskip("s3fs").S3FileSystem
    host, port = moto
    options = {
        "ENDPOINT_URL": f"http://{host}:{port}",
        "ACCESS_KEY_ID": "tester",
        "SECRET_ACCESS_KEY": "tester",
        "DEFAULT_REGION": "us-east-1",
        "CONFIG_FILE": os.devnull,
        "SHARED_CREDENTIALS_FILE": os.devnull,
        "EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as environment:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            environment.delenv(name)
        for name, value in options.items():
            environment.setenv(f"AWS_{name}", value)
        environment.setenv("no_proxy", host)
        clients.clear_instance_cache()
        yield options["ENDPOINT_URL"]
        clients.clear_instance_cache()
