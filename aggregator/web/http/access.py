"""Access control: the scopes of callers, by their bearer tokens."""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Collection, Mapping, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.config.settings import Access
from aggregator.web.http.middleware import on_start
from aggregator.web.http.tokens import hash_token
from producers.gateway.problems import Problem

BEARER_REALM = 'Bearer realm="dither"'
ACCESS_REMEDY = (
    "`dither tokens new NAME --scope {}` makes a token; send it as Authorization: Bearer <token>"
)
DEFAULT_SCOPES = ("admin",)
"""The scopes of a route under /v1/ that declares none."""
QUESTION_SCOPES = ("read",)
"""The scopes of the routes for readers. Pages of other sites may not use these routes; they may use
other routes, because devices do.
"""


@dataclasses.dataclass(frozen=True)
class Caller:
    """The caller of a request: the token's name ("" without a token) and the granted scopes."""

    name: str
    scopes: frozenset[str]


class Guard:
    """Identifies callers by their tokens, and checks their scopes."""

    def __init__(self, access: Access) -> None:
        self._anonymous = frozenset(access.anonymous)
        self._tokens = []
        for name, line in access.tokens.items():
            digest, *scopes = line.split()
            self._tokens.append((name, digest, frozenset(scopes) | self._anonymous))

    def caller(self, headers: Headers) -> Caller | None:
        """Return the caller of a request; None if its token is unknown."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return Caller("", self._anonymous)
        presented, known_caller = hash_token(token.strip()), None
        for name, digest, scopes in self._tokens:  # all tokens, so that the time is constant
            if hmac.compare_digest(presented, digest):
                known_caller = Caller(name, scopes)
        return known_caller

    def refusal(
        self, headers: Headers, scopes: Sequence[str]
    ) -> tuple[Caller | None, Problem | None]:
        """Return the caller and, if it has none of the scopes, the problem to answer with."""
        caller, status, error = self.caller(headers), 401, ""
        if caller is not None and caller.scopes.intersection(scopes):
            return caller, None
        needed_scopes = " or ".join(scopes)
        if caller is None:
            error, detail = ', error="invalid_token"', "this server does not know the token"
        elif not caller.name:
            detail = f"a token with scope {needed_scopes} is needed"
        else:
            status, error = 403, f', error="insufficient_scope", scope="{scopes[0]}"'
            granted_scopes = ", ".join(sorted(caller.scopes))
            detail = f"token {caller.name!r} has scopes {granted_scopes}: {needed_scopes} is needed"
        challenge = {"WWW-Authenticate": BEARER_REALM + error}
        return caller, Problem(status, detail, ACCESS_REMEDY.format(scopes[0]), headers=challenge)


class AccessControl:
    """Middleware: lets a request pass only if its caller has a scope of the route.

    Parameters
    ----------
    app : ASGI application
        The ASGI application behind this middleware.
    guard : Guard
        Identifies callers, and checks their scopes.
    routes : sequence of BaseRoute
        All routes in order.
    scopes : mapping of (method, path) to tuple of str
        The scopes of each route, each of which suffices; the route is public if there are none. A
        route that is not listed is public unless it is under /v1/.
    origins : collection of str
        Origins of other sites whose pages may ask questions.
    """

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        routes: Sequence[BaseRoute],
        scopes: Mapping[tuple[str, str], Sequence[str]],
        origins: Collection[str] = (),
    ) -> None:
        self.app, self.guard, self.routes, self.scopes = app, guard, routes, scopes
        self.origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and (needed_scopes := self._needed_scopes(scope)):
            headers = Headers(scope=scope)
            caller, problem = self.guard.refusal(headers, needed_scopes)
            if problem is None and needed_scopes == QUESTION_SCOPES:
                problem = self._cross_site(headers)
            if problem is not None:
                await problem.response(scope["path"])(scope, receive, send)
                return
            scope["dither.caller"] = caller
            if caller is not None:
                added = {"Dither-Scopes": " ".join(sorted(caller.scopes))}
                send = on_start(send, lambda message: MutableHeaders(scope=message).update(added))
        await self.app(scope, receive, send)

    def _cross_site(self, headers: Headers) -> Problem | None:
        """Return a problem if a browser asks a question for another site's page; else None."""
        origin = headers.get("origin", "")
        if headers.get("sec-fetch-site") != "cross-site" or {origin, "*"} & {*self.origins}:
            return None
        return Problem(
            403,
            f"Sec-Fetch-Site: cross-site, origin {origin!r}: expected a page of this server's site",
            "name the origin in [serve] cors_origins, or open the address by itself",
        )

    def _needed_scopes(self, scope: Scope) -> Sequence[str]:
        for route in self.routes:
            if route.matches(scope)[0] is Match.FULL:
                method = "GET" if scope["method"] == "HEAD" else scope["method"]
                path = getattr(route, "path", "")
                closed = DEFAULT_SCOPES if path.startswith("/v1/") else ()
                return self.scopes.get((method, path), closed)
        return ()
