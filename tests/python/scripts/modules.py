"""Modules beside a program, and the files beside those. It is started in another folder, where traps lie."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from pathlib import Path

from cases import here, run, task, there

BESIDE = Path(__file__).resolve().parent
FILES = {
    "imported.py": "import chained\nVALUE = 'imported'\ndef call(): return chained.VALUE\n",
    "chained.py": "VALUE = 'chained'\ndef late():\n    import later_still\n    return later_still.VALUE\n",
    "later_still.py": "VALUE = 'later still'\n",
    "lazy.py": "VALUE = 'lazy'\ndef other():\n    from lazy_too import VALUE\n    return VALUE\n",
    "lazy_too.py": "VALUE = 'lazy too'\n",
    "by_name.py": "VALUE = 'by name'\n",
    "in_class.py": "VALUE = 'in a class'\n",
    "real_module_v2.py": "VALUE = __name__\n",
    "real_package_v2/__init__.py": "from . import inner\n",
    "real_package_v2/inner.py": "VALUE = __name__\n",
    "package/__init__.py": "",
    "package/data.csv": "1,2\n",
    "package/deep/__init__.py": "",
    "package/deep/reads.py": (
        "from pathlib import Path\nfrom importlib import resources\n"
        "def beside(): return (Path(__file__).parents[1] / 'data.csv').read_text()\n"
        "def resource(): return (resources.files('package') / 'data.csv').read_text()\n"
        "def sibling():\n    from . import more\n    return more.VALUE\n"
    ),
    "package/deep/more.py": "VALUE = 'relative'\n",
    "space/part/leaf.py": "VALUE = 'namespace'\n",
    "one_file.py": (
        "import os\nfrom pathlib import Path\nTABLE = Path(__file__).parent / 'tables' / 'one.txt'\n"
        "def table(): return TABLE.read_text()\n"
        "def month(name): return (Path(__file__).parent / f'{name}.month').read_text()\n"
        "def months(): return sorted(path.name for path in Path(__file__).parent.glob('*.month'))\n"
        "def beside(): return open(os.path.join(os.path.dirname(__file__), 'beside.txt')).read()\n"
    ),
    "tables/one.txt": "a table",
    "beside.txt": "beside",
    "may.month": "5",
    "june.month": "6",
    "statistics_of_mine.py": "VALUE = 'mine'\n",
    "by_value.py": (
        "import functools, typing\nId = typing.NewType('Id', int)\n@functools.cache\ndef f(x: Id): return x * 2\n"
        "@functools.singledispatch\ndef g(x): return f(x), __name__ in __import__('sys').modules\n"
    ),
    "decorated.py": (
        "import functools, pumice\n@pumice.task(cpu=1, memory='256Mi')\ndef task(x): return helper(x) * 2\n"
        "@functools.cache\ndef helper(x): return x + 1\n"
        "class Model:\n    def __init__(self, n): self.n = n\n"
        "    @pumice.task(cpu=1, memory='256Mi')\n    def go(self, x): return self.n * helper(x)\n"
    ),
}
# In the folder in which the program was started: nothing of it may be taken for what is installed or beside the program.
TRAPS = {
    "cloudpickle/__init__.py": "raise ImportError('the trap of cloudpickle')\n",
    "json.py": "raise ImportError('the trap of json')\n",
    "lazy.py": "VALUE = 'the trap of lazy'\n",
    "in_the_working_folder.txt": "found",
}
LINKS = {
    "linked.py": "real_module_v2.py",
    "linked_package": "real_package_v2",
    "package/linked_inside": "../real_package_v2",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


write(BESIDE, FILES)
write(Path.cwd(), TRAPS)
for name, target in LINKS.items():
    if not (BESIDE / name).is_symlink():
        (BESIDE / name).symlink_to(target)
importlib.invalidate_caches()

import by_value  # noqa: E402
import cloudpickle  # noqa: E402
import decorated  # noqa: E402
import imported  # noqa: E402
import linked  # noqa: E402
import linked_package  # noqa: E402
import one_file  # noqa: E402
import package.deep.reads  # noqa: E402
import space.part.leaf  # noqa: E402

there("a module beside", ("imported", "chained"))(lambda: (imported.VALUE, imported.call()))
there("a module that a module imports later", "later still")(lambda: imported.chained.late())
there("a module that is a link", "linked")(lambda: linked.VALUE)
there("a package that is a link", "linked_package.inner")(lambda: linked_package.inner.VALUE)
there("a namespace", "namespace")(lambda: space.part.leaf.VALUE)
there("a file in a package", "1,2\n")(lambda: package.deep.reads.beside())
there("a resource of a package", "1,2\n")(lambda: package.deep.reads.resource())
there("a module of the same package", "relative")(lambda: package.deep.reads.sibling())
there("a file beside a module of one file", "beside")(lambda: one_file.beside())
there("files beside a module whose names are put together", ("5", ["june.month", "may.month"]))(
    lambda: (one_file.month("may"), one_file.months())
)
there("a file in a folder beside a module", "a table")(lambda: one_file.table())


@there("a module that a function imports", ("lazy", "lazy too"))
def _():
    import lazy

    return lazy.VALUE, lazy.other()


@there("a module that is imported by its name", "by name")
def _():
    return importlib.import_module("by_name").VALUE


@there("a package that is a link in a package", "package.linked_inside.inner")
def _():
    import package.linked_inside

    return package.linked_inside.inner.VALUE


cloudpickle.register_pickle_by_value(by_value)
function_by_value = by_value.g
there("a module that goes by value", (6, False))(lambda: function_by_value(3))


class Importer:
    def go(self):
        from in_class import VALUE

        return VALUE


there("a module that a method imports", "in a class")(lambda: Importer().go())


@there("a name that is put together", "mine")
def _():
    return importlib.import_module("_".join(["statistics", "of", "mine"])).VALUE


@there("what is installed is not taken from the working folder", (True, True))
def _():
    import json

    import cloudpickle

    return hasattr(json, "loads"), hasattr(cloudpickle, "dumps")


@there("the file of the program", True)
def _():
    return Path(__file__).resolve() == BESIDE / "modules.py"


@here("the working folder is that of the program where its pods see it", True)
def _():
    def reads(name):
        return Path(name).exists() and Path(name).read_text()

    return task(reads).map(["in_the_working_folder.txt"]).results(100) == [CASES_SEE_FILES and "found"]


CASES_SEE_FILES = not os.environ["CASES_ON"].startswith("fleet")


@here("tasks of a module", ([4, 6], [20, 30]))
def _():
    return decorated.task.map([1, 2]).results(100), decorated.Model(10).go.map([1, 2]).results(100)


assert "lazy" not in sys.modules
run()
