"""What a batch takes from storage to the step, stage by stage, and what holds it up, as the recorder counted it."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from advisor.analysis.device.cpu_waits import noted_ms
from advisor.analysis.device.host_lines import Node, place_of, place_of_node
from advisor.analysis.device.places import sampled
from advisor.analysis.device.view import DeviceView
from advisor.inputs.names.calls import TAKES_OVER
from advisor.inputs.names.stacks import CHOOSE, COLLATE, PIN, POOL, TRANSPORT, Stage, kind_of, kinds, stage_of, stages

MOSTLY_ONCE: Final = 0.33
"""Own choice: the part of the loading from which what need not be done for each sample is named first."""
_CHOOSES: Final = r"torch/utils/data/(?:sampler\.py|dataloader\.py: _BaseDataLoaderIter\._next_index)"
_FETCHES: Final = rf"{_CHOOSES}|torch/utils/data/_utils/fetch\.py|^(?:datasets|webdataset|torchdata)/"
_RECEIVES: Final = r"torch/utils/data/dataloader\.py|multiprocessing/"
_POOLS: Final = r"(?m)(?:multiprocessing/pool|concurrent/futures/_base|joblib/\w+)\.py: "
_ASKS: Final = r"selectors\.py|Connection\._poll$"  # whether a batch is there
_CALLERS: Final = frozenset({"Compose", "Sequential", "OneOf", "BaseCompose", "SomeOf", "Module"})  # that call others
_PART: Final = 0.25  # own choice: of a batch, from which a wait is its limit
_HALF: Final = 0.5
_LITTLE: Final = 0.05
_FEW_CORES: Final = 4  # own choice: machines with a GPU seldom have fewer
_FEWEST_CORES: Final = 2  # own choice: of a small machine without a GPU
_FEWEST_FILES: Final = 0.5  # of a sample, from which it counts as read from files of its own
_SMALL_BYTES: Final = 1 << 20  # own choice: a disk reads as much in under 10 ms, and seeks for that long
_READ: Final = "read"
_FILES: Final = "files"  # the kind of calls that open one
_NETWORK: Final = "network"
_STORAGE: Final = "storage"
_NS: Final = 1e6
_OF_LOADER: Final = {TRANSPORT: "copying the batch into shared memory", COLLATE: "collating samples into a batch"}
_LOADER: Final = "the loader, with its libraries,"
_LEAST: Final = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, in ms: what it takes of a process that loads, and of the process of the steps."""

    workers: int  # processes that load; 0 where the process of the steps does
    stages: Mapping[str, float]  # what loading it takes, by stage, the longest first
    names: Mapping[str, float]  # what the program and libraries do in `transform`, by name
    fetch_ms: float  # all of it
    run_ms: float  # of that, the thread runs
    delay_ms: float  # of that, it waits for a core
    others_ms: float  # of that, because of other programs, where the step is as long as it is with these waits
    send_ms: float  # threads of the worker run to hand the batch over
    receive_ms: float  # the process of the steps takes it over
    pin_ms: float  # it, or a thread of it, pins
    request_ms: float  # the step waits until it has it
    period_ms: float  # from one batch to the next
    cpu_ms: float  # all threads of the job run
    per_step: float  # batches of a step
    # it sleeps for nothing that is known while other threads of Python run: in the process that loads, or in the
    # one that receives
    locked_ms: float
    files: float  # opened for it
    bytes: float  # read for it, of files and pipes
    file_bytes: float  # of its files; they take `cold_ms` read alone from the disk, and `warm_ms` from memory
    cold_ms: float
    warm_ms: float
    faults: float  # waits for a page of a disk
    samples: float  # in it
    slow: tuple[tuple[int, float], ...]  # samples that took longest: index and ms

    @property
    def alone_ms(self) -> float:
        """What loading it takes of a process that always has a core."""
        return max(0.0, self.fetch_ms - self.delay_ms)

    @property
    def load_ms(self) -> float:
        """The same on the machine as it is: other programs keep a worker from its core, however many there are."""
        return self.alone_ms + self.others_ms

    @property
    def sleep_ms(self) -> float:
        """What the thread sleeps meanwhile: for storage, for another thread, for a lock."""
        return max(0.0, self.alone_ms - self.run_ms)

    @property
    def has_small_files(self) -> bool:
        """Whether it is read from files under 1 MiB, one for each second sample or more."""
        return self.files >= _FEWEST_FILES * self.samples and self.bytes <= _SMALL_BYTES * self.files > 0

    @property
    def opening_ms(self) -> float:
        """What it computes to read such files, more than their bytes take from memory; 0 where that is unknown."""
        reading_ms = self.stages.get(_READ, 0.0) - self.sleep_ms
        return max(0.0, reading_ms - self.warm_ms) if self.has_small_files and self.warm_ms else 0.0

    @property
    def busy_part(self) -> float:
        """How much of the time the processes load."""
        return float(min(1.0, self.fetch_ms / max(1, self.workers) / self.period_ms))

    @property
    def rest_ms(self) -> float:
        """The step without its request."""
        return max(0.0, self.period_ms - self.request_ms)

    @property
    def hand_over_ms(self) -> float:
        """From one handed over to the next: workers send at once, one process receives."""
        return max(self.receive_ms, self.send_ms / max(1, self.workers)) if self.workers else 0.0


