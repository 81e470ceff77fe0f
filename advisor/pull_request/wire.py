"""The way to a code host: to that host alone, and within a number of bytes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter

from advisor.errors import AdvisorError
from advisor.pull_request.errors import HostError, Unreachable
from advisor.text import one_line

_MOST_BYTES: Final = 32 << 20  # a page of a hundred comments of a GitHub is below 7 MB
_BLOCK: Final = 1 << 16
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# What a client raises that reads one thing and was sent another: null, a list, a page of HTML.
_UNLIKE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


for _library in ("gitlab", "urllib3"):
    logging.getLogger(_library).addHandler(logging.NullHandler())  # their warnings: what goes wrong is our error


class _Elsewhere(requests.RequestException):
    """The host points to another one, or to itself over another protocol."""


class _TooLarge(requests.RequestException):
    """The answer has no end."""


class SameHostAdapter(HTTPAdapter):
    """Sends to the origin of `url` alone, so that no redirect and no link to a next page takes the token elsewhere."""

    def __init__(self, url: str, **options: Any) -> None:  # noqa: ANN401 - those of HTTPAdapter
        self._origin = _origin(url)
        super().__init__(**options)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:  # noqa: ANN401 - the same
        """The answer, all of it.

        Raises:
            requests.RequestException: it would come from elsewhere, leads elsewhere, or is too large.
        """
        self._require(str(request.url))
        response = super().send(request, *args, **{**options, "stream": True})
        try:
            if response.status_code in _REDIRECTS and (target := response.headers.get("Location")):
                self._require(urljoin(str(request.url), target))
            response._content = _body(response)  # noqa: SLF001 - as requests fills it in
        except BaseException:
            response.close()
            raise
        return response

    def _require(self, url: str) -> None:
        if _origin(url) != self._origin:
            raise _Elsewhere(
                f"{_address(self._origin)} points to {_address(_origin(url))}, which the token is not meant for;"
                " give that address with --api-url if it is the host's own"
            )


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _address(origin: tuple[str, str, int | None]) -> str:
    return one_line("{}://{}:{}".format(*origin), 200)


def _body(response: requests.Response) -> bytes:
    blocks, size = [], 0
    for block in response.iter_content(_BLOCK):
        blocks.append(block)
        size += len(block)
        if size > _MOST_BYTES:
            raise _TooLarge(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
    return b"".join(blocks)


@contextmanager
def answering(host: str, what: str) -> Iterator[None]:
    """Turns what goes wrong on the way, and an answer that is not one of the host's API, into an error of ours."""
    try:
        yield
    except AdvisorError:
        raise
    except (_Elsewhere, _TooLarge) as error:
        raise HostError(f"{host}, asked {what}: {error}") from None
    except requests.JSONDecodeError:
        raise _unlike(host, what) from None
    except requests.TooManyRedirects:
        raise HostError(f"{host}, asked {what}: it redirects in a circle; check --api-url") from None
    except requests.RequestException as error:
        reason = one_line(str(error), 200)
        raise Unreachable(
            f"{host}, asked {what}: no answer after several tries: {reason}; run this again later"
        ) from None
    except _UNLIKE:
        raise _unlike(host, what) from None


def _unlike(host: str, what: str) -> HostError:
    return HostError(f"{host}, asked {what}: its answer is not one of its API; check --api-url, and proxies on the way")
