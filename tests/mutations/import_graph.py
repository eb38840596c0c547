"""Which files of tests import a module, directly or through others: no other test can notice.

The graph is read from the code, without running any of it. Names of modules in strings count as
imports, and so does the beginning of one in an f-string: they are imported when they are used.
Every module of tests imports the files `conftest.py` of its folder and of those above it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDERS = (
    *("estimators", "producers", "aggregator", "dither", "reproduction"),
    *("benchmarks", "deploy", "tests"),
)
EXAMPLE = ">>> "


class ImportGraph:
    """The imports of all modules of a repository.

    Parameters
    ----------
    root : Path
        Of the repository.
    """

    def __init__(self, root: Path) -> None:
        files = [file for folder in FOLDERS for file in (root / folder).rglob("*.py")]
        self._paths = {_module_name(file.relative_to(root)): file for file in files}
        self._root = root
        self._importers: defaultdict[str, set[str]] = defaultdict(set)
        for module in self._paths:
            for imported in self._imported(module):
                self._importers[imported].add(module)

    def tests(self, path: str) -> dict[str, int]:
        """Return the files of tests that import a file, with the length of the chain of imports.

        Parameters
        ----------
        path : str
            Of a module, relative to the root of the repository.
        """
        module = _module_name(Path(path))
        distances, frontier, distance = {module: 0}, {module}, 0
        while frontier:
            distance += 1
            importers = {name for imported in frontier for name in self._importers[imported]}
            frontier = importers - distances.keys()
            distances |= dict.fromkeys(frontier, distance)
        files = {self._paths[name]: length for name, length in distances.items()}
        return {
            str(file.relative_to(self._root)): length
            for file, length in files.items()
            if file.name.startswith("test_") or EXAMPLE in file.read_text(encoding="utf-8")
        }

    def _imported(self, module: str) -> Iterator[str]:
        folders = self._paths[module].relative_to(self._root).parents
        yield from (_module_name(folder / "conftest.py") for folder in folders)
        for node in ast.walk(ast.parse(self._paths[module].read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names):
                    for alias in names:
                        yield from self._executed(alias.name)
                case ast.ImportFrom(str() as origin, names):
                    for alias in names:
                        yield from self._executed(f"{origin}.{alias.name}")
                case ast.Constant(str() as text) if text in self._paths:
                    yield text
                case ast.JoinedStr([ast.Constant(str() as prefix), *_]) if "." in prefix:
                    yield from (name for name in self._paths if name.startswith(prefix))

    def _executed(self, name: str) -> Iterator[str]:
        """Yield the modules that run if a name is imported: its own and all packages above it."""
        parts = name.split(".")
        packages = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        return (package for package in packages if package in self._paths)


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")