def with_stages(view: DeviceView, *, of_loader: bool) -> pl.DataFrame:
    """The samples in which a batch is made, with the `stage`, and whether the loader calls the line, `is_called`."""
    stacks = sampled(view, of_loader=True) if of_loader else view.once(sampled)
    if "of_fetch" not in stacks.columns:  # recorded functions, not samples
        return stacks.clear()
    is_called = ((pl.col("of_fetch") > 0) | pl.col("above").str.contains(_FETCHES)).fill_null(value=False)
    fetches = (
        is_called | pl.col("of_fetch").is_not_null() | pl.col("below").list.join("\n").str.contains(r"(?m)" + _FETCHES)
    )
    return _staged(stacks.filter(pl.col("line").is_not_null(), fetches).with_columns(is_called=is_called))


def _loading(view: DeviceView) -> pl.DataFrame:
    """The samples of loading: of the workers if there are any, else of the main process."""
    return with_stages(view, of_loader=any(stack["of_loader"] for stack in view.process.get("stacks") or ()))


def batch(view: DeviceView) -> Batch | None:
    """A mean batch of the sampled steps; None where none was counted."""
    counted = pl.DataFrame(view.process.get("loading") or [], orient="row")
    if not counted.height or "batches" not in counted.columns:
        return None
    loads = counted.filter(pl.col("batches") > 0)
    main = counted.filter(~pl.col("of_loader")).row(0, named=True)
    workers = loads.filter("of_loader").height
    if workers:
        loads = loads.filter("of_loader")
    if not loads.height or not main["requests"]:
        return None
    total = loads.sum().row(0, named=True)

    def each(name: str) -> float:
        return float(total[name]) / float(total["batches"])

    rows = with_stages(view, of_loader=workers > 0)
    in_stages, names, fetch_ms = _sums(rows), _names(rows), each("fetch_ns") / _NS
    chooses = bool(in_stages.pop(CHOOSE, 0))
    run_ms = min(fetch_ms, each("run_ns") / _NS)
    delay_ms = min(fetch_ms - run_ms, each("wait_ns") * run_ms / max(1.0, _NS * run_ms, each("awake_ns")))
    others_ms = delay_ms * others_part(view) if workers else 0.0
    load_ms = fetch_ms - delay_ms + others_ms
    lengths = Counter({name: load_ms * ns / in_stages.total() for name, ns in in_stages.items()})
    request_ms, received = main["request_ns"] / main["requests"] / _NS, _received(view) if workers else {}
    period_ms = main["span_ns"] / main["requests"] / _NS
    if chooses:  # outside of what is counted as loading
        lengths[CHOOSE] = max(0.0, request_ms - fetch_ms) * load_ms / fetch_ms
    awake_ms = max(0.0, period_ms - main["wait_ns"] / main["requests"] / _NS)  # what the samples stand for
    of = Batch(
        workers=workers,
        stages=dict(lengths.most_common()),
        names={name: load_ms * ns / in_stages.total() for name, ns in names.most_common()},
        fetch_ms=fetch_ms,
        run_ms=run_ms,
        delay_ms=delay_ms,
        others_ms=others_ms,
        send_ms=each("send_ns") / _NS if workers else 0.0,
        receive_ms=min(request_ms, received.get(TRANSPORT, 0.0) * awake_ms),
        pin_ms=received.get(PIN, 0.0) * awake_ms + main["pin_ns"] / main["requests"] / _NS,
        request_ms=request_ms,
        period_ms=period_ms,
        cpu_ms=(each("cpu_ns") * bool(workers) + main["cpu_ns"] / main["requests"]) / _NS,
        per_step=main["requests"] / max(1, main["steps"]),
        locked_ms=0.0,
        files=each("files"),
        bytes=each("read_bytes"),
        file_bytes=each("files") * main["alone_bytes"] / max(1, main["alone_files"]),
        cold_ms=each("files") * main["cold_ns"] / max(1, main["alone_files"]) / _NS,
        warm_ms=each("files") * main["warm_ns"] / max(1, main["alone_files"]) / _NS,
        faults=each("faults"),
        samples=each("samples"),
        slow=_slow(loads),
    )
    slept_ms = sum(of.stages.get(stage.name, 0.0) for stage in stages() if stage.waits and stage.name != "wait")
    asleep_ms = of.sleep_ms
    if not workers:  # what surrounds `fetch` gives Python's lock up as well
        run_ns = main["request_run_ns"]
        delay_ns = main["wait_ns"] * run_ns / max(1, run_ns, main["awake_ns"])
        asleep_ms = max(0.0, (main["request_ns"] - run_ns - delay_ns) / main["requests"] / _NS)
    locked_ms = min(asleep_ms - slept_ms, each("threads_ns") / _NS)
    if workers:
        receives_ms = of.receive_ms - main["request_run_ns"] / main["requests"] / _NS
        locked_ms = max(locked_ms, min(receives_ms, main["threads_ns"] / main["requests"] / _NS))
    return replace(of, locked_ms=locked_ms)


