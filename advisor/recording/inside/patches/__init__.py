"""The closed registry of patches, standard library only. A rule names one and brings no code."""

from __future__ import annotations

from typing import Any, Dict, Type

from .data import Loader, RepeatedInput, TfData
from .functions import Compiled, Graph, Seldom
from .modules import Autocast, ChannelsLast, Checkpoints, Compile, Ddp
from .optimizer import Optimizer
from .patch import Patch as Patch
from .switches import DebugAids, Environment, Garbage

_ALL = (
    *(Loader, Optimizer, Compile, Autocast, ChannelsLast, Checkpoints, Ddp, DebugAids),
    *(Environment, Garbage, Graph, Compiled, Seldom, RepeatedInput, TfData),
)

PATCHES: Dict[str, Type[Patch]] = {patch.name: patch for patch in _ALL}  # every patch by its name


def check_use(name: str, values: Dict[str, Any]) -> None:
    """A ValueError unless a rule may name this patch with these values; a template has a value for each job."""
    if name not in PATCHES:
        raise ValueError("no patch is called %s; there are: %s" % (name, ", ".join(PATCHES)))
    schema = PATCHES[name].arguments
    examples = {
        key: schema[key].get("minimum", "1") if "{{" in str(value) and key in schema else value
        for key, value in values.items()
    }
    PATCHES[name].checked(examples)
