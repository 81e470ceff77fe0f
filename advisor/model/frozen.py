"""The base of every value that is written as JSON."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes, without infinities, which JSON lacks; fields of newer versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)
