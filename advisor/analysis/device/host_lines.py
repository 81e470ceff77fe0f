"""The lines of the program that take the time of its main thread, as sampled stacks show them.

A tree holds them by who calls them: each function's lines, and the functions that a line calls.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf, sqrt
from operator import itemgetter
from typing import Any, Final, NamedTuple

import polars as pl

from advisor.analysis.device.autograd import makers, nodes
from advisor.analysis.device.host_work import optimizer_work, running
from advisor.analysis.device.places import FEW_SAMPLES, NAME, WRAPPING, is_call_of, program_ops, sampled
from advisor.analysis.device.view import DeviceView, spans
from advisor.inputs.names.stacks import AWAITED, CALLBACK, COMPILED, OP, OWN, kinds
from advisor.model.clause import Entries
from advisor.vocabulary.kinds import XLA_FRAMEWORKS
from advisor.vocabulary.parts import HOST_RANGES

MODULE: Final = "<module>"  # the function that a program's own lines are in, outside of any other
SIGMAS: Final = 2  # standard errors by which a line's time is known

# kinds of calls in which a thread sleeps for something other than the interpreter's lock
_STORES: Final = ("saving", "files", "opening", "syncing")
_WAITS: Final = ("locking", "taking", "sleeping", "waiting", "exchanging", "loading", "network", "subprocess", *_STORES)
_ITS_OWN: Final = frozenset({"training", "updating", "loading", "compiling"})
_CALLED_BACK: Final = "calling-back"
_OWN: Final = (OWN, "beyond")  # the calls of an inference's model, ops too
_MODEL: Final = r"(?m)torch/(?:nn/(?:modules|parallel)|fx|jit|_dynamo|_inductor|_functorch)/|(?:^|[. ])forward$"
_FORWARD: Final = r"(?:^|\.)forward$"
_CALL: Final = itemgetter("function", "line", "call")  # of a frame
_HALF: Final = 0.5
_ONLY: Final = 0.9  # of a line's time: it is in long steps only, but for a few that are hardly longer; in one call
_BY_CHANCE: Final = 0.01  # that all samples of a line lie in long steps
_MOST_LINES: Final = 3
_LITTLE: Final = 0.02  # of the time: a line with less is no evidence
_STRAY: Final = 0.01  # of the time: a line with less of the training's work may only seem to do some
_BESIDE: Final = 2  # lines: one of another sort may stand between
_SOME: Final = 0.2  # of the longest of several lines; of what a line takes, from which on it is the training's
_MOST: Final = 2 / 3  # own choice, of a line's time: what one call of it holds, if the advice for that call is to lead
_LOOPS: Final = ("zip", "enumerate", "range", "reversed", "map", "iter")
_INNER: Final = r"(?:\.<locals>\.<\w+>)+$"  # an expression's own function: `log.<locals>.<genexpr>`
_HOLDS: Final = 0.8  # of the time of what is called: it is the place, and not what is around it
_STRAY_PART: Final = 0.01  # of a node's time: samples of a line beside it


class Loss(NamedTuple):
    """Work of the program that is none of the step's own: a line, or a function that nobody calls from one line."""

    lines: tuple[str, ...]  # those of the function that take part
    function: str
    call: str | None  # what a line calls
    kind: str
    share: float  # of all samples
    callers: tuple[tuple[str, str | None], ...] = ()  # where the step's own work calls it, and what, if another
    is_needed: bool = False  # a line of the training needs its result
    error: float = 0.0  # standard error of the share: a few long samples say little
    apart: str = ""  # a line by which its function is known, where that does none of the step's own work
    longest: tuple[str, str | None] = ("", None)  # the line that takes most, and what it calls
    inner: Entries | None = None  # all that the time is in, as code, with their shares
    calls_more: bool = False  # it is not the only call: others take over a tenth of the time
    is_of_model: bool = False  # it lies in a forward pass: its inputs are those of the step
    makes_pairs: bool = False  # an op in it broadcasts two sets of rows against each other

    @property
    def samples(self) -> float:
        """How many samples that stand for equally long tell as much; infinite where all calls were recorded."""
        return (self.share / self.error) ** 2 if self.error else inf

    @property
    def place(self) -> str:
        """``train.py:41 `json.dumps(...)` in `log` `` or ``train.py:40-44 in `log` ``, and the line that calls that.

        Of a function without lines `` `assemble` of solver``.
        """
        if not number_of(self.lines[0]):
            return self.code
        name = "" if (self.function or MODULE) == MODULE else f" in `{self.function}`"
        called = f", called at {' and '.join(_code(*of) for of in self.callers)}" if self.callers else ""
        more = " and more" if self.call and self.calls_more else ""
        return f"{self.code}{more}{name}{called}"

    @property
    def code(self) -> str:
        """The same without the function and who calls it."""
        first = self.lines[0]
        if not number_of(first):
            return f"`{self.function}` of {first}"
        return _code(first if len(self.lines) == 1 else f"{first}-{number_of(self.lines[-1])}", self.call)

    @property
    def within(self) -> str:
        """Of several lines, or of those that a call runs, the one that takes most; else empty."""
        return _code(*self.longest) if self.lines != (self.longest[0],) else ""

    @property
    def is_loop(self) -> bool:
        """Whether most of it is a loop in Python, in a function that is called for it."""
        return self.longest[0] not in self.lines and self.kind in {OWN, OP} and _is_of_loop(self.longest[1])