def pace_limit(view: DeviceView) -> str:
    """What sets the pace of the loading: ready, transport, pool, storage, sleep, lock, delay, or work.

    `ready`: the step does not wait, or not for what loading takes: a busy machine also delays who takes a ready batch.
    `delay`: for a core. `work`: a process that loads runs all the time. Of what other processes make only that who
    takes over what they send, a thread of a pool or the steps' own, runs for half of the time in which the steps wait,
    or would but for waits for a core, as the main thread has. `pool`: its processes are waited for, and it does not.
    """
    if of := view.once(batch):
        return limit(of)
    takes, sleeps = view.once(taking), view.process.get("sleep_share")
    own_ns = int(takes.filter(pl.col("below").list.join("\n").str.contains(_RECEIVES))["ns"].sum())
    awake_ns = own_ns - (1.0 if sleeps is None else sleeps) * int(view.once(sampled)["ns"].sum())
    main = next((row for row in view.process.get("loading") or () if not row["of_loader"]), None)
    unpickles_ns = main["receive_ns"] * (1 + main["wait_ns"] / max(1, main["awake_ns"])) if main else 0.0
    if max(awake_ns, unpickles_ns) > _HALF * (waits_ns := int(takes["ns"].sum())) > 0:
        return TRANSPORT
    of_pool = takes.filter(pl.col("below").list.join("\n").str.contains(_POOLS))
    return POOL if unpickles_ns and int(of_pool["ns"].sum()) > _HALF * waits_ns else ""


def limit(of: Batch) -> str:
    """The same of a mean batch of the loader."""
    if of.workers:
        paces_ms = max((of.load_ms + of.send_ms) / of.workers, of.receive_ms)
        if of.request_ms < _LITTLE * of.period_ms or paces_ms < _PART * of.rest_ms:
            return "ready"
    if of.locked_ms > _PART * of.request_ms:
        return "lock"
    if of.hand_over_ms > max(of.fetch_ms / max(1, of.workers), _PART * of.request_ms):
        return "transport"
    if of.sleep_ms > _HALF * of.alone_ms:
        longest = next(
            (name for name, length in of.stages.items() if length >= _HALF * of.sleep_ms and stage_of(name).waits), ""
        )
        return {_READ: _STORAGE, _NETWORK: _STORAGE, "sleep": "sleep"}.get(longest, _STORAGE if of.faults >= 1 else "")
    return "delay" if of.delay_ms > _PART * of.fetch_ms else "work"


