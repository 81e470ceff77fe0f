"""What goes wrong between us and a code host."""

from advisor.errors import AdvisorError


class HostError(AdvisorError):
    """A code host and we did not come together."""

    exit_code = 5


class Unreachable(HostError):  # noqa: N818 - reads as what it says
    """It does not answer, or asks to come back later than is worth waiting for."""


class Refused(HostError):  # noqa: N818 - the same
    """The token may read and not write, as that of a pull request from a fork."""


class Gone(HostError):  # noqa: N818 - the same
    """What was asked for is not there, or not for this token to see."""
