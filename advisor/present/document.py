"""What is shown, before any medium: sections of text, tables, bars and findings.

All text is plain: nothing is escaped, and its only markup are `code` spans. Names out of a recording stand in fields
that are code as a whole. A renderer draws every kind of block; one that it has no means for it leaves out.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from msgspec import Struct

from advisor.vocabulary.kinds import DocumentKind
from advisor.vocabulary.severities import Severity

Tone: TypeAlias = Literal["plain", "strong", "quiet", "good", "warning", "bad"]
WidgetKind: TypeAlias = Literal["chart", "timeline", "flame", "tables"]


class Level(Enum):
    """Where a block is shown: on the one screen, behind it (verbose, folded), or both; `SPARE` if there is room."""

    BOTH = "both"
    SPARE = "spare"
    SCREEN = "screen"
    BEHIND = "behind"


class Leveled(Struct, frozen=True, kw_only=True):
    """What can be left to one of the levels."""

    level: Level = Level.BOTH


class Text(Leveled, frozen=True):
    """A paragraph; `label` stands in front of it."""

    text: str
    tone: Tone = "plain"
    label: str = ""


class Lines(Leveled, frozen=True):
    """A list, one text per line."""

    lines: tuple[str, ...]
    tone: Tone = "plain"


class Pair(Struct, frozen=True):
    """A name and what belongs to it; `codes` are names as code, `value` is a number that stands out.

    `formula` says how that is computed, where there is room for it.
    """

    name: str
    text: str
    value: str = ""
    codes: tuple[str, ...] = ()
    formula: str = ""


class Pairs(Leveled, frozen=True):
    """Names and what belongs to each; `title` stands above them."""

    pairs: tuple[Pair, ...]
    title: str = ""


class Figure(Struct, frozen=True):
    """A number that stands for itself: what it is, and what has to be known beside it."""

    name: str
    value: str
    beside: str = ""


class Figures(Leveled, frozen=True):
    """Numbers side by side; `group` is the team that they are of, where a page can be narrowed to one.

    `says` is the same in sentences, for media without tiles.
    """

    figures: tuple[Figure, ...]
    group: str | None = None
    says: tuple[str, ...] = ()


class Code(Leveled, frozen=True):
    """Lines that keep their breaks and indentation."""

    text: str


class Segment(Struct, frozen=True):
    """A part of a bar, which begins where the one before ends: the code of what it is, its share, and what is written.

    `ms` is its length in milliseconds, None where the whole has none; `time` is the same in words.
    """

    part: str
    share: float
    ms: float | None
    label: str
    value: str
    time: str = ""


class Bar(Struct, frozen=True):
    """Segments in a row; `value` and `beside` stand behind them."""

    name: str
    segments: tuple[Segment, ...]
    value: str = ""
    beside: str = ""


class Bars(Leveled, frozen=True):
    """Bars above one another, on one scale; `none` stands in their place where there are none.

    `legend` says whether the segments are listed with their values (of the last bar, where there are several).
    """

    bars: tuple[Bar, ...]
    legend: bool = True
    none: str = ""


class Strip(Struct, frozen=True):
    """One mark per step on a line from `low` to `high`; positions are of 1."""

    name: str
    marks: tuple[float, ...]
    median: float


class Strips(Struct, frozen=True):
    """Strips on one scale, whose ends are written beneath."""

    strips: tuple[Strip, ...]
    low: str
    high: str
    level: Level = Level.BEHIND


class Head(Struct, frozen=True):
    """A column's name; `rank` says which columns go first where there is no room for all: the highest, never 0."""

    text: str
    is_number: bool = False
    rank: int = 0


class Cell(Struct, frozen=True):
    """A text, or a name as code; `run` is the id of the run or article that it leads to, `beside` stands smaller."""

    text: str
    is_code: bool = False
    run: str | None = None
    beside: str = ""
    tone: Tone = "plain"


class Row(Struct, frozen=True):
    """Cells; the part of the step whose colour they have, the group that they are of, a bar's dark and whole length."""

    cells: tuple[Cell, ...]
    part: str | None = None
    group: str | None = None
    extent: tuple[float, float] | None = None
    tone: Tone = "plain"


class Table(Leveled, frozen=True):
    """Rows under heads, a head for each cell of a row; `none` stands in the place of a table without rows.

    `extra` rows are only for a page that is narrowed to their group. The one screen shows `few` rows, all where it is
    0; `left_out` more are not among `rows`, and `more` is written where rows are left out, with `{rows}` for how many.
    `name` is the data that a page's script makes a sortable table of, `bars` what the bars of the rows show.
    """

    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    none: str = ""
    extra: tuple[Row, ...] = ()
    few: int = 0
    more: str = "and {rows} more"
    left_out: int = 0
    name: str | None = None
    bars: str = ""