def taking(view: DeviceView) -> pl.DataFrame:
    """The samples of the main thread in which it waits for what another thread or a pool's process makes."""
    return view.once(sampled).filter(pl.col("below").list.join("\n").str.contains(f"(?m){TAKES_OVER}"))


def largest(view: DeviceView) -> Stage | None:
    """The longest stage of loading, or the handing over where that sets the pace; None where no stack was sampled."""
    of = view.once(batch)
    pace = view.once(pace_limit)
    longest = pace if pace in {TRANSPORT, POOL} else next(iter(of.stages if of else ()), None)
    return stage_of(longest) if longest else None


def others_part(view: DeviceView) -> float:
    """Which part of the waits for a core is because of other programs, and not of the job itself; 0 where unknown."""
    others_ms, own_ms = noted_ms(view, "run_delay_ms"), noted_ms(view, "own_delay_ms")
    return others_ms / max(1e-9, others_ms + own_ms)


def cores(view: DeviceView) -> int:
    """Cores that the process may use: as noted, else as few as such machines have."""
    return view.process.get("cpus") or (_FEWEST_CORES if view.device is None else _FEW_CORES)


def _staged(rows: pl.DataFrame) -> pl.DataFrame:
    called = pl.concat_str(pl.lit("asked "), pl.when("is_called").then("above_call"), ignore_nulls=True)
    text = pl.concat_str("call", called, pl.col("below").list.join("\n"), separator="\n", ignore_nulls=True)
    of_sampler = pl.concat_str("above", text, separator="\n", ignore_nulls=True).str.contains(rf"(?m)^{_CHOOSES}")
    stage = pl.when(of_sampler).then(pl.lit(CHOOSE)).otherwise(kind_of(text, pl.lit(stages()[-1].name), stages()))
    return rows.with_columns(stage=stage)


def _received(view: DeviceView) -> dict[str, float]:
    """What part of the time the process of the steps takes batches over of its workers, and pins them."""
    stacks = view.once(sampled)
    below = pl.col("below").list.join("\n")
    rows = _staged(
        stacks.filter(below.str.contains(_RECEIVES), ~below.str.contains(f"(?m){_ASKS}")).with_columns(is_called=False)
    )
    total = max(1, int(stacks["ns"].sum()))
    return {name: ns / total for name, ns in _sums(rows).items()}


def _sums(rows: pl.DataFrame) -> Counter[str]:
    return Counter(dict(rows.group_by("stage").agg(pl.col("ns").sum()).iter_rows()) if rows.height else {})


def _names(rows: pl.DataFrame) -> Counter[str]:
    """What libraries do in a stage that has `names`: the innermost that does not only call others."""
    by_name: Counter[str] = Counter()
    for row in rows.to_dicts():
        pattern = stage_of(row["stage"]).names
        names = re.findall(pattern, "\n".join(row["below"])) if pattern else []
        own = [name for name in names if name not in _CALLERS]
        if own:
            by_name[own[-1]] += row["ns"]
    return by_name


def _slow(loads: pl.DataFrame) -> tuple[tuple[int, float], ...]:
    every: Counter[int] = Counter()
    for slow in loads["slow"].to_list():
        every |= Counter({each["index"]: each["ns"] for each in slow or ()})
    return tuple((index, ns / _NS) for index, ns in every.most_common(5))


def parts(of: Batch) -> list[tuple[str, float]]:
    """The journey of a batch: each stage in the order in which it is passed, in ms of a batch."""
    order = [CHOOSE, "network", "read", "sleep", "wait", "decode", "transform", "collate"]
    journey = [(name, of.stages.get(name, 0.0)) for name in order]
    sent = of.stages.get(TRANSPORT, 0.0) + of.send_ms + of.receive_ms
    return [(name, ms) for name, ms in (*journey, (TRANSPORT, sent), (PIN, of.stages.get(PIN, 0.0) + of.pin_ms)) if ms]


