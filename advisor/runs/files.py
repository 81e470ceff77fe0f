"""The files of one run, each read and measured by itself, several at a time where that pays."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar

import polars as pl

from advisor import metrics
from advisor.analysis.device.selection import select_steps
from advisor.analysis.job.job import job_of
from advisor.analysis.job.own_steps import blamed, least_known
from advisor.analysis.job.rank import Rank
from advisor.errors import AdvisorError, NothingRecorded, ReadError, UsageError, contained, failure
from advisor.inputs.discover import RANK, Recording
from advisor.inputs.readers import Reading, format_of, reader
from advisor.inputs.storage import is_url, local, open_file, size
from advisor.metrics import Metric, Part
from advisor.model.clause import Note
from advisor.model.profile import Profile
from advisor.model.report import Unreadable
from advisor.options import Options
from advisor.secrets import without_secrets
from advisor.system.file_size import memory_for, most_bytes, too_large
from advisor.system.polars_pool import inside_pool
from advisor.system.processes import LOCAL
from advisor.text import listed_ranks, listing, plain, runs_of

File = TypeVar("File")
Outcome = TypeVar("Outcome")


def sample(
    files: Mapping[int, File],
    most: int,
    read: Callable[[Sequence[File]], Sequence[Outcome]],
    ranks_of: Callable[[Outcome], Sequence[Rank]],
) -> dict[int, Outcome]:
    """What `read` makes of at most so many of the files, by their ranks' numbers, in the order in which they were read.

    So many ranks as a node has are left for those that others wait for. While nobody waits for an unread rank, those
    are read of which the read ones show least, the last nodes one at a time.
    """
    outcomes = dict[int, Outcome]()

    def take(numbers: Sequence[int]) -> list[Rank]:
        outcomes.update(zip(numbers, read([files[number] for number in numbers]), strict=True))
        return [*chain.from_iterable(map(ranks_of, outcomes.values()))]

    numbers = sorted(files)
    devices = max((rank.visible or 1 for rank in take(numbers[:1])), default=1)
    of_nodes = [number for number in numbers if number % devices == numbers[0] % devices]
    spare = devices + 2  # ranks that lead to the node of a late one, and those of the node
    ranks = take(_spread(of_nodes[1:], most - spare - 1))
    while (budget := most - len(outcomes)) > 0 and (unread := set(numbers) - outcomes.keys()):
        job, nodes = job_of(ranks), unread.intersection(of_nodes)
        suspects = blamed(job, unread)[: min(budget, devices)]
        many = max(1 if nodes else spare, budget - spare)
        ranks = take(suspects or _spread(least_known(job, nodes or unread), min(many, budget)))
    return outcomes


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """So many of the numbers, evenly apart: the middle of each part of them."""
    many = max(0, min(most, len(numbers)))
    return [numbers[(2 * place + 1) * len(numbers) // (2 * many)] for place in range(many)]


_WORTH_BYTES: Final = 4 << 20  # of gzipped traces: below, one process is as quick as several, and keeps all events
_LEAST_BYTES: Final = 256 << 10  # that a file counts for: to measure one takes 0.2 s, however short it is
_NOTHING_BYTES: Final = 256  # a file that is shorter holds no event
_WORTH_SPLITTING_BYTES: Final = 16 << 20  # of one file, gzipped or not: below, one process is as quick as several
_MOST_LINES: Final = 20
_MOST_FILES: Final = 3
_OneJob: TypeAlias = tuple[str, list[Part], list[Note]]


def parts(
    recording: Recording, options: Options, selected: Sequence[Metric] = ()
) -> tuple[list[Part], list[Unreadable]]:
    """The measurements of each file of a run, in the order of the files; and the files that could not be read.

    `selected` are metrics beside the registered ones.
    """
    files = _files(recording, options)
    if options.sample and options.sample < len(files):
        by_number = {file.number: file for file in files}
        read_some = partial(_outcomes, options=options, selected=selected)
        chosen = sample(by_number, options.sample, read_some, lambda of: of.ranks if isinstance(of, Part) else ())
        files, outcomes = [by_number[number] for number in sorted(chosen)], [chosen[rank] for rank in sorted(chosen)]
    else:
        outcomes = [*_outcomes(files, options, selected)]
    workers = [o.selection.profile.workers for o in outcomes if isinstance(o, Part)]
    if _ranks_agree(workers) and _numbers_in_names(recording.files):
        outcomes = [*_outcomes([file._replace(forced=True) for file in files], options, selected)]
    return [o for o in outcomes if isinstance(o, Part)], [o for o in outcomes if isinstance(o, Unreadable)]


def are_small(files: Iterable[str]) -> bool:
    """Whether one thread reads and measures these files as quickly as several would."""
    sizes = (size(file) or _WORTH_BYTES for file in files)
    counted = (each if each < _NOTHING_BYTES else max(_LEAST_BYTES, each) for each in sizes)
    return all(total <= _WORTH_BYTES for total in accumulate(counted))  # no more sizes than it takes to tell


class _File(NamedTuple):
    format: str
    path: str
    at: str  # where its bytes are, from any folder
    number: int  # of the worker, where the file does not tell its rank, or if `forced`
    how: Reading  # without what is known of no file yet
    forced: bool = False


def _outcomes(files: Sequence[_File], options: Options, selected: Sequence[Metric]) -> Sequence[Part | Unreadable]:
    elsewhere = options.engine != LOCAL
    keep = not elsewhere and (len(files) == 1 or are_small(file.at for file in files))
    how = partial(_part, steps=options.steps, selected=tuple(selected), keep=keep)
    if elsewhere or (options.processes > 1 and not keep):
        outcomes = _side_by_side(files, how, options)
        broken = [file for file in files if isinstance(outcomes[file], Unreadable)]
        if broken and elsewhere:  # another worker may see what one does not
            outcomes |= _side_by_side(broken, how, options)
        return [outcomes[file] for file in files]
    return [how(file, options.progress(file.path)) for file in files]


def read(recording: Recording, options: Options) -> tuple[list[Profile], list[Unreadable]]:
    """The profile of each file of a run, ranks numbered as `parts` does; and the files that could not be read."""
    files = _files(recording, options)
    outcomes = [contained(partial(_read, file, options.progress(file.path)), partial(_failed, file)) for file in files]
    if _ranks_agree([o.workers for o in outcomes if isinstance(o, Profile)]) and _numbers_in_names(recording.files):
        pairs = zip(files, outcomes, strict=True)
        outcomes = [o.numbered(file.number) if isinstance(o, Profile) else o for file, o in pairs]
    return [o for o in outcomes if isinstance(o, Profile)], [o for o in outcomes if isinstance(o, Unreadable)]


def _files(recording: Recording, options: Options) -> list[_File]:
    places = [at if is_url(at) else str(Path(at).absolute()) for at in recording.copies or recording.files]
    numbers = _numbers_in_names(recording.files) or range(len(places))  # for files that do not tell their rank
    rows = zip(recording.files, places, numbers, strict=True)
    each = max(1, options.processes // len(recording.files))
    how = Reading(step_range=options.step_range, max_bytes=options.max_bytes, processes=each)
    return [_File(recording.format, *row, how) for row in rows]


def jobs(recording: Recording, measured: Sequence[Part]) -> Iterator[_OneJob]:
    """The jobs that the files of a run are of: name, parts and what is to be said of them.

    Of two files that claim one rank the second is of another job, unless the first was recorded on other devices than
    most. So are recordings without ranks, one after the other.
    """
    groups: list[list[Part]] = []
    may_repeat = not _numbers_in_names(recording.files)
    # Processes without a device and without a rank, recorded while one with a device was: a scheduler, say.
    working = [part for part in measured if _uses_device(part)]
    rankless = [part for part in measured if not part.selection.profile.workers["rank"].count()]
    idle = [part for part in rankless if not _uses_device(part)]
    helpers = [part for part in idle if any(_at_once(part, other) for other in working)]
    measured = [part for part in measured if not any(part is helper for helper in helpers)]
    usual = Counter(map(_kind, measured))
    for part in sorted(measured, key=lambda part: -usual[_kind(part)]):
        ranks = _claimed([part])
        free = [job for job in groups if not ranks & _claimed(job)]
        homes = [job for job in free if not (may_repeat and any(_is_another_run(part, other) for other in job))]
        if homes:
            min(homes, key=lambda job: _kind(job[0]) != _kind(part)).append(part)
        else:
            groups.append([part])
    place = {id(part): number for number, part in enumerate(measured)}
    groups = [sorted(job, key=lambda part: place[id(part)]) for job in groups]
    repeated = runs_of(rank for rank, times in Counter(r for p in measured for r in _claimed([p])).items() if times > 1)
    notes = [Note("rank_repeated", ranks=repeated)] if repeated else []
    files = _files_of(helpers)  # these processes are not judged by themselves
    others = Note("other_process", files=", ".join(files[:_MOST_FILES]), more=int(len(files) > _MOST_FILES))
    for number, job in enumerate(groups, start=1):
        alone = f"/{_files_of(job)[0]}" if len(job) == 1 else f"#{number}"
        name = recording.name + (alone if number > 1 else "")
        yield name, job, [*notes, *_numbered_by(recording, job), *_mixed(job), *([others] if files else [])]


def logs(
    recording: Recording, of: Sequence[_OneJob], options: Options
) -> tuple[list[Part], list[_OneJob], list[Unreadable]]:
    """What logs beside a run are of its one job; those of other ranks, as jobs of their own; the unreadable ones."""
    beside, others, bad = list[Part](), list[_OneJob](), list[Unreadable]()
    job = of[0][1] if len(of) == 1 else ()
    for log in recording.logs:
        parts_of_log, unread = parts(log, options)
        bad += unread
        # Whether the job says how many ranks it has, and the log says no other number, nor a rank beyond.
        sizes, logged = ({rank.world_size or 0 for part in each for rank in part.ranks} for each in (job, parts_of_log))
        if logged <= {*sizes, 0} and max(_claimed(parts_of_log), default=0) < min(sizes, default=0):
            beside += parts_of_log
        else:
            note = Note("several_formats", formats=listing(sorted({recording.format, log.format})))
            alone = replace(log, name=f"{recording.name}/{log.format}")
            others += [(name, own, [*notes, note]) for name, own, notes in jobs(alone, parts_of_log)]
    return beside, others, bad


def _uses_device(part: Part) -> bool:
    return any(rank.device is not None for rank in part.ranks)


def _at_once(part: Part, other: Part) -> bool:
    """Whether two processes of one machine, as far as that is known, were recorded at the same time."""
    (host, pid, _), (other_host, other_pid, _) = _process(part), _process(other)
    elsewhere = host is not None and other_host is not None and host != other_host
    return not elsewhere and pid != other_pid and _overlap(part, other)


def _is_another_run(part: Part, other: Part) -> bool:
    """Whether two files that say no rank are of two runs: recorded one after the other, and exchanging nothing."""
    (host, pid, rank), (other_host, other_pid, other_rank) = _process(part), _process(other)
    timed = all(closes for _, closes in map(_recorded, (part, other)))
    if pid is None or rank is not None or other_rank is not None or not timed or _overlap(part, other):
        return False
    if pid == other_pid:
        return host == other_host
    elsewhere = None not in {host, other_host} and host != other_host
    exchange = any(rank.calls.height for each in (part, other) for rank in each.ranks)
    (_, closes), (opens, _) = spans = sorted(map(_recorded, (part, other)))
    is_far_apart = opens - closes > sum(end - start for start, end in spans)  # more passes between than both take
    return is_far_apart and not (elsewhere or exchange)


def _process(part: Part) -> tuple[object, ...]:
    """Host, process id and rank of a file's first worker, each None where the file does not say it."""
    return part.selection.profile.workers.select("host", "pid", "rank").row(0)


