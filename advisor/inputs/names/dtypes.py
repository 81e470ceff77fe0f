"""How many bytes an element of each of PyTorch's types has, by `dtypes.yaml`."""

from typing import Final

from advisor.vocabulary.limits import table

DTYPE_BYTES: Final[dict[str, int]] = table(__file__, "dtypes")