def place_of_node(node: Node) -> str:
    """The same of a node of the tree."""
    return Loss(tuple(node.lines), node.function, node.call if node.line else None, OWN, 0.0).place


def place_of(thread: Mapping[str, Any]) -> str:
    """The same of where a thread is."""
    return Loss((thread["line"] or "",), thread["function"] or "", thread["call"], OWN, 0.0).place


def _code(line: str, call: str | None) -> str:
    code = f"{call}(...)" if call and re.search(NAME, call) else call
    return f"{line} `{code}`" if code else line


def losses(view: DeviceView) -> list[Loss]:
    """The lines and functions whose work is none of the step's own, most time first.

    A call from a line that trains counts as one, with all that it calls; it is named by the innermost call or line that
    holds four fifths of it. A call that trains is no loss, even where it waits for Python's lock before its first op. A
    wait is the training's in functions that train, or that call such; elsewhere it counts as far as the thread runs.
    What a callback of a framework calls is none of the step's own, whatever it is. `share` is no
    more than what the recording holds of such time: outside of the framework's ops that train, or with a device while
    that idles. Of that time threads may wait for Python's lock: so does a line. Beside an inference's model ops count.
    """
    stacks, rare = view.once(sampled), {each.name for each in kinds() if each.fix}
    ops, is_op = view.once(program_ops), pl.col("kind") == OP
    is_aside = is_op & is_call_of(ops.filter("aside")["name"])
    is_wrapping = pl.col("kind") == WRAPPING
    may_be = is_wrapping | (is_op & is_call_of(ops.filter("partly")["name"]))  # of a line, all ops are
    if ops.height and not view.once(nodes).height and view.device is None:
        around = pl.concat_list("above", "function", pl.col("callers").list.eval(pl.element().struct["function"]))
        of_model = around.list.concat("below").list.drop_nulls().list.join("\n").str.contains(_MODEL)
        is_beside = pl.col("kind").is_in([*_OWN, OP, "training", WRAPPING]) & of_model.any() & ~of_model
        stacks = stacks.with_columns(kind=pl.when(is_beside).then(pl.lit(_OWN[-1])).otherwise("kind"))
    rows = stacks.with_columns(is_aside=is_aside | (may_be & is_aside.any().over("line"))).drop_nulls("line").to_dicts()
    tree, total, most = Node(""), max(1, int(stacks["ns"].sum())), view.once(_outside)
    own_ns: Counter[tuple[str, str, str | None]] = Counter()
    its_own = {*_ITS_OWN, AWAITED} if view.process.get("framework") in XLA_FRAMEWORKS else _ITS_OWN
    for row in rows:
        frames = [*(row.get("callers") or []), row]
        calls_back = next((n for n, frame in enumerate(frames) if re.search(CALLBACK, frame["function"] or "")), None)
        if calls_back is not None and row["kind"] not in rare:
            row["kind"], frames = _CALLED_BACK, frames[: calls_back + 1]
        counts = row["kind"] in {*rare, *_OWN} or row["is_aside"]
        is_own = row["kind"] in its_own or (row["kind"] == OP and not counts)
        row |= {"frames": frames, "counts": counts, "is_own": is_own}
        own_ns.update({_CALL(frame): row["ns"] for frame in frames if is_own})
    trains = {call for call, ns in own_ns.items() if ns >= _STRAY * total}
    working = [row for row in rows if row["is_own"] and row["kind"] != AWAITED]  # what only waits may be no loop
    loop_ns: Counter[str] = Counter()
    for row in working or rows:
        loop_ns.update(dict.fromkeys((frame["function"] for frame in row["frames"]), row["ns"]))
    loops = {function for function, ns in loop_ns.items() if ns >= _STRAY * total}
    awake = _awake(view)
    for row in rows:  # a call that trains is the training's, too, on its way into the framework
        row["is_own"] &= row["frames"][-1]["function"] in loops
        if row["kind"] == AWAITED and AWAITED in its_own and not row["is_own"]:
            row |= {"counts": awake > 0, "ns": int(awake * row["ns"])}
        enters = row["kind"] in _OWN and (call := _CALL(row["frames"][-1]))[-1] is not None and call in trains
        tree.add(row["frames"], row, counts=row["counts"] and not enters, is_own=row["is_own"] or enters)
    trained = {call[:2] for call in trains}
    runs = 1 - lock_waits(view) / (max(most, outside_ops(view)) or 1.0)
    return _largest(_loss(units, total, most, trained, runs) for units in _by_place(tree))


