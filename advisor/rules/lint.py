"""What makes a rule trustworthy: every name known, every parameter used, its own cases right, and its limits decided.

`decided`: of cases that follow from a limit, a metric exactly at it and just on either side. They start from the cases
that a rule has, and change one metric. A limit at which nothing changes, whatever the case, decides nothing there.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl

from advisor.errors import RuleError
from advisor.metrics.metric import METRICS, NAMES, table_of
from advisor.recording.inside.patches import check_use
from advisor.rules import wording
from advisor.rules.evaluation import Verdict, fixes_in_order, verdicts
from advisor.rules.expressions import Expression, comparisons, parse
from advisor.rules.rule_file import Rule, RuleFile, files
from advisor.rules.rule_form import Case
from advisor.vocabulary.formerly import RULES

Key: TypeAlias = tuple[str | int, ...]  # where a condition stands in the rule file
Metrics: TypeAlias = Mapping[str, Any]

_BESIDE: Final = 0.01  # of a limit, or the step from a limit of 0: less than any change of a limit that matters
_DIGITS: Final = 12


class AtLimit(NamedTuple):
    """A case at a limit or beside it: where the limit stands, the comparison, the metrics, and the rule's answer."""

    key: Key
    limit: str
    values: Metrics
    answer: object

    @property
    def is_silent(self) -> bool:
        """Whether the rule does not fire."""
        return self.answer == ("passed", None, False, 0.0)


def at_limits(rule: Rule) -> tuple[list[AtLimit], list[tuple[Key, str]]]:
    """The cases, and the limits that decide in none of them, each with its key."""
    edges, idle = [], []
    for key, text in _conditions(rule).items():
        for first, sign, second in comparisons(text):
            limit = f"{first} {sign} {second}"
            cases = next(_decided(rule, key, (first, second)), None)
            if cases is None:
                idle.append((key, limit))
            else:
                edges += [AtLimit(key, limit, values, answer) for values, answer in cases]
    return edges, idle


def _conditions(rule: Rule) -> dict[Key, str]:
    """Every condition of the rule and of its fixes; what it saves is none."""
    texts: dict[Key, str] = {tuple(key.split(".")): text for key, text in rule.texts.items() if "saving" not in key}
    return texts | {("fixes", *key): condition for key, condition in rule.texts_of_fixes.items()}


def _decided(rule: Rule, key: Key, sides: tuple[str, str]) -> Iterator[list[tuple[Metrics, object]]]:
    """By case and metric, what the rule answers around the limit, if the answer changes there."""
    names = parse(f"({sides[0]}) = ({sides[1]})", rule.types, rule.params).names - rule.params.keys()
    for name in sorted(names):
        around = _around(rule, name, sides)
        verdicts_around = iter(answers(rule, key, [row for rows in around for row in rows]))
        for rows in around:
            cases = [(row, next(verdicts_around)) for row in rows]
            if any(answer != cases[0][1] for _, answer in cases):
                yield cases


def answers(rule: Rule, key: Key, rows: Sequence[Metrics]) -> list[object]:
    """Of a fix whether its condition holds, else whether the rule fires, its severity, how sure, what it outweighs."""
    frame = table_of(rows, rule.types)
    if key[0] == "fixes":
        return parse(_conditions(rule)[key], rule.types, rule.params).over(frame, rule.params)
    return [
        (verdict.outcome, verdict.severity, verdict.lower, verdict.outweighs_ms) for verdict in verdicts(rule, frame)
    ]


def _around(rule: Rule, name: str, sides: tuple[str, str]) -> list[list[Metrics]]:
    """The metrics of each case with this one around the value at which both sides are equal."""
    cases = [case.metrics for case in rule.cases.values()]
    if rule.types[name] in {pl.String, NAMES}:
        words = [side[1:-1] for side in sides if side.startswith("'")]
        return [[{**values, name: word} for word in (*words, "?")] for values in cases]
    ends = [_difference(rule, sides, [{**values, name: at} for values in cases]) for at in (0.0, 1.0)]
    near: list[list[Metrics]] = [
        [{**values, name: value} for value in _near(*of_case)]
        for values, of_case in zip(cases, zip(*ends, strict=True), strict=True)
    ]
    gaps = iter([abs(gap or 0.0) for gap in _difference(rule, sides, [row for rows in near for row in rows])])
    closest = [min(((next(gaps), row) for row in rows), key=itemgetter(0)) for rows in near if rows]
    closest.sort(key=itemgetter(0))  # first the cases in which a number meets the limit exactly
    is_count = rule.types[name] == pl.Int64
    return [[{**row, name: value} for value in _points(float(row[name]), is_count=is_count)] for _, row in closest]