def _overlap(part: Part, other: Part) -> bool:
    (opens, closes), (other_opens, other_closes) = _recorded(part), _recorded(other)
    return opens < other_closes and other_opens < closes


def _recorded(part: Part) -> tuple[int, int]:
    """From when to when the steps of a file are, in ns."""
    views = [view for view in part.selection.views if len(view.starts)]
    return min((int(v.starts.min()) for v in views), default=0), max((int(v.ends.max()) for v in views), default=0)


def _kind(part: Part) -> tuple[object, ...]:
    """What the files of one job usually have in common: the devices' models, and how many ranks there are."""
    models = {rank.gpu.id if rank.gpu else None for rank in part.ranks if rank.device is not None}
    return tuple(sorted(models, key=str)), *(rank.world_size for rank in part.ranks[:1])


def _mixed(job: Sequence[Part]) -> Iterator[Note]:
    """What to say of a job whose ranks use devices of different models."""
    of_model = defaultdict(set)
    for part in job:
        for rank in part.ranks:
            if rank.gpu:
                of_model[rank.gpu.model].add(rank.worker)
    if len(of_model) > 1:
        models = ", ".join(f"{model} on {listed_ranks(workers)}" for model, workers in of_model.items())
        yield Note("different_gpus", models=models)


def _claimed(job: Sequence[Part]) -> set[int]:
    return {worker for part in job for worker in part.selection.profile.workers["worker"]}


