"""Python imports this at start-up where `advisor record` put its folder on PYTHONPATH."""

import os
import sys


def _hook() -> None:
    try:
        from advisor_inside.start import start  # type: ignore[import-not-found]

        start(os.path.dirname(os.path.abspath(__file__)))
    except Exception:  # whatever it is, the program runs
        pass


def _chain() -> None:
    """Run the sitecustomize that this one hides; what it raises is Python's to report, as ever."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_hook()
_chain()