def _difference(rule: Rule, sides: tuple[str, str], rows: Sequence[Metrics]) -> list[float | None]:
    """By how much the left side exceeds the right one in each row; None where it is unknown or no number."""
    frame = table_of(rows, rule.types)
    text = f"({sides[0]}) - ({sides[1]})" if "'" not in "".join(sides) else "0 / 0"
    return parse(text, rule.types, rule.params).over(frame, rule.params)


def _near(from_zero: float | None, from_1: float | None) -> list[float]:
    """Where a line through both is 0, and the numbers next to that; none if it is nowhere."""
    if from_zero is None or from_1 is None or from_zero == from_1:
        return []
    root = float(f"{from_zero / (from_zero - from_1):.{_DIGITS}g}")
    return [root, math.nextafter(root, math.inf), math.nextafter(root, -math.inf)]


def _points(limit: float, *, is_count: bool) -> list[float]:
    """The limit and the values beside it; none that is negative where the limit is not."""
    step = 1.0 if is_count else abs(limit) * _BESIDE or _BESIDE
    below, above = (math.ceil(limit) - 1, math.floor(limit) + 1) if is_count else (limit - step, limit + step)
    points = [below, above] if is_count and limit % 1 else [below, limit, above]
    return [value for value in points if value >= 0 or limit < 0]


Problem: TypeAlias = tuple[tuple[str | int, ...], str]
"""Where in the file, as keys and indices, and what is wrong there."""


def lint(folder: Path, known_rules: Collection[str], *, documented: bool = False) -> list[str]:
    """Everything that is wrong with the rule files of a folder, one `path:line: message` each.

    `known_rules` are ids of other rules that `explains` may name. With `documented` it asks for what the shipped rules
    have: the meaning of every parameter that is no limit of a metric, and why a rule states its severity.
    """
    lines: list[str] = []
    rules: dict[Path, Rule] = {}
    for path in files(folder):
        try:
            rules[path] = RuleFile(path).rule()
        except RuleError as error:
            lines.append(str(error))
    ids = {*known_rules, *(rule.id for rule in rules.values())}
    for path, rule in rules.items():
        problems = [*_problems(rule, ids, cases=True), *(_undocumented(rule) if documented else ())]
        if rule.id != RULES.get(path.stem, path.stem):
            problems.append((("id",), f"{rule.id}: the file must be named {rule.id}.yaml"))
        lines += [str(rule.error(at, message)) for at, message in problems]
    return lines + [f"{folder}: {message}" for message in _cycles({rule.id: rule for rule in rules.values()})]


def refusals(rules: Mapping[str, Rule], ids: Collection[str], *, cases: bool = False) -> Iterator[str]:
    """What keeps rules from being judged, one `path:line: message` each; they may name these ids."""
    for rule in rules.values():
        yield from (str(rule.error(at, message)) for at, message in _problems(rule, ids, cases=cases))
    yield from _cycles(rules)


def _problems(rule: Rule, ids: Collection[str], *, cases: bool) -> Iterator[Problem]:
    try:
        expressions = rule.expressions()
        conditions = rule.fix_conditions()
        definitions = {f"let.{name}": expression for name, expression in rule.definitions.items()}
        _try_types(rule, (*expressions.items(), *conditions.items(), *definitions.items()))
        of_sentence = wording.names(rule.says)
        of_fixes = set().union(*(wording.names(text) for fix in rule.fixes for text in fix.templates))
    except RuleError as error:
        yield error.at, error.problem
        return
    except ValueError as error:
        yield ("says",), str(error)
        return
    yield from _name_problems(rule, of_sentence, of_fixes)
    yield from _unit_problems(rule)
    if rule.saving and rule.severity and not rule.saving.known:
        yield ("severity",), "leave it out: the severity is decided by the saving"
    if not rule.saving and True not in rule.levels.values():
        yield ("severity",), "without a saving, one level must be `true`, for rows that reach no other"
    yield from _about_problems(rule, ids)
    choices = Counter((fix.choice, fix.framework) for fix in rule.fixes if fix.choice)
    for (choice, framework), fixes in choices.items():
        if fixes == 1:
            yield ("fixes",), f"choice {choice!r}: no other fix for {framework} is of this choice"
    yield from _trial_problems(rule)
    used = (of_sentence | of_fixes).union(
        *(expression.names for expression in (*expressions.values(), *conditions.values(), *definitions.values()))
    )
    for name in rule.params:
        if name not in used:
            yield ("params", name), "this parameter is not used"
    if cases:
        yield from _case_problems(rule)
        yield from _limit_problems(rule)


