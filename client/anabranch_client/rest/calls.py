"""REST calls as data, from which the methods of both clients are made.

A :class:`RestCall` holds a request and the parser of its answer. The clients differ only in
sending, so a method is written once: it returns a :class:`RestCall`, which :class:`method` sends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from anabranch_client.errors import ApiError
from anabranch_client.rest.notebook import ROWS, Listing

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RestCall(Generic[T]):
    """A request to the REST API, and the parser of its answer.

    Attributes:
        read: converts the answer's JSON document (its bytes, if ``binary``) to a value.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    body: JsonObject | None = None
    params: Mapping[str, str | Sequence[str]] | None = None
    headers: Mapping[str, str] | None = None
    binary: bool = False

    def request(self, client: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The HTTP request to send with ``client``."""
        return client.build_request(
            self.method, self.path, json=self.body, params=self.params, headers=self.headers
        )

    def answer(self, response: httpx.Response) -> T:
        """Parse the answer in ``response``.

        Raises:
            ApiError: the service refused the request, or its answer is unreadable.
        """
        if not response.is_success:
            raise ApiError(response.status_code, _problem_document(response))
        try:
            if self.binary:
                return self.read(response.content)
            return self.read(response.json() if response.content else None)
        except (ValueError, KeyError, TypeError) as cause:
            if isinstance(cause, ValidationError):
                first = cause.errors()[0]
                reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            else:
                reason = str(cause)
            raise ApiError(
                response.status_code,
                {
                    "code": "unreadable-answer",
                    "detail": f"{self.method} {self.path} gave an unexpected answer: {reason}",
                    "remedy": "is this address an anabranch service of the same version?",
                },
            ) from cause


def _problem_document(response: httpx.Response) -> JsonObject:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and ("detail" in document or "title" in document):
        return document
    return {
        "status": response.status_code,
        "detail": f"{response.request.url} answered {response.status_code} "
        f"{response.reason_phrase}",
        "remedy": "is this the address of an anabranch service?",
    }


def has_certificate(url: str) -> bool:
    """Whether the server at ``url`` has a certificate to verify (``https``).

    Loading the certificates of authorities takes 20 ms, so it is skipped for ``http`` URLs.
    """
    return not url.startswith("http:")


def unreachable(url: str, cause: httpx.HTTPError | httpx.InvalidURL) -> ApiError:
    """The error for a service that can't be reached at ``url``."""
    return ApiError(
        0,
        {
            "code": "unreachable",
            "detail": f"the service at {url} does not answer: {str(cause) or type(cause).__name__}",
            "remedy": "start one with 'anabranch up', or set --url or ANABRANCH_URL",
        },
    )


class Blocking:
    """Base of the client whose methods return answers."""

    def send(self, call: RestCall[T]) -> T:
        """Send a REST call, and return its parsed answer."""
        raise NotImplementedError


class Asynchronous:
    """Base of the client whose methods are awaited."""

    async def send(self, call: RestCall[T]) -> T:
        """Send a REST call, and return its parsed answer."""
        raise NotImplementedError


class method(Generic[P, T]):
    """Decorator: turns a function that returns a :class:`RestCall` into a method that sends it."""

    def __init__(self, describe: Callable[Concatenate[Any, P], RestCall[T]]) -> None:
        self._describe = describe

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], RestCall[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._describe

        def sent(*args: P.args, **options: P.kwargs) -> Any:
            return client.send(self._describe(client, *args, **options))

        return update_wrapper(sent, self._describe)


class Page(Protocol[T_co]):
    """A page of a list, with the cursor of the next page."""

    @property
    def items(self) -> Sequence[T_co]:
        """The page's entries."""

    @property
    def next_cursor(self) -> str | None:
        """Cursor of the next page; None on the last page."""


class pages(Generic[P, T]):
    """Decorator: a method of both clients that iterates over a list, fetching its pages lazily."""

    def __init__(
        self, describe: Callable[Concatenate[Any, Mapping[str, str], P], RestCall[Page[T]]]
    ) -> None:
        self._describe = describe

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: Asynchronous, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., RestCall[Page[T]]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._describe
        whole = _all_awaited if isinstance(client, Asynchronous) else Pages

        def read(*args: P.args, **options: P.kwargs) -> Any:
            def describe(after: Mapping[str, str]) -> RestCall[Page[T]]:
                return self._describe(client, after, *args, **options)

            return whole(client, describe)

        return update_wrapper(read, self._describe)


class Pages(Iterator[T]):
    """Entries of a list, fetched page by page; notebooks show the first ones."""

    def __init__(
        self, client: Blocking, describe: Callable[[Mapping[str, str]], RestCall[Page[T]]]
    ) -> None:
        self._begin: Callable[[], Iterator[T]] = partial(_fetched, client, describe)
        self._entries = self._begin()

    def __next__(self) -> T:
        return next(self._entries)

    def _repr_html_(self) -> str:
        return Listing(islice(self._begin(), ROWS))._repr_html_()


def _fetched(
    client: Blocking, describe: Callable[[Mapping[str, str]], RestCall[Page[T]]]
) -> Iterator[T]:
    after: dict[str, str] | None = {}
    while after is not None:
        page = client.send(describe(after))
        yield from page.items
        after = _after(page)


async def _all_awaited(
    client: Asynchronous, describe: Callable[[Mapping[str, str]], RestCall[Page[T]]]
) -> AsyncIterator[T]:
    after: dict[str, str] | None = {}
    while after is not None:
        page = await client.send(describe(after))
        for item in page.items:
            yield item
        after = _after(page)


def _after(page: Page[Any]) -> dict[str, str] | None:
    return None if page.next_cursor is None else {"cursor": page.next_cursor}


def once(idempotency_key: str | None) -> dict[str, str] | None:
    """Return the headers by which the service carries out a repeated request only once."""
    return None if idempotency_key is None else {"Idempotency-Key": idempotency_key}


def given(**values: Any) -> JsonObject:
    """The arguments of a client's method that are not None, as a JSON object."""
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def path(collection: str, name: str, *parts: str) -> str:
    """The path of one resource, or of a part of it."""
    return "/".join(("/v1", collection, quote(name, safe=""), *parts))