def _awake(view: DeviceView) -> float:
    """The part of the calls that wait, at least, in which the main thread runs; 0 with a device, where it may spin."""
    stacks, sleeps = view.once(sampled), None if view.device is not None else view.process.get("sleep_share")
    waits = int(stacks.filter(kind=AWAITED)["ns"].sum()) / max(1, int(stacks["ns"].sum()))
    return 0.0 if sleeps is None or not waits else max(0.0, 1 - sleeps / waits)


def _largest(units: Iterable[Loss]) -> list[Loss]:
    """Those that two standard errors tell from nothing, most time first."""
    known = (loss for loss in units if loss.samples > SIGMAS**2)
    return sorted(known, key=lambda loss: (-loss.share, loss.lines))


def host_lines(view: DeviceView) -> Entries | None:
    """The lines in which half of the host's time outside of the training's ops or more passes, with their shares.

    Empty where they take less: the rest is around the ops of the training. None where too few stacks were sampled.
    """
    if int(view.once(sampled)["samples"].sum()) < FEW_SAMPLES:
        return None
    largest = view.once(losses)
    return entries(largest) if sum(loss.share for loss in largest) >= _HALF * view.once(_outside) else []


def longest_lines(view: DeviceView) -> Entries:
    """The lines that the main thread is in for most of the time, the step's own work too; empty where none is known.

    A line with nearly all of it below, `trainer.train()`, says nothing of what else a framework does there.
    """
    stacks = view.once(sampled).filter(pl.col("line").is_not_null() & ~pl.col("kind").is_in(["loading", *_WAITS]))
    if view.process.get("stacks") is None or int(stacks["samples"].sum()) < FEW_SAMPLES:
        return []
    total, order = int(view.once(sampled)["ns"].sum()), ["ns", "line"]
    below = stacks.select("ns", around=pl.col("callers").list.eval(pl.element().struct.field("line").unique()))
    around = below.explode("around").group_by(line="around").agg(below=pl.sum("ns"))
    with_all = stacks.group_by("line").agg(pl.sum("ns")).join(around, on="line")
    stacks = stacks.join(with_all.filter(pl.sum_horizontal("ns", "below") >= _HOLDS * total), on="line", how="anti")
    of_call = stacks.group_by("line", "function", "call").agg(pl.sum("ns")).sort(order, descending=[True, False])
    lines = of_call.group_by("line", maintain_order=True).agg(pl.first("function", "call"), pl.sum("ns"))
    rows = lines.sort(order, descending=[True, False]).head(_MOST_LINES).iter_rows(named=True)
    return [{"name": place_of(row), "share": row["ns"] / total} for row in rows]