def _try_types(rule: Rule, expressions: Iterable[tuple[str | tuple[int, str], Expression]]) -> None:
    """Work out each expression of no job at all: polars refuses one that takes a text for a number."""
    for key, expression in expressions:
        try:
            expression.over(pl.DataFrame(schema=rule.types), rule.params)
        except pl.exceptions.PolarsError as error:
            at = (*key.split("."),) if isinstance(key, str) else ("fixes", *key)
            raise RuleError(f"not an expression: {str(error).partition(chr(10))[0]}", at) from None


def _undocumented(rule: Rule) -> Iterator[Problem]:
    limits = rule.limits
    for name, parameter in rule.parameters.items():
        if parameter.meaning is None and name not in limits:
            yield ("params", name), "write what it is after its unit: `5 %, idle time as a share of the step`"
    if rule.severity and not rule.severity.because:
        yield ("severity",), "write why no saving decides it: `because: ...`"


def _limit_problems(rule: Rule) -> Iterator[Problem]:
    """Limits that decide in no case, and fixes that a job may have already without a case of such a job."""
    cases, idle = at_limits(rule)
    silent = any(case.fires is False for case in rule.cases.values()) or any(case.is_silent for case in cases)
    if not silent:
        yield ("cases",), "no case in which the rule does not fire"
    for place, limit in idle:
        if place[0] != "fixes":
            yield place, f"no case shows what `{limit}` decides: add one in which nothing else decides"
    jobs = [*(case.metrics for case in rule.cases.values()), *(case.values for case in cases)]
    for (index, key), condition in rule.fix_conditions().items():
        rows = [row for row in jobs if condition.names <= row.keys() | rule.params.keys()]
        if key == "unless" and not any(condition.over(table_of([row], rule.types), rule.params)[0] for row in rows):
            yield ("fixes", index, "unless"), "no case of a job that has this fix already"


def _name_problems(rule: Rule, of_sentence: set[str], of_fixes: set[str]) -> Iterator[Problem]:
    phrases, known = {*wording.PHRASES[True], wording.DEVICE}, rule.parameters.keys() | rule.let.keys()
    places: list[tuple[tuple[str | int, ...], str]] = [
        *((("says",), name) for name in sorted(of_sentence - phrases - known)),
        *((("fixes",), name) for name in sorted(of_fixes - known)),
        *((("shows", index), name) for index, name in enumerate(rule.shows)),
        *((("applies", "known", index), name) for index, name in enumerate(rule.applies.known)),
    ]
    yield from ((at, f"unknown metric or parameter {name!r}") for at, name in places if not rule.has_metric(name))
    for name in rule.parameters:
        if rule.has_metric(name):
            yield ("params", name), "this is the name of a metric"
    written = f"{rule.let.values()} {rule.written.values()} {[(fix.when, fix.unless) for fix in rule.fixes]}"
    used = set(re.findall(r"\w+", written)) | of_sentence | of_fixes
    for name in rule.let:
        if rule.has_metric(name) or name in rule.parameters:
            yield ("let", name), "this is the name of a metric or a parameter"
        elif name not in used:
            yield ("let", name), "this name is not used"
    for name in rule.selected.keys() & METRICS.keys():
        yield ("measure",), f"{name} is a metric of all rules: call the selection otherwise"
    for key, title in ((("title",), rule.title), (("confidence", "title"), rule.certainty.title)):
        if "-" in rule.id and rule.id in re.findall(r"[\w-]+", title or ""):  # one word is the title's too
            yield key, "leave out the rule's id: reports write it after the title"


def _unit_problems(rule: Rule) -> Iterator[Problem]:
    """Shares held against a number above 1, which is in percent; times among the parts of a saving that count."""
    for key, text in rule.texts.items():
        for first, _, second in comparisons(text):
            for name, limit in ((first, second), (second, first)):
                if not name.endswith("_share") or not rule.has_metric(name) or rule.metric(name).unit != "share":
                    continue
                parameter, write = rule.parameters.get(limit), f"{name} is a part of 1: write"
                if parameter and parameter.unit == "number" and parameter.value > 1:
                    yield ("params", limit), f"{write} `{parameter.value:g} %`"
                elif re.fullmatch(r"\d+(?:\.\d*)?", limit) and float(limit) > 1:
                    yield tuple(key.split(".")), f"{write} `{limit} %` under `params`, and name that here"
    names = " ".join(str(part) for part in (rule.saving.parts if rule.saving else ()))
    for name in sorted({*re.findall(r"\b[A-Za-z]\w*_ms\b", names)}):  # products of times are arithmetic of the metrics
        yield ("saving",), f"a part has no unit, and {name} is a time: name it under `least` or `most`"


