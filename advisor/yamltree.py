"""YAML as plain values, and the line of each of them: in one pass, which PyYAML's own constructors take three for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import yaml

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the document down to a value."""

_MOST_NESTED: Final = 2_000  # levels; libyaml's stack overflows far above
_MOST_VALUES: Final = 100_000  # more are aliases of aliases
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_TAGS: Final = {
    yaml.ScalarNode: _TEXT,
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}
_RESOLVER: Final = yaml.resolver.Resolver()
_CONSTRUCTOR: Final = yaml.constructor.SafeConstructor()
_MEANT: Final = frozenset(yaml.resolver.Resolver.yaml_implicit_resolvers)
"""First characters of plain words that may mean something else than themselves; '' is null."""


class Tree:
    """One document.

    Raises:
        yaml.MarkedYAMLError: the text is not YAML.
    """

    def __init__(self, text: str) -> None:
        loader = _loader(text)
        self._values = 0
        self.root: yaml.Node | None = loader.get_single_node()

    def values(self) -> Any:  # noqa: ANN401 - whatever the document holds
        """The document as dicts, lists and scalars; None where it is empty.

        Raises:
            yaml.MarkedYAMLError: a key stands in a mapping twice, or is no scalar.
        """
        return None if self.root is None else self._value(self.root)

    def lines(self) -> dict[Place, int]:
        """Line of every value, counted from 1; of one with a key, the line of the key."""
        return {} if self.root is None else dict(_lines(self.root, (), self.root.start_mark.line))

    def _value(self, node: yaml.Node) -> Any:  # noqa: ANN401 - as above
        self._values += 1
        if self._values > _MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"says more than {_MOST_VALUES:,} values")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if node.tag != _TAGS[type(node)]:
            raise yaml.MarkedYAMLError(
                problem=f"could not determine a constructor for {node.tag}", problem_mark=node.start_mark
            )
        return self._mapping(node) if isinstance(node, yaml.MappingNode) else [self._value(n) for n in node.value]

    def _mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        if merged := [key for key, _ in node.value if key.value == "<<" and not key.style]:
            for key in merged:
                key.tag = _MERGE
            _CONSTRUCTOR.flatten_mapping(node)  # own keys last: they replace those merged in
        else:
            _distinct(node)
        return {self._value(key): self._value(value) for key, value in node.value}


def _scalar(node: yaml.ScalarNode) -> Any:  # noqa: ANN401 - as above
    """Only a plain word that begins like one can be a number, a truth value, a date or nothing."""
    if node.tag == _TEXT and not node.style and node.value[:1] in _MEANT:
        node.tag = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
    return node.value if node.tag == _TEXT else _CONSTRUCTOR.construct_object(node)


def _loader(text: str) -> Any:  # noqa: ANN401 - libyaml's and PyYAML's loaders share no base
    """Libyaml's loader, which is ten times faster, unless the text may nest so deep that its stack overflows."""
    sure = sum(map(text.count, "[{:-?")) < _MOST_NESTED  # one of these opens each level
    return (_Loader if sure else yaml.BaseLoader)(text)


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]  # PyYAML may lack libyaml
    """Without the search for a word's meaning: `_scalar` looks at the few words that may have one."""

    def resolve(self, kind: type[yaml.Node], _value: str, _implicit: object) -> str:
        return _TAGS[kind]

    def descend_resolver(self, *_: object) -> None:
        pass

    def ascend_resolver(self) -> None:
        pass


def _distinct(node: yaml.MappingNode) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="found unhashable key", problem_mark=key.start_mark)
        if key.value in keys:
            raise yaml.MarkedYAMLError(problem=f"{key.value}: this key stands here twice", problem_mark=key.start_mark)
        keys.add(key.value)


def _lines(node: yaml.Node, at: Place, line: int) -> Iterator[tuple[Place, int]]:
    yield at, line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*at, index), item.start_mark.line)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _lines(value, (*at, key.value), key.start_mark.line)
