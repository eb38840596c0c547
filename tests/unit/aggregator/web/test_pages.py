"""The pages and their files: complete, safe to open, and not sent twice."""

import importlib.resources
import re
from pathlib import Path

from aggregator.web import pages
from tests.support.reports.counted import Client
from tests.support.rows import row

STATIC = importlib.resources.files("aggregator").joinpath("web", "static")


def files(*suffixes: str) -> list[str]:
    folder = Path(str(STATIC))
    found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in found if name.endswith(suffixes))


def test_everything_has_its_type_and_headers_that_keep_the_browser_here(client: Client) -> None:
    for path, content_type in {
        "/": "text/html",
        "/try": "text/html",
        "/static/dashboard.js": "text/javascript",
        "/static/dither.js": "text/javascript",
        "/static/definition.js": "text/javascript",
        "/static/style.css": "text/css",
        "/static/logo.svg": "image/svg+xml",
        "/static/vendor/inter-latin-wght-normal.woff2": "font/woff2",
    }.items():
        with row(path):
            response = client.get(path)
            assert response.status_code == 200
            assert response.headers["content-type"].split(";")[0] == content_type
            told = response.headers["content-security-policy"]
            policy = dict(part.split(" ", 1) for part in told.split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            nowhere = {policy[name] for name in ("frame-ancestors", "base-uri", "form-action")}
            assert nowhere == {"'none'"}
            assert "unsafe" not in told
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "no-referrer"


def test_a_file_that_has_not_changed_is_not_sent_again(client: Client) -> None:
    first = client.get("/static/style.css")
    assert first.headers["cache-control"] == "no-cache"
    known = f'"other", W/{first.headers["etag"]}'
    again = client.get("/static/style.css", headers={"If-None-Match": known})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get("/static/style.css", headers={"If-None-Match": '"other"'}).status_code == 200


def test_what_is_no_file_is_a_problem_that_says_so(client: Client) -> None:
    for path in ("nothing.js", "../pages.py", "%2e%2e/pages.py", "vendor", ""):
        with row(path):
            response = client.get(f"/static/{path}")
            assert response.status_code == 404
            assert response.headers["content-type"] == "application/problem+json"


def test_a_page_has_nothing_inline_and_all_that_it_names_is_here(client: Client) -> None:
    for name in files(".html"):
        with row(name):
            page = STATIC.joinpath(name).read_text(encoding="utf-8")
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)
            named = re.findall(r"""(?:src|href)="([^"#]+)""", page)
            assert named
            for address in named:
                assert address.startswith("/"), f"{address} is elsewhere"
                if not address.startswith("/v1/"):
                    assert client.get(address).status_code == 200, address


def test_what_a_module_imports_is_here_and_no_text_becomes_markup(client: Client) -> None:
    to_markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\("
    for name in files(".js", ".css"):
        with row(name):
            text = STATIC.joinpath(name).read_text(encoding="utf-8")
            for module in re.findall(r"""^import [^"]*"\./([^"]+)";$""", text, re.MULTILINE):
                assert client.get(f"/static/{module}").status_code == 200, module
            for address in re.findall(r"url\(\"([^\"]+)\"\)", text):
                assert client.get(address).status_code == 200, address
            assert name.startswith("vendor/") or not re.search(to_markup, text)


def test_a_page_names_the_modules_of_its_modules_so_that_all_load_at_once(client: Client) -> None:
    links = client.get("/").headers["link"].split(", ")
    named = re.findall(r"</static/(\w+\.js)>; rel=modulepreload", ", ".join(links))
    assert {"dashboard.js", "shapes.js", "two_way.js"} <= set(named) <= set(files(".js"))
    assert len(named) == len(links) == len(set(named))


def test_no_module_of_the_randomizers_hides_a_file_of_the_pages() -> None:
    assert not set(pages.RANDOMIZER_FILES) & set(files(""))
