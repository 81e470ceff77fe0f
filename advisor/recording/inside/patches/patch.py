"""What every patch has: arguments, an effect on training, a proof that it was applied, reasons why it was not."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from typing import Any, Callable, Dict, List, Tuple

from ..wrapping import wrap  # noqa: TID252 - programs have no package `advisor`

# JSON Schemas of arguments by name: `type`, `minimum`, `maximum`, `enum`, `default` and `description`
Schema = Dict[str, Dict[str, Any]]
_TYPES: Dict[str, Tuple[type, ...]] = {"integer": (int,), "boolean": (bool,), "string": (str,)}
_WORDS = {"integer": "a whole number", "boolean": "true or false", "string": "text"}


class Patch:
    """A change of a program that needs no change of its code.

    A patch refuses where it does not fit, and the program runs as it is. What it cannot prove counts as not applied.
    """

    name = ""  # by which rules and the command line know it
    framework = ""  # whose modules it hooks; several names with spaces between them
    absent = ""  # why it changed nothing where the program makes none of what it changes; empty where it tells itself
    toggles: Tuple[str, ...] = ()  # kinds of devices on which two steps may differ in it; else it needs another process
    numerics = "same"  # what it does to training: `same` numbers, `rounding` alone, or `changes`
    arguments: Schema = {}  # JSON Schemas by name

    def __init__(self, values: Dict[str, Any]) -> None:
        self.values = values
        self.on = True
        self.hits = 0  # objects or calls that it changed
        self.refusals: Dict[str, Dict[str, Any]] = {}  # codes of model/missing.yaml (`patch_...`), with their facts

    @classmethod
    def checked(cls, values: Dict[str, Any]) -> Dict[str, Any]:
        """The arguments in their types, with defaults; of one that does not fit, a ValueError says what would."""
        for name in values:
            if name not in cls.arguments:
                known = ", ".join(cls.arguments) or "none"
                raise ValueError("%s has no argument %s; it has: %s" % (cls.name, name, known))
        checked = {name: read(name, cls.arguments[name], value) for name, value in values.items()}
        defaults = {name: schema["default"] for name, schema in cls.arguments.items() if "default" in schema}
        checked = dict(defaults, **checked)
        if cls.arguments and not checked:
            raise ValueError("%s needs at least one of: %s" % (cls.name, ", ".join(cls.arguments)))
        return checked

    def variables(self) -> Dict[str, str]:
        """Environment variables that it needs from the start of the program."""
        return {}

    def hook(self, module: Any, census: Any) -> None:
        """Hook the framework, which was just imported; `census` knows what the program makes with it."""

    def remake(self, kind: Any, changes: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
        """Have each object of a class made with other arguments: `changes` chooses them, given those of the program."""
        signature = inspect.signature(kind.__init__)
        defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}

        def init(original: Any, /, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            others = changes(dict(defaults, **bound.arguments))
            if self.on and others:
                bound.arguments.update(others)
                self.hits += 1
            original(*bound.args, **bound.kwargs)

        wrap(kind, "__init__", init)

    def faster(self, compiled: Any, own: Any, args: Any, kwargs: Any) -> Any:
        """A call of what was compiled; of the program's own from where that fails on: then nothing was applied."""
        if not self.refusals:
            try:
                return compiled(*args, **kwargs)
            except Exception as error:
                self.hits = 0
                self.refuse("compile_failed", kind=type(error).__name__)
        return own(*args, **kwargs)

    def begin(self) -> None:
        """The first steps are over: whatever it was to change exists by now."""
        if self.absent and not self.hits and not self.refusals:
            self.refuse(self.absent)

    def switch(self, on: bool) -> None:
        """From the next step on, it is on or off."""
        self.on = on

    def proof(self) -> Dict[str, Any]:
        """Numbers that show what it did."""
        return {}

    def refuse(self, code: str, **facts: Any) -> bool:
        """Note why something was left as it is: it does not fit."""
        self.refusals.setdefault(code, facts)
        return False

    def account(self) -> Dict[str, Any]:
        """What the launcher learns of it."""
        refusals: List[Any] = [[code, facts] for code, facts in self.refusals.items()]
        return {"name": self.name, "hits": self.hits, "refusals": refusals, "proof": self.proof()}


def read(name: str, schema: Dict[str, Any], value: Any) -> Any:
    """A value in the type of its schema, read from text where need be; a ValueError where it does not fit."""
    kind = schema["type"]
    if isinstance(value, str) and kind != "string":
        with suppress(ValueError):
            value = json.loads(value.strip().lower())
    if isinstance(value, float) and kind == "integer" and value.is_integer():
        value = int(value)
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        raise ValueError("%s must be %s" % (name, _WORDS[kind]))
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise ValueError("%s must be from %s to %s" % (name, schema["minimum"], schema["maximum"]))
    if value not in schema.get("enum", [value]):
        raise ValueError("%s must be one of %s" % (name, ", ".join(schema["enum"])))
    return value