def _files_of(job: Sequence[Part]) -> list[str]:
    return [Path(file).name for part in job for file in part.selection.profile.workers["file"]]


def _numbered_by(recording: Recording, measured: Sequence[Part]) -> Iterator[Note]:
    """Where the numbers of the ranks are from, if not from the files themselves."""
    rows = [row for part in measured for row in part.selection.profile.workers.select("worker", "rank").rows()]
    if not format_of(recording.format).tells_ranks or len(rows) <= 1:
        return
    order = int(not _numbers_in_names(recording.files))
    if any(rank is not None and rank != worker for worker, rank in rows):
        yield Note("same_rank", rank=rows[0][1], order=order)
    elif silent := sum(rank is None for _, rank in rows):
        yield Note("no_rank", silent=silent, files=len(rows), order=order)


def _ranks_agree(workers: Iterable[pl.DataFrame]) -> bool:
    """Whether all files say one and the same rank of a larger job, and are recordings of different processes."""
    rows = [row for table in workers for row in table.select("rank", "world_size", "host", "pid").rows()]
    ranks, sizes = {row[0] for row in rows}, {row[1] for row in rows}
    processes = {row[2:] for row in rows}
    alone = sizes == {1} or None in ranks
    return len(rows) > 1 and len(ranks) == 1 and not alone and len(processes) == len(rows)