def long_lines(view: DeviceView) -> Entries | None:
    """The lines that run in long steps only, with their shares; None where they take less than half of the excess.

    What usual steps call too is no such line, nor is one that waits for the loader. Where most of the time lies in
    long steps, so do lines of all steps by chance.
    """
    stacks, tree = view.once(sampled), Node("")
    total, excess = max(1, int(stacks["ns"].sum())), int(stacks["excess_ns"].sum())
    of_call = pl.sum("excess_ns", "ns").over("function", "line", "call").name.suffix("_of_call")
    for row in stacks.with_columns(of_call).drop_nulls("line").to_dicts() if excess else []:
        is_apart = row["excess_ns_of_call"] >= _ONLY * row["ns_of_call"] and row["kind"] != "loading"
        tree.add([*(row.get("callers") or []), row], row, counts=is_apart, is_own=not is_apart)
    chance = int(stacks["long_ns"].sum()) / total if excess else 1.0
    apart = (_loss(units, total, 1.0) for units in _by_place(tree))
    largest = _largest(loss for loss in apart if chance**loss.samples <= _BY_CHANCE)
    if not largest or sum(loss.share for loss in largest) * total < _HALF * excess:
        return None
    return entries(loss for loss in largest if loss.share >= _SOME * largest[0].share)


def entries(largest: Iterable[Loss]) -> Entries:
    """The first three."""
    return [{"name": loss.place, "share": loss.share} for loss in islice(largest, _MOST_LINES) if loss.share]


def _by_place(tree: Node) -> list[list[list[Node]]]:
    """The units of the tree as paths to their places, those to one place together: one repair is for all of them.

    Neighbouring lines of a function that call the same are one place.
    """
    groups: list[list[list[Node]]] = []
    paths = (unit.path() for unit in tree.units())
    for path in sorted(paths, key=lambda path: (_function(path[-1]), number_of(path[-1].lines[0]))):
        groups += [] if groups and _is_beside(groups[-1][-1][-1], path[-1]) else [[]]
        groups[-1].append(path)
    return groups


def _repaired(path: list[Node]) -> Node:
    """What to change: the line that calls the function which is the place, or a line in it that calls one thing.

    A call of a model stays in the step, whatever its forward function does besides.
    """
    lines, last = [node for node in path if node.line], path[-1]
    if re.search(_FORWARD, last.function) and not last.line:
        return last
    is_part = last.line and (_is_of_loop(last.call) or last.calls[last.call] < _MOST * sum(last.calls.values()))
    return next((node for node in reversed(lines) if not is_part or node.line != last.line), last)


def _is_of_loop(call: str | None) -> bool:
    """Whether a line that calls this, or computes it, takes long for how often it runs."""
    return call in _LOOPS or not re.search(NAME, call or "")


def _function(node: Node) -> tuple[str, str]:
    return node.lines[0].rpartition(":")[0], node.function