class Widget(Struct, frozen=True):
    """What a page's script draws from its data: `name` says which; nothing in other media.

    `words` are what the widget writes on itself.
    """

    kind: WidgetKind
    name: str
    title: str = ""
    says: str = ""
    words: tuple[str, ...] = ()
    level: Level = Level.BEHIND


class Fold(Struct, frozen=True):
    """Blocks behind a line that opens them."""

    title: str
    blocks: tuple[Block, ...]
    is_open: bool = False
    level: Level = Level.BEHIND


class Saving(Struct, frozen=True):
    """What a fix saves: a sentence, its time alone, and the interval as shares of `window`."""

    sentence: str
    time: str
    low_share: float
    high_share: float
    window: str


class Fix(Struct, frozen=True):
    """What to do; `framework` is empty where it is the run's own."""

    do: str
    framework: str = ""
    code: str | None = None
    link: str | None = None


class Symptom(Struct, frozen=True):
    """A finding that another accounts for."""

    rule: str
    title: str
    says: str


class SourceLine(Struct, frozen=True):
    """A line of the user's code."""

    path: str
    line: int


class Finding(Struct, frozen=True):
    """What to change, and why.

    `number` is its place in the order, `key` its name in the data of a page. `says` is what was measured, in full;
    `beside`, how sure its saving is and which workers it holds for. `fixes` are those for the run's framework,
    `other_fixes` those for others. `reasons` are evidence, places and sources.
    """

    number: int
    key: str
    rule: str
    title: str
    severity: Severity
    is_new: bool
    says: str
    saving: Saving | None
    beside: tuple[str, ...]
    symptoms: tuple[Symptom, ...]
    fixes: tuple[Fix, ...]
    other_fixes: tuple[Fix, ...]
    reasons: tuple[Block, ...]
    why: str = ""
    lines: tuple[SourceLine, ...] = ()
    in_timeline: bool = False


class Findings(Leveled, frozen=True):
    """Findings in their order."""

    findings: tuple[Finding, ...]


class Action(Struct, frozen=True):
    """What to do: what the step becomes, what was measured, how results change, and the rules that found it.

    `then` is what the step becomes with it and all before it, `most` the time that is saved at most. Where there
    is room, `rest` are the other sentences of what to do, `more` those of what was measured, the first first, and
    `code` is the fix's.
    """

    number: int
    do: str
    becomes: str
    says: str
    changes: str
    rules: tuple[str, ...]
    severity: Severity
    is_new: bool = False
    then: str = ""
    most: str = ""
    rest: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    code: str = ""


class Actions(Leveled, frozen=True):
    """What to do, the first first."""

    actions: tuple[Action, ...]

    def together(self, few: int | None = None) -> str:
        """What the step becomes with the first few, or with all; empty where fewer than two save anything known."""
        return next((action.then for action in self.actions[:few][::-1] if action.then), "")


Block: TypeAlias = Text | Lines | Pairs | Figures | Code | Bars | Strips | Table | Widget | Fold | Findings | Actions


class Section(Struct, frozen=True):
    """Blocks under a title; a screen writes the title only where `is_titled`.

    `is_wide` sections use the whole width of a page; `is_grouped` ones hold rows of groups, and stay where a page is
    narrowed to one. `is_lead` sections are what a reader came for: a page begins with them, a comment folds the others.
    """

    title: str
    blocks: tuple[Block, ...]
    id: str = ""
    level: Level = Level.BOTH
    is_titled: bool = True
    is_wide: bool = False
    is_grouped: bool = False
    is_lead: bool = False


class Group(Struct, frozen=True):
    """A team that a page can be narrowed to, with its verdict."""

    name: str
    headline: str


class Article(Struct, frozen=True):
    """A verdict and what is behind it: a run of a report, a comparison, a week.

    `id` is its name in the data of a page, and `name` what it is about. `beside` qualifies the headline, and `facts`
    are what that rests on, a phrase each. A page can be narrowed to one of the `groups`.
    """

    id: str
    name: str
    headline: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    beside: str = ""
    tone: Tone = "strong"
    groups: tuple[Group, ...] = ()


class Document(Struct, frozen=True):
    """Everything that is shown of a report, a comparison or a week; `front` stands before the articles.

    `is_several` says that `overview` heads the document, because no one article does. The one screen shows the article
    `first`, by its id; all where that is empty.
    """

    kind: DocumentKind
    title: str
    overview: str
    version: str
    articles: tuple[Article, ...]
    front: tuple[Section, ...] = ()
    is_several: bool = False
    first: str = ""


def on_screen(level: Level, *, verbose: bool, has_room: bool = True) -> bool:
    """Whether a screen shows a block of this level."""
    return (verbose or has_room) if level is Level.SPARE else level is Level.BOTH or (level is Level.BEHIND) == verbose
