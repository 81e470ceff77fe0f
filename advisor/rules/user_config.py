"""The rule book as a configuration changes it: own rules, overrides, suppressions."""

import datetime as dt
from collections.abc import Collection, Mapping
from pathlib import Path

from advisor.config import Config
from advisor.errors import RuleError, UsageError
from advisor.model.clause import Note
from advisor.rules.judge import Suppression
from advisor.rules.rule_file import Rule, RuleFile, files, load
from advisor.system.resources import rules_folder
from advisor.text import did_you_mean


def rule_book(config: Config) -> dict[str, Rule]:
    """The shipped rules and the user's, with the user's overrides.

    A RuleError where a user's rule is wrong; a UsageError where an override or suppression names no rule.
    """
    book = load([rules_folder()], cases=False)
    if config.rules:
        own = load(config.rules, cases=False)
        book |= own
        _check_own(own, book)
    rules: list[tuple[tuple[str | int, ...], str]] = [(("overrides", rule), rule) for rule in config.overrides]
    rules += [(("suppress", at, "rule"), each.rule) for at, each in enumerate(config.suppress)]
    for at, rule in rules:
        if rule not in book:
            raise UsageError(f"{config.place(*at)}no rule is called {rule!r}{did_you_mean(rule, book)}")
    for rule, override in config.overrides.items():
        if unknown := sorted(override.params.keys() - book[rule].params.keys()):
            known = ", ".join(book[rule].params) or "none"
            place = config.place("overrides", rule, "params", unknown[0])
            raise UsageError(f"{place}overrides.{rule}.params.{unknown[0]}: no such parameter; {rule} has {known}")
        book[rule] = book[rule].adjusted(override.params, override.severity)
    return dict(sorted(book.items()))


def rule_of(path: Path, text: str | None = None) -> Rule:
    """The rule in one file; or in a text that is to stand there, with its cases run.

    A RuleError where the rule is wrong, or a case of it fails.
    """
    rule = RuleFile(path, text).rule()
    _check_own({rule.id: rule}, load([rules_folder()], cases=False), cases=text is not None)
    return rule


def _check_own(own: Mapping[str, Rule], book: Collection[str], *, cases: bool = False) -> None:
    """Refuses rules that name what there is not; cases are for `advisor rules test`, unless they are asked for."""
    from advisor.rules.lint import refusals  # noqa: PLC0415 - the shipped rules are checked before they ship

    if problem := next(refusals(own, book, cases=cases), None):
        raise RuleError(problem)


def replaced(config: Config) -> list[Note]:
    """A note on each shipped rule that one of the user's replaces, and on each earlier name in the user's files."""
    own = load(config.rules, cases=False) if config.rules else {}
    names = own.keys() & {path.stem for path in files(rules_folder())} if own else ()
    of_rules = [note for rule in own.values() for note in rule.renamed]
    return [*(Note("own_rule", rule=name) for name in sorted(names)), *config.notes, *of_rules]


def suppressions(config: Config, today: dt.date) -> dict[str, Suppression]:
    """The suppressions by rule; of several for one rule, that which ends last."""
    ordered = sorted(config.suppress, key=lambda s: s.until)
    return {s.rule: Suppression(s.reason, s.until.isoformat(), expired=s.until < today) for s in ordered}