def _is_beside(before: Node, node: Node) -> bool:
    """Whether two places of a function have lines in common, or call the same in lines that follow each other."""
    apart = number_of(node.lines[0]) - number_of(before.lines[-1])
    calls_same = apart <= _BESIDE and node.call == before.call is not None
    return _function(before) == _function(node) and (apart <= 0 or calls_same)


def _loss(
    group: list[list[Node]], total: int, most: float, trained: Collection[tuple[str, str]] = (), runs: float = 1.0
) -> Loss:
    paths = sorted(group, key=lambda path: path[0].ns, reverse=True)
    units, inner, repaired = [path[0] for path in paths], [path[-1] for path in paths], [*map(_repaired, paths)]
    places = repaired if len({tuple(node.lines) for node in repaired}) == 1 else inner
    kind = sum((unit.kinds for unit in units), Counter()).most_common(1)[0][0]
    ns = sum(of.ns for of in (places if kind in _OWN else units))  # a call that a step can do without goes as a whole
    share = min(runs * ns / total, most) if kind in {OWN, _CALLED_BACK} else ns / total
    entries = (next((of for of in path if of.line), None) for path in paths)  # a library may call a place without one
    lines = sorted({line for place in places for line in place.lines}, key=number_of)
    longest = max((n for of in inner for n in ([of] if of.line else of.below.values())), key=lambda node: node.ns)
    is_compiled = kind.startswith(COMPILED)
    most_inner = sum((unit.inner for unit in units), Counter()).most_common(_MOST_LINES)
    within = [{"name": _code(*of), "share": part} for of, n in most_inner if (part := n / ns * share) >= _LITTLE]
    return Loss(
        lines=tuple(lines),
        function=places[0].function,
        call=places[0].call if places[0].line else None,
        kind=kind,
        share=share,
        callers=tuple({(of.line, of.call): 0 for of in entries if of and of.line not in lines}),
        is_needed=not is_compiled and any(line in trained for unit in units for line in unit.needed),
        error=sqrt(sum(unit.squares for unit in units)) / total,
        apart="" if is_compiled or (inner[0] is units[0] and units[0].line) else longest.line,
        longest=(longest.line, longest.call),
        inner=[] if len(within) == 1 and within[0]["name"] == _code(lines[0], places[0].call) else within,
        is_of_model=units[0].is_of_model,
        calls_more=_ONLY * ns > sum(of.calls[of.call] for of in places if of.line),
    )


def lock_sleeps(view: DeviceView) -> float:
    """The part of the time in which the main thread sleeps for nothing that is known while others run."""
    stacks = view.once(sampled)
    waits_ns = int(stacks.filter(pl.col("kind").is_in(_WAITS))["ns"].sum())
    sleeps = float(view.process.get("sleep_share") or 0) - waits_ns / max(1, int(stacks["ns"].sum()))
    others = sum(float(thread["share"]) for thread in view.process.get("threads") or ())
    return max(0.0, min(sleeps, others))


def lock_waits(view: DeviceView) -> float:
    """The same, but no more than passes outside of ops: in one the thread may sleep for the op's own threads."""
    return min(view.once(lock_sleeps), view.once(outside_ops))


def outside_ops(view: DeviceView) -> float:
    """The part of the recorded step in which no op runs and nothing is waited for; with a device, while it idles."""
    busy = view.once(running) | view.host_spans("collective", *HOST_RANGES) if view.device is None else view.busy
    return 1 - (view.share(busy) or 0.0)


def _outside(view: DeviceView) -> float:
    """The part of the recorded step in which no op of the training runs and nothing is waited for; with a device, idle.

    Ops that make no node of a gradient's graph, in a training, are no part of it: their lines are as needless.
    """
    if view.device is not None or not view.once(nodes).height:
        return outside_ops(view)
    training = spans(view.once(makers)) | spans(view.once(nodes)) | view.once(optimizer_work)
    training &= view.once(running)
    return 1 - (view.share(training | view.host_spans("collective", *HOST_RANGES)) or 0.0)