def _about_problems(rule: Rule, ids: Collection[str]) -> Iterator[Problem]:
    """What stands on what it is about, and on its relations to other rules."""
    about = rule.about
    for key, others in ((("explains",), rule.explains), (("about", "parts"), about.parts)):
        for index, other in enumerate(others):
            if other not in ids:
                yield (*key, index), f"no rule has the id {other!r}"
    for name in filter(None, (about.rank, about.culprit, about.time)):
        if not rule.has_metric(name):
            yield ("about",), f"unknown metric {name!r}"
    if about.parts and about.time is None:
        yield ("about",), "name the metric that says how much of it each part is: `time: METRIC`"
    if about.rank and rule.has_metric(about.rank) and rule.metric(about.rank).dtype != pl.Int64:
        yield ("about", "rank"), f"{about.rank!r} is not the number of a rank: name a metric with the unit `rank`"


def _trial_problems(rule: Rule) -> Iterator[Problem]:
    """A patch that does not exist, or arguments that do not fit; of a template only that the argument exists."""
    for index, fix in enumerate(rule.fixes):
        if fix.trial is None:
            continue
        arguments = {name: value for name, value in fix.trial.items() if name != "patch"}
        try:
            check_use(str(fix.trial.get("patch")), arguments)
        except ValueError as error:
            yield ("fixes", index, "try"), str(error)


def _case_problems(rule: Rule) -> Iterator[Problem]:
    if not any(case.fires for case in rule.cases.values()):
        yield ("cases",), "no case in which the rule fires"
    wrong = dict(failures(rule))
    for place, case in rule.cases.items():
        unknown = sorted(case.metrics.keys() - rule.types.keys())
        if message := f"unknown metric {unknown[0]!r}" if unknown else wrong.get(place):
            yield ("cases", place), f"case {case.name!r}: {message}"


def failures(rule: Rule) -> Iterator[tuple[int, str]]:
    """How the rule's verdicts on its cases differ from what these demand, by the place of the case in the file."""
    cases = rule.cases
    frame = table_of((case.metrics for case in cases.values()), rule.types)
    frame = rule.with_let(frame, frame)
    for place, verdict, row in zip(cases, verdicts(rule, frame), frame.iter_rows(named=True), strict=True):
        if message := _failure(rule, cases[place], verdict, row):
            yield place, message


def _failure(rule: Rule, case: Case, verdict: Verdict, row: Mapping[str, object]) -> str | None:
    if case.not_evaluable is not None:
        missing = set(verdict.missing)
        return None if missing >= set(case.not_evaluable) and missing else f"it is {verdict.outcome}"
    if verdict.outcome == "not_evaluable":
        return f"not evaluable without {', '.join(verdict.missing)}"
    fires = verdict.outcome == "fired" and (verdict.severity or True)
    if (fires, verdict.lower) != (case.fires, case.lower):
        return f"fires {fires}{', with lower confidence' if verdict.lower else ''}, not {case.fires}"
    ends = zip(case.saves or (), (verdict.low_ms, verdict.high_ms), strict=False)
    if case.saves and not all(b is not None and math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3) for a, b in ends):
        return f"saves {verdict.low_ms} to {verdict.high_ms} ms, not {case.saves[0]} to {case.saves[1]}"
    return _sentence_failure(rule, case, row) if case.fires else None


def _sentence_failure(rule: Rule, case: Case, row: Mapping[str, object]) -> str | None:
    known = row.get("step_mean_ms")
    step_ms = known if isinstance(known, float) else None
    step = wording.Step(wording.PHRASES[True]["each_step"], step_ms, step_ms, {})
    values = {**row, **rule.params, **wording.PHRASES[True], wording.DEVICE: wording.GPU, wording.STEP: step}
    fixes = fixes_in_order(rule, row)
    try:
        wording.say(rule.says, values)
        advice = [wording.say(text, values) for fix in fixes for text in (fix.do, fix.code or "")]
    except ValueError as error:
        return f"it cannot be put in words: {error}"
    first = advice[0] if advice else ""
    return None if first.startswith(case.fix or "") else f"its first fix is {first[:40]!r}, not {case.fix!r}"


def _cycles(rules: Mapping[str, Rule]) -> Iterator[str]:
    """`explains` must form no circle: a cause cannot be its own symptom."""
    try:
        saving = [name for name, rule in rules.items() if rule.saving]
        beneath = {name: (*rule.explains, *(saving if rule.about.outweighs_ms else ())) for name, rule in rules.items()}
        TopologicalSorter(beneath).prepare()
    except CycleError as error:
        yield f"{min(error.args[1])} explains itself over a circle of rules"
