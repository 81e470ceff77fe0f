"""What rules and metrics were called in earlier versions: users' files, stored runs and saved reports still say so.

An earlier name is read as the name of now wherever one comes in from outside. A name stays here for good.
"""

import re
from collections import defaultdict
from typing import Final

RULES: Final[dict[str, str]] = {
    "logging-overhead": "host-line",
    "saving-overhead": "host-line",
    "one-time-startup": "one-time-work",
}