def loading_lines(view: DeviceView) -> list[tuple[str, float]]:
    """What takes most of the loading, and its part of that: of the workers if there are any, else of the main process.

    A line of the program is named by the function or line below it that holds four fifths of its time.
    """
    main = view.once(sampled)
    rows = view.once(_loading)
    total = int(rows["ns"].sum()) if rows.height else 0
    if not total:
        return []
    outside = {key for row in main.filter(pl.col("kind") != "loading").to_dicts() for key in map(_key, _frames(row))}
    tree, own = Node(""), dict.fromkeys([*_OF_LOADER.values(), _LOADER], 0)
    for row in rows.to_dicts():
        frames = [frame for frame in _frames(row)[-(row["of_fetch"] or 0) :] if _key(frame) not in outside]
        if frames and row["is_called"]:
            tree.add(frames, row, counts=True, is_own=False)
        else:
            own[_OF_LOADER.get(row["stage"], _LOADER)] += row["ns"]
    entry = tree
    while len(entry.below) == 1:  # what the loader calls, `__getitem__`, and what alone that calls
        (entry,) = entry.below.values()
    each = [(place_of_node(node.path()[-1]), node.ns) for node in entry.below.values() or [entry] if node.ns]
    parts = [(name, ns / total) for name, ns in (*each, *own.items()) if ns >= _LEAST * total]
    return sorted(parts, key=lambda part: -part[1])


def loading_line(view: DeviceView) -> str:
    """The line that most of the loading is in; else one that waits for what others make; empty if unknown."""
    place, part = next(iter(view.once(loading_lines)), ("", 0.0))
    if not place and (rows := view.once(taking).drop_nulls("line").sort("ns").to_dicts()):
        return place_of(rows[-1])
    return place if re.search(r":\d", place) and max(part, view.once(once)[1]) >= MOSTLY_ONCE else ""


def own_part(view: DeviceView) -> float:
    """The part of the loading in which the main process runs lines of the program; 0 where no stacks were sampled."""
    rows = with_stages(view, of_loader=False)
    return int(rows.filter("is_called")["ns"].sum()) / max(1, int(rows["ns"].sum())) if rows.height else 0.0


def once(view: DeviceView) -> tuple[str, float]:
    """The advice for what need not be done for each sample anew, and what part of the loading it takes.

    A `collate_fn` of the program that takes most of the loading is of this sort, beside the calls in it that have an
    advice of their own: the loader's own takes little. So is the opening of small files, and all that a process sleeps
    for storage, whatever it calls meanwhile.
    """
    rows, of = view.once(_loading), view.once(batch)
    if not rows.height:
        return "", 0.0
    if of and not of.has_small_files and limit(of) == _STORAGE:
        return stage_of(_NETWORK).fix, of.sleep_ms / of.alone_ms
    spent: Counter[str] = Counter(dict(rows.group_by("known").agg(pl.col("ns").sum()).iter_rows()))
    more = not (of and of.workers) and view.process.get("marker") != "fit"  # Keras' loads without a DataLoader
    every = (*kinds(), *kinds("searches"))
    known = {kind.name: f"{kind.once} {more * kind.elsewhere}".rstrip() for kind in every if kind.once}
    if of and of.has_small_files:
        known[_FILES] = stage_of(_READ).fix
    parts_of = [(advice, spent[name] / spent.total()) for name, advice in known.items()]
    is_other = ~pl.col("known").is_in([*known])
    for stage in (COLLATE, CHOOSE):
        own_ns = int(rows.filter(pl.col("is_called"), is_other, stage=stage)["ns"].sum())
        parts_of.append((stage_of(stage).fix, own_ns / spent.total()))
    if of:
        parts_of.append((stage_of(_READ).fix, of.opening_ms / max(of.load_ms, 1e-9)))
    return max(parts_of, key=lambda part: part[1])


def _frames(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(row.get("callers") or []), row]


def _key(frame: Mapping[str, Any]) -> tuple[str, str]:
    return frame["line"], frame["function"]
