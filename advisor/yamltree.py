"""The one way to YAML: a file as plain values, in one pass over libyaml's events, and bounded in whatever it says.

No tags, one document, words of YAML 1.1. What goes wrong has a line and a column and never the line's text: the file
may be another than its reader thinks, and hold a key.
"""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from yaml import AliasEvent, MappingEndEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent, StreamEndEvent

Place: TypeAlias = tuple[str | int, ...]  # keys and indices from the document down to a value
_Inward: TypeAlias = "tuple[_Inward, object] | None"  # the same as a chain, whose links values that lie together share
MOST_BYTES: Final = 1 << 20  # of a file of settings, rules or labels
_MOST_NESTED: Final = 50
_MOST_TEXT: Final = 1 << 21  # characters, aliases followed; only these make more of a file than it has
_OF_VALUE: Final = 20  # characters that a value counts for beside its own: at most 100,000 values
_LONGEST_NUMBER: Final = 100
_LARGEST_KEY: Final = 1 << 60  # larger integers have the hashes of others: many such keys would take quadratic time
_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # PyYAML may lack libyaml, which is ten times faster
_RESOLVER: Final = yaml.resolver.Resolver()
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_MEANT: Final = frozenset(yaml.resolver.Resolver.yaml_implicit_resolvers)
"""First characters of plain words that may mean something else than themselves; '' is null."""
_MEANINGS: Final[dict[str, Callable[..., object]]] = {
    f"tag:yaml.org,2002:{kind}": _CONSTRUCTOR.yaml_constructors[f"tag:yaml.org,2002:{kind}"]
    for kind in ("null", "bool", "int", "float", "timestamp")
}


class FormError(ValueError):
    """A file that cannot be used as it is: the `problem`, without the file's text, and the `spot`, line and column."""

    def __init__(self, problem: str, spot: tuple[int, ...] = ()) -> None:
        super().__init__(problem)
        self.problem, self.spot = problem, spot

    def of(self, path: str | Path) -> str:
        """The error as one line that starts with `path:line:column: `."""
        return ":".join([str(path), *map(str, self.spot), f" {self.problem}"])


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path below a folder is, or goes through, a link that leads out of that folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def content_of(path: Path) -> bytes:
    """The first bytes of a regular file, one more than there may be; a FormError where there are none."""
    try:
        # a pipe is opened at once too, which would wait for a writer
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_BYTES + 1) if is_regular else b""
    except (OSError, ValueError) as error:  # a name may hold what no file's does
        raise FormError(f"cannot be read: {getattr(error, 'strerror', None) or 'no name of a file'}") from None
    if not is_regular:
        raise FormError("not a regular file; save its content as one")
    return content


def decoded(content: bytes) -> str:
    """The text of a file; a FormError where it is too large, or not in UTF-8."""
    if len(content) > MOST_BYTES:
        raise FormError(f"larger than {MOST_BYTES >> 20} MiB, so neither settings, rule nor labels; check the path")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormError("not UTF-8; save it as UTF-8", _spot(content.decode("latin-1"), error.start)) from None


