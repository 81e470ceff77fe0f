"""Named numbers computed from a Profile's tables. Importing this package registers every metric below it."""

from importlib import import_module
from pkgutil import walk_packages

from advisor.metrics.evaluate import Measurements, Part, conclude, measure, measure_part
from advisor.metrics.metric import METRICS, Metric, dtypes, topics

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = ["METRICS", "Measurements", "Metric", "Part", "conclude", "dtypes", "measure", "measure_part", "topics"]
