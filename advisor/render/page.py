"""Lines of text under a width, for a terminal that may lack colours or Unicode. What goes in is made plain first."""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from textwrap import wrap
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from advisor.text import UNIT_BLANK, plain, shortened
from advisor.vocabulary.severities import GRADES

_LONGEST: Final = 2000  # characters of one text
_BOUND: Final = "\ue000"  # in the place of a blank where no line may break
_COMMAND: Final = re.compile(r"(?<=:) `([^`]*\bCOMMAND)`[.;]?\s*")  # what is there to be pasted
_ASCII: Final = str.maketrans(
    {
        **dict(zip("█▓▒░▚═─┊·└µ×–", '#=&-"_*:|`ux-', strict=True)),  # noqa: RUF001 - what is drawn
        **{grade.mark: grade.ascii_mark for grade in GRADES.values()},
        "→": "->",
        "…": "...",
    }
)


_wrapped: Final = partial(wrap, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)

Part: TypeAlias = str | tuple[str, str]
"""A piece of a line: text, or text with its style."""


class Room(NamedTuple):
    """What there is room for: everything where it `is_verbose`, else these sentences, by entry and place.

    `is_tight` leaves out empty lines, `is_full` what is there only if there is room.
    """

    is_verbose: bool = True
    is_tight: bool = False
    is_full: bool = False
    sentences: frozenset[tuple[float, int]] = frozenset()


class Page:
    """A growing text; `width` is that of its lines, in columns."""

    def __init__(self, width: int, room: Room, *, color: bool, unicode: bool) -> None:
        self.width = width
        self.room = room
        self.verbose = room.is_verbose
        self._unicode = unicode
        self._lines: list[Text | str] = []  # those of tables are drawn already
        self._console = Console(
            width=width,
            color_system="standard" if color else None,
            force_terminal=color,
            force_interactive=False,
            no_color=not color,
            legacy_windows=False,
            _environ={},
        )

    def add(self, *parts: Part, margin: int = 0, hang: int = 0) -> None:
        """One paragraph, wrapped; `hang` indents all but its first line. A command behind a colon has a whole line."""
        paragraph, start = self._paragraph(parts), 0
        for command in _COMMAND.finditer(paragraph.plain):
            self._wrapped(paragraph[start : command.start()], margin, hang)
            self.code(command[1], margin + hang + 2)
            margin, hang, start = margin + hang, 0, command.end()
        if start < len(paragraph) or not start:
            self._wrapped(paragraph[start:], margin, hang)

    def joined(self, text: str) -> bool:
        """Whether there was room for the text at the end of the last line."""
        last = self._lines[-1]
        if isinstance(last, Text) and (has_room := len(last) + len(text) + 3 <= self.width):
            last.append(self._printable(f"   {text}"))
        return isinstance(last, Text) and has_room

    def _wrapped(self, paragraph: Text, margin: int, hang: int) -> None:
        for number, line in enumerate(paragraph.wrap(self._console, self.width - margin - hang)):
            line.rstrip()
            self._lines.append(Text(" " * (margin + (hang if number else 0))) + line)

    def table(
        self, heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Sequence[Part]]], *, margin: int = 0
    ) -> None:
        """Columns under their heads (and whether they hold numbers); only text wraps in its column."""
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for head, is_number in heads:
            justify: Literal["left", "right"] = "right" if is_number else "left"
            grid.add_column(
                Text(self._printable(head)), justify=justify, no_wrap=is_number, overflow="fold", vertical="top"
            )
        for row in rows:
            grid.add_row(*map(self._paragraph, row))
        table = self._ansi(Padding(grid, (0, 0, 0, margin)), width=self.width)
        self._lines += [line.rstrip() for line in table.splitlines()]

    def _paragraph(self, parts: Iterable[Part]) -> Text:
        paragraph = Text()
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            paragraph.append(self._printable(text), style)
        return paragraph

    def code(self, text: str, margin: int) -> None:
        """Lines that keep their breaks and indentation."""
        for line in plain(text).rstrip().split("\n"):
            bound = re.sub(r"""(["']).*?\1""", lambda of: of[0].replace(" ", _BOUND), line)
            rows = _wrapped(bound, self.width - margin - 2) if line.endswith("COMMAND") else [line]
            for row in " \\\n".join(rows).split("\n"):  # a shell takes such lines as one
                self._lines.append(Text(" " * margin + self._printable(row), "cyan"))

    def gap(self) -> None:
        """An empty line, one even where two are asked for."""
        if self._lines and self._lines[-1] and not self.room.is_tight:
            self._lines.append("")

    @property
    def height(self) -> int:
        """The lines of all that was added."""
        return len(self._lines) - (bool(self._lines) and not self._lines[-1])

    def text(self) -> str:
        """Everything that was added."""
        lines = (line if isinstance(line, str) else self._ansi(line, soft_wrap=True, end="") for line in self._lines)
        return "\n".join(lines).replace(_BOUND, " ").rstrip("\n") + "\n"

    def _ansi(self, what: Text | Padding, **how: Any) -> str:  # noqa: ANN401 - what `Console.print` takes
        with self._console.capture() as capture:
            self._console.print(what, **how)
        return capture.get()

    def _printable(self, text: str) -> str:
        text = shortened(plain(text).replace("\n", " "), _LONGEST)
        if not self._unicode:
            text = text.translate(_ASCII).encode("ascii", "replace").decode()
        return UNIT_BLANK.sub(_BOUND, text)