class Yaml:
    """What a text says: dicts, lists and scalars (`value`), one object for all values behind one anchor; None: nothing.

    A FormError where it is not YAML, holds a tag or a key twice, or says too much.
    """

    def __init__(self, text: str) -> None:
        self._size = 0
        self._anchors: dict[str, tuple[object, int]] = {}
        self._lines: list[tuple[_Inward, int]] = []
        try:
            self._next: Callable[[], Any] = _LOADER(text).get_event
            self.value = self._document()
        except yaml.MarkedYAMLError as error:
            problem = re.sub(r"""\s*(?:b?'.*'|b?".*")""", "", error.problem or "the text ends early", flags=re.DOTALL)
            raise _wrong(f"not valid YAML: {problem}", error.problem_mark or error.context_mark) from None
        except yaml.reader.ReaderError as error:
            raise FormError("not valid YAML: a control character", _spot(text, error.position)) from None

    def line(self, at: Place) -> int:
        """The line of the value there, or of what is known next to it; with a key, the line of the key."""
        lines = {_place(inward): line + 1 for inward, line in self._lines}
        return next((lines[at[:end]] for end in range(len(at), -1, -1) if at[:end] in lines), 1)

    def _document(self) -> Any:  # noqa: ANN401 - whatever the document holds
        self._next()
        if isinstance(self._next(), StreamEndEvent):
            return None
        value = self._node(event := self._next(), None, event.start_mark, 0)
        self._next()
        if not isinstance(more := self._next(), StreamEndEvent):
            raise _wrong("more than one document; keep the first", more.start_mark)
        return value

    def _node(self, event: Any, inward: _Inward, mark: Any, depth: int) -> Any:  # noqa: ANN401 - as above
        if isinstance(event, AliasEvent):
            if event.anchor not in self._anchors:
                raise _wrong("an alias (*) of nothing that stands before it", event.start_mark)
            value, size = self._anchors[event.anchor]
            self._count(size, event)
            return value
        if event.tag is not None:
            raise _wrong("a tag (!) is not allowed; remove it", event.start_mark)
        if depth > _MOST_NESTED:
            raise _wrong(f"nested more than {_MOST_NESTED} levels deep; a few are enough", event.start_mark)
        before = self._size
        if mark:
            self._lines.append((inward, mark.line))
        if isinstance(event, ScalarEvent):
            self._count(_OF_VALUE + len(event.value), event)
            value = event.value if event.style or event.value[:1] not in _MEANT else _meaning(event)
        else:
            self._count(_OF_VALUE, event)
            of_kind = self._sequence if isinstance(event, SequenceStartEvent) else self._mapping
            value = of_kind(inward, depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = value, self._size - before
        return value

    def _count(self, size: int, event: Any) -> None:  # noqa: ANN401 - as above
        self._size += size
        if self._size > _MOST_TEXT:
            raise _wrong("too many values, its aliases (*) followed; write fewer", event.start_mark)

    def _sequence(self, inward: _Inward, depth: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            values.append(self._node(event, (inward, len(values)), event.start_mark, depth))
        return values

    def _mapping(self, inward: _Inward, depth: int) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            if isinstance(event, ScalarEvent) and event.value == "<<" and not event.style:
                for more, value in _merged(self._node(self._next(), inward, None, depth), event).items():
                    merged.setdefault(more, value)
                continue
            key = self._node(event, None, None, depth)
            if not isinstance(key, str) and (why := _unfit(key)):
                raise _wrong(why, event.start_mark)
            if key in own:
                raise _wrong("this key stands here twice; remove one", event.start_mark)
            own[key] = self._node(self._next(), (inward, key), event.start_mark, depth)
        return merged | own


def _unfit(key: object) -> str:
    """Why this can be no key; empty where it can."""
    if isinstance(key, dict | list):
        return "a key must be a word"
    is_large = isinstance(key, int) and abs(key) > _LARGEST_KEY
    return "a key that is too large a number; quote it if it is text" if is_large else ""


def _merged(value: object, event: Any) -> dict[Any, Any]:  # noqa: ANN401 - as above
    """What `<<` brings along: of several mappings the first counts."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in mappings):
        raise _wrong("<< needs a mapping", event.start_mark)
    return {key: of_key for each in reversed(mappings) for key, of_key in each.items()}


def _meaning(event: Any) -> Any:  # noqa: ANN401 - as above
    """Of a plain word that begins like one: a number, a truth value, a date or nothing."""
    text = event.value
    meaning = _MEANINGS.get(tag := _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]
    if meaning is None:
        return text
    if len(text) > _LONGEST_NUMBER:
        raise _wrong(f"a number of more than {_LONGEST_NUMBER} characters; quote it if it is text", event.start_mark)
    try:
        return meaning(_CONSTRUCTOR, yaml.ScalarNode(tag, text))
    except (ArithmeticError, ValueError):
        raise _wrong("no such number or date; quote it if it is text", event.start_mark) from None


def _wrong(problem: str, mark: Any) -> FormError:  # noqa: ANN401 - libyaml's and PyYAML's marks share no base
    return FormError(problem, (mark.line + 1, mark.column + 1) if mark else (1, 1))


def _spot(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _place(inward: _Inward) -> Place:
    keys: list[Any] = []
    while inward:
        inward, key = inward
        keys.append(key)
    return tuple(reversed(keys))
