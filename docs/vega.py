"""Writes reports/templates/vega.js: Vega, Vega-Lite and Vega-Embed as one script, as vl-convert bundles them.

`python docs/vega.py` after an update of vl-convert; its version stands in the first line.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import vl_convert

SCRIPT = Path(__file__).parents[1] / "reports" / "templates" / "vega.js"
HEAD = "// Vega, Vega-Lite and Vega-Embed (BSD-3-Clause), bundled by vl-convert-python"


def bundle() -> str:
    """The script, to stand in a page: without the one thing that could end its element early."""
    script: str = vl_convert.javascript_bundle(None)  # type: ignore[arg-type] # typed as needing a snippet
    return f"{HEAD} {version('vl-convert-python')}\n{script}".replace("</script", "<\\/script")


if __name__ == "__main__":
    SCRIPT.write_text(bundle(), "utf-8")