def _numbers_in_names(files: Sequence[str]) -> list[int]:
    """The rank that each file's name tells; none of them where not every name tells one of its own."""
    ranks = [RANK.findall(file.rpartition("/")[2])[-1:] for file in files]
    numbers = [int(number) for of_file in ranks for number in of_file]
    return numbers if len({*numbers}) == len(files) else []


def _read(file: _File, on_read: Callable[[int], object]) -> Profile | Unreadable:
    kind, module, name = format_of(file.format), reader(file.format), plain(file.path)
    length = size(file.at)
    most = file.how.max_bytes or most_bytes(kind.memory_per_byte, length)
    try:
        if (length or 0) > most:
            raise too_large(name, most)
        with (local if kind.needs_path else open_file)(file.at) as source:
            how = file.how._replace(worker=file.number, on_read=on_read, max_bytes=most)
            how = how._replace(memory=memory_for(file.at, file.how.max_bytes))
            is_split = kind.splits and (length or 0) > _WORTH_SPLITTING_BYTES
            profile: Profile = module.read(source, name, how if is_split else how._replace(processes=1))
            profile = profile.numbered(file.number) if file.forced else profile
    except ReadError as error:
        is_empty = isinstance(error, NothingRecorded)
        return unreadable(file.path, error.why).model_copy(update={"is_empty": is_empty})
    return profile


def unreadable(path: str, why: str) -> Unreadable:
    """A file that could not be read, in text that is safe to show."""
    return Unreadable(path=plain(path), why=plain(without_secrets(why)))


def _failed(file: _File, kind: str) -> Unreadable:
    return unreadable(file.path, failure(kind))


def summed_up(files: Sequence[Unreadable]) -> list[Unreadable]:
    """One line per folder and reason, or where those are many, per reason, whatever the numbers in it."""
    alike = _alike(files, lambda file: (file.path.rpartition("/")[0], file.why))
    if len(alike) > _MOST_LINES:
        alike = _alike(files, lambda file: re.sub(r"\d[\d,.]*", "", file.why))
    return [
        first.model_copy(update={"why": f"{first.why} (and {len(others):,} more)", "others": tuple(others)})
        if (others := [file.path for file in more])
        else first
        for first, *more in alike
    ]


def _alike(files: Iterable[Unreadable], key: Callable[[Unreadable], object]) -> list[list[Unreadable]]:
    groups = defaultdict(list)
    for file in files:
        groups[key(file)].append(file)
    return list(groups.values())


def _part(
    file: _File, on_read: Callable[[int], object], *, steps: str, selected: tuple[Metric, ...], keep: bool
) -> Part | Unreadable:

    def measured() -> Part | Unreadable:
        profile = _read(file, on_read)
        if isinstance(profile, Unreadable):
            return profile
        part = metrics.measure_part(select_steps(profile, steps), selected)
        return part if keep else part.emptied()

    return contained(measured, partial(_failed, file))


def _side_by_side(
    files: Sequence[_File], how: partial[Part | Unreadable], options: Options
) -> dict[_File, Part | Unreadable]:
    """What each file holds, in as many processes as the options say, or on the workers of a cluster."""
    from advisor.system.engines import engine, outcomes_of  # noqa: PLC0415 - a check of one file starts no process

    on_read = {file: options.progress(file.path) for file in files}
    outcomes = dict[_File, Part | Unreadable]()
    with closing(engine(options.engine, min(options.processes, len(files)))) as where:
        # A worker's other threads make tables too, and would wait for polars' threads while one of them reads a rank.
        alone = partial(_alone, how, in_pool=options.engine == LOCAL)
        for file, outcome in outcomes_of(where, alone, files):
            if isinstance(outcome, UsageError):
                raise outcome
            if isinstance(outcome, Exception):
                why = str(outcome) if isinstance(outcome, AdvisorError) else failure(type(outcome).__name__)
                outcomes[file] = unreadable(file.path, why)
            else:
                outcomes[file] = outcome
                on_read[file](size(file.path) or 0)
    return outcomes


def _alone(how: partial[Part | Unreadable], file: _File, *, in_pool: bool) -> Part | Unreadable:
    part = partial(how, file, lambda _: None)
    return inside_pool(part) if in_pool and are_small([file.at]) else part()
