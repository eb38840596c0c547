"""The pages `/` and `/try`, and their static files, which load nothing from other servers."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.web.http.middleware import PROTECTIVE_HEADERS
from aggregator.web.operations import not_modified
from producers.gateway.problems import Problem

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
    "md": "text/plain; charset=utf-8",
}
PAGE_FILES = {"/": "index.html", "/try": "try.html"}
RANDOMIZERS = importlib.resources.files("producers").joinpath("browser")
RANDOMIZER_FILES = tuple(
    f"{folder}{file.name}"
    for folder in ("", "device/")
    for file in RANDOMIZERS.joinpath(folder).iterdir()
    if file.name.endswith(".js")
)
PAGE_HEADERS = {
    **PROTECTIVE_HEADERS,
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "font-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclasses.dataclass(frozen=True)
class File:
    """A static file, with a hash of its content as the entity tag."""

    content: bytes
    content_type: str
    etag: str

    def response(self, request: Request, links: str = "") -> Response:
        """Return a response with the file; with status 304 if the browser has it.

        `request`: the request; `links`, optional: the header that names what the page needs.
        """
        headers = {**PAGE_HEADERS, "ETag": self.etag, "Cache-Control": "no-cache"}
        headers |= {"Link": links} if links else {}
        current = Response(self.content, headers=headers, media_type=self.content_type)
        return not_modified(request, headers) or current


def routes() -> list[Route]:
    """Return the routes of the pages and of their files under ``/static/``."""
    files = dict(_static_files(importlib.resources.files("aggregator").joinpath("web", "static")))
    files |= {name: _static_file(RANDOMIZERS.joinpath(name)) for name in RANDOMIZER_FILES}

    links = {path: _module_links(files, name) for path, name in PAGE_FILES.items()}

    async def page(request: Request) -> Response:
        path = request.url.path
        return files[PAGE_FILES[path]].response(request, links[path])

    async def static(request: Request) -> Response:
        path = request.path_params["path"]
        if path not in files:
            raise Problem(404, f"there is no file {path!r}", "GET / is the dashboard")
        return files[path].response(request)

    pages = [Route(path, page, include_in_schema=False) for path in PAGE_FILES]
    return [*pages, Route("/static/{path:path}", static, include_in_schema=False)]


def _module_links(files: Mapping[str, File], page: str) -> str:
    """Return a header that lets browsers load all modules of a page at once."""
    modules = re.findall(rb'src="/static/(\w+\.js)" type="module"', files[page].content)
    for name in modules:  # which grows
        imported = re.findall(rb'from "\./(\w+\.js)"', files[name.decode()].content)
        modules += [module for module in dict.fromkeys(imported) if module not in modules]
    return ", ".join(f"</static/{name.decode()}>; rel=modulepreload" for name in modules)


def _static_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, File]]:
    for file in folder.iterdir():
        name = f"{prefix}{file.name}"
        if file.is_dir():
            yield from _static_files(file, f"{name}/")
        else:
            yield name, _static_file(file)


def _static_file(file: Traversable) -> File:
    content = file.read_bytes()
    content_type = CONTENT_TYPES[file.name.rpartition(".")[2]]
    return File(content, content_type, f'"{hashlib.sha256(content).hexdigest()[:24]}"')