@dataclass(slots=True)
class Node:
    """A line (`line` is set), or a function with its lines."""

    function: str
    line: str = ""
    ns: int = 0  # time of the samples here and below that count
    own_ns: int = 0  # time of the step's own work here and below
    self_ns: int = 0  # time that counts in the line itself and in what it calls of libraries
    squares: float = 0.0  # sum over the samples that count of the square of the time that each stands for
    calls: Counter[str | None] = field(default_factory=Counter)  # what the line calls, by time
    kinds: Counter[str] = field(default_factory=Counter)  # kinds of those calls, by time, here and below
    inner: Counter[tuple[str, str | None]] = field(default_factory=Counter)  # innermost lines with calls, by time
    needed: tuple[tuple[str, str], ...] = ()  # functions with their lines that need what is computed here
    is_of_model: bool = False  # it lies in a module's forward pass
    below: dict[str, Node] = field(default_factory=dict)  # functions that a line calls, or lines of a function

    def add(self, frames: list[Mapping[str, Any]], row: Mapping[str, Any], *, counts: bool, is_own: bool) -> None:
        """A stack of lines, the outermost first, below this one, with its row of `sampled`."""
        node, path, ns, samples, is_of_model = self, [self], row["ns"], row.get("samples"), False
        for frame in frames:
            function, line = re.sub(_INNER, "", frame["function"] or ""), frame["line"]
            in_file = f"{line.rpartition(':')[0]} {function}"
            node = node.below.setdefault(in_file, Node(function))
            path.append(node)
            is_of_model |= bool(re.search(_FORWARD, function))
            needed = ((function, f"{line.rpartition(':')[0]}:{number}") for number in frame.get("needed") or ())
            node = node.below.setdefault(line, Node(function, line, needed=tuple(needed)))
            node.calls[frame["call"]] += ns * counts
            node.is_of_model = is_of_model
            path.append(node)
        for each in path:
            each.ns += ns * counts
            each.own_ns += ns * is_own
            each.kinds[row["kind"]] += ns * counts
            each.inner[frames[-1]["line"], frames[-1]["call"]] += ns * counts
            each.squares += ns**2 / samples * counts if samples else 0.0  # recorded calls are all of them
        node.self_ns += ns * counts

    def units(self) -> Iterator[Node]:
        """The outermost nodes without any of the step's own work; a line that does some counts alone, for the rest."""
        for node in self.below.values():
            node.needed += self.askers
            if node.ns and node.own_ns <= _STRAY_PART * (node.ns + node.own_ns):
                yield node
                continue
            if node.self_ns:
                ns, squares = node.self_ns, node.squares * node.self_ns / node.ns
                yield Node(node.function, node.line, ns, 0, ns, squares, node.calls, node.kinds, needed=node.askers)
            yield from node.units()

    @property
    def askers(self) -> tuple[tuple[str, str], ...]:
        """What needs the result of what is called here; unknown where it is mostly the training's own."""
        return self.needed if self.own_ns < _SOME * self.ns else ()

    def path(self, least: float = 0.0) -> list[Node]:
        """The nodes to where the time is: down as long as one line or function holds four fifths of it."""
        least = least or _HOLDS * self.ns
        largest = max(self.below.values(), key=lambda node: node.ns, default=None)
        return [self, *(largest.path(least) if largest and largest.ns >= least else [])]

    @property
    def lines(self) -> list[str]:
        """The lines of a function that count, in their order; of a line itself."""
        of = [self] if self.line else [node for node in self.below.values() if node.ns]
        return sorted((node.line for node in of), key=number_of)

    @property
    def call(self) -> str | None:
        """What is called for most of the time."""
        calls = self.calls or max(self.below.values(), key=lambda node: node.ns).calls
        return calls.most_common(1)[0][0]


def number_of(line: str) -> int:
    """41 of `train.py:41`."""
    number = line.rpartition(":")[2]
    return int(number) if number.isdecimal() else 0
