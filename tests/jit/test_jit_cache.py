"""Compiled kernels kept on disk: never stale, never in the way."""

from __future__ import annotations

import ast
import errno
import os
import pickle
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import pytest
from numba.core import config

import rota
from rota import jit_cache
from rota.jit import is_ready
from rota.jit_cache import KernelCache
from rota.jit_stamp import Ingredients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(rota.__file__).parent

# -- a user's own kernel ------------------------------------------------------------------

MINE = """
import own_codes
from own_codes import STEP
from rota.jit import inline, kernel, part
{more}
LIMIT = 7

@part
def stepped(x):
    return x + STEP

@inline
def doubled(x):
    return 2 * x

@kernel
def f(x):
    return doubled(stepped(x)) + LIMIT + own_codes.FAR
"""
F_OF_1 = 2 * (1 + 10) + 7 + 1000


class Own:
    """A user's folder: `own.py` with a kernel f, and `own_codes.py` with constants."""

    def __init__(self, folder: Path) -> None:
        self.kernels, self.codes = folder / "own.py", folder / "own_codes.py"
        self.kernels.write_text(MINE.format(more=""))
        self.codes.write_text("STEP = 10\nFAR = 1000\n")

    def load(self) -> Any:
        """The module as a new process would have it: `FILE.py:Name` is loaded so, too."""
        sys.modules.pop("own_codes", None)
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        spec = spec_from_file_location("own", self.kernels)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.dont_write_bytecode = before
        return module

    def run(self, x: float = 1) -> tuple[float, bool]:
        """f(x) in a new process, and whether its machine code came from disk."""
        f = self.load().f
        result = f(x)
        return result, bool(f.stats.cache_hits)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which kernels are kept meanwhile."""
    folder = tmp_path / "kept"
    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    monkeypatch.setattr(KernelCache, "told", False)
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Iterator[Own]:
    assert not kept.exists()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Own(tmp_path)
    sys.modules.pop("own_codes", None)


def test_an_unchanged_kernel_comes_from_disk(own: Own) -> None:
    assert [own.run(), own.run()] == [(F_OF_1, False), (F_OF_1, True)]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("own.py", "LIMIT = 7", "LIMIT = 8", F_OF_1 + 1),
        ("own.py", "2 * x", "3 * x", F_OF_1 + 11),
        ("own_codes.py", "STEP = 10", "STEP = 20", F_OF_1 + 20),
        ("own_codes.py", "FAR = 1000", "FAR = 2000", F_OF_1 + 1000),
    ],
)
def test_an_edited_kernel_is_compiled_again(
    own: Own, file: str, old: str, new: str, expected: int
) -> None:
    assert own.run() == (F_OF_1, False)
    path = own.kernels.with_name(file)
    path.write_text(path.read_text().replace(old, new))
    assert own.run() == (expected, False)
    assert own.run() == (expected, True)


def test_a_constant_from_the_environment_is_read_again(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.codes.write_text("import os\nSTEP = int(os.environ['OWN_STEP'])\nFAR = 1000\n")
    monkeypatch.setenv("OWN_STEP", "10")
    assert own.run() == (F_OF_1, False)
    monkeypatch.setenv("OWN_STEP", "20")
    assert own.run() == (F_OF_1 + 20, False)


def test_code_that_was_imported_before_an_edit_is_not_kept_as_the_edited_one(own: Own) -> None:
    early = own.load().f
    own.codes.write_text("STEP = 20\nFAR = 1000\n")
    assert early(1) == F_OF_1  # compiled, and kept, only now
    assert own.run() == (F_OF_1 + 20, False)


def test_a_user_s_kernel_depends_on_the_kernels_of_rota_that_it_calls(own: Own) -> None:
    call = "from rota.policies.classic.orderings import class_of"
    own.kernels.write_text(MINE.format(more=call).replace("2 * x", "class_of(x, 2.0) * x"))
    names = {Path(path).name for path in Ingredients(own.load().f).files}
    assert names >= {"own.py", "own_codes.py", "jit.py", "orderings.py", "rule.py", "layout.py"}


FROM_ONE_BODY = """
from rota.jit import kernel, part
{more}
@part
def one_more(x):
    return x + 1

@part
def twice(x):
    return 2 * x

def made(name, step):
    def body(x):
        return step(x)

    body.__name__ = body.__qualname__ = name
    return kernel(body)

f, g = made("f", one_more), made("g", twice)
"""


def test_kernels_made_from_one_body_are_kept_apart(own: Own) -> None:
    own.kernels.write_text(FROM_ONE_BODY.format(more=""))
    module = own.load()
    assert module.f(5) == 6
    assert is_ready(module.f)
    assert not is_ready(module.g)
    assert module.g(5) == 10
    again = own.load()
    assert is_ready(again.g)
    assert (again.f(5), again.g(5)) == (6, 10)
    assert again.f.stats.cache_hits
    assert again.g.stats.cache_hits


def test_a_part_in_the_closure_of_a_kernel_is_one_of_its_ingredients(own: Own) -> None:
    call = "from own_codes import STEP"
    text = FROM_ONE_BODY.format(more=call).replace("return x + 1", "return x + STEP")
    own.kernels.write_text(text)
    assert own.run() == (11, False)
    own.codes.write_text("STEP = 20\nFAR = 1000\n")
    assert own.run() == (21, False)


def test_bounds_checks_are_not_left_out_because_code_without_them_was_kept(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own.run() == (F_OF_1, False)
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    assert own.run() == (F_OF_1, False)
    assert own.run() == (F_OF_1, True)
    monkeypatch.setattr(config, "BOUNDSCHECK", None)
    assert own.run() == (F_OF_1, True)


# -- caches that are broken or cannot be written ------------------------------------------


def only(kept: Path, ending: str) -> Path:
    (found,) = kept.rglob(f"*.{ending}")
    return found


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def fill_with_rubbish(path: Path) -> None:
    path.write_bytes(b"\x80\x05rubbish" * 100)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


def make_a_folder_of_it(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_a_list(path: Path) -> None:
    stamp = pickle.loads(path.read_bytes()[len(pickle.dumps(numba.__version__, -1)) :])[0]
    version = pickle.dumps(numba.__version__, -1)
    path.write_bytes(version + pickle.dumps((stamp, [1, 2])))


def name_another_version(path: Path) -> None:
    path.write_bytes(pickle.dumps("0.1", -1) + path.read_bytes()[20:])


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        *(("nbi", d) for d in (cut_in_half, empty, fill_with_rubbish, flip_a_bit)),
        *(("nbc", d) for d in (cut_in_half, empty, fill_with_rubbish, flip_a_bit)),
        *(("nbi", d) for d in (write_a_list, name_another_version)),
        ("nbc", Path.unlink), ("nbi", Path.unlink),
    ],
)  # fmt: skip
def test_a_damaged_cache_only_means_compiling_again(
    own: Own, kept: Path, ending: str, damage: Callable[[Path], None]
) -> None:
    own.run()
    damage(only(kept, ending))
    result, from_disk = own.run()
    assert result == F_OF_1
    assert not from_disk or damage is flip_a_bit  # a bit of the index may not matter
    assert own.run() == (F_OF_1, True)


@pytest.mark.parametrize("ending", ["nbc", "nbi"])
def test_a_folder_in_place_of_a_file_only_means_compiling_again(
    own: Own, kept: Path, ending: str
) -> None:
    own.run()
    make_a_folder_of_it(only(kept, ending))
    assert own.run() == (F_OF_1, False)


def test_old_code_under_a_new_index_is_not_believed(own: Own, kept: Path) -> None:
    # As if the disk had been full, or the power gone, after the index and before the code.
    own.run()
    old = only(kept, "nbc").read_bytes()
    own.codes.write_text("STEP = 20\nFAR = 1000\n")
    own.run()
    only(kept, "nbc").write_bytes(old)
    assert own.run() == (F_OF_1 + 20, False)


def test_code_for_other_types_is_not_believed(own: Own, kept: Path) -> None:
    # Two processes that keep code for different types at once may choose the same name.
    own.run(1)
    whole = only(kept, "nbc").read_bytes()
    shutil.rmtree(kept)
    own.run(1.5)
    only(kept, "nbc").write_bytes(whole)
    assert own.run(1.5) == (F_OF_1 + 1, False)


def test_a_full_disk_is_no_error(
    own: Own, kept: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(jit_cache._Files, "_open_for_write", full)
        assert own.run() == (F_OF_1, False)
    assert "every run compiles" in caplog.text
    assert not list(kept.rglob("*.nb?"))
    assert own.run() == (F_OF_1, False)
    assert own.run() == (F_OF_1, True)


def test_without_any_folder_kernels_run_and_it_is_said_once(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")
    assert own.run() == (F_OF_1, False)
    assert own.run() == (F_OF_1, False)
    assert caplog.text.count("NUMBA_CACHE_DIR") == 1


def test_a_kernel_without_a_file_runs() -> None:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec("from rota.jit import kernel\n@kernel\ndef f(x):\n    return x + 1\n", names)
    assert names["f"](1) == 2


SEVERAL = """
import sys
from own import f
print([f(kind(1)) for kind in (int, float, bool, complex)[:: int(sys.argv[1])]])
"""


def test_processes_that_write_at_once_do_not_disturb_each_other(own: Own, kept: Path) -> None:
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(kept),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    running = [
        subprocess.Popen([sys.executable, "-c", SEVERAL, step], env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for step in ("1", "-1")
    ]  # fmt: skip
    expected = [F_OF_1, float(F_OF_1), F_OF_1, complex(F_OF_1)]
    for process, values in zip(running, (expected, expected[::-1]), strict=True):
        out, err = process.communicate(timeout=600)
        assert (out, err) == (f"{values}\n", "")
    f = own.load().f
    assert [f(kind(1)) for kind in (int, float, bool, complex)] == expected


# -- what rota's own kernels are made of --------------------------------------------------


def kernels() -> dict[str, Any]:
    """All kernels of the package, by name."""
    found: dict[str, Any] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "kernel" not in path.read_text() or path.name.startswith("jit"):
            continue
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for attribute, value in vars(import_module(name)).items():
            cache = getattr(value, "_cache", None)
            if isinstance(cache, KernelCache) and value not in found.values():
                found[f"{name}.{attribute}"] = value
    return found


@cache
def imported_by(path: Path) -> list[Path]:
    """The files of the package that a file imports, by its syntax tree."""
    tree, files = ast.parse(path.read_text()), []
    for_types = {
        id(node) for top in tree.body
        if isinstance(top, ast.If) and "TYPE_CHECKING" in ast.unparse(top.test)
        for node in ast.walk(top)
    }  # fmt: skip
    for node in ast.walk(tree):
        if id(node) in for_types or not isinstance(node, ast.ImportFrom):
            continue
        names = [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
        for module in [names[0]] if file_of(names[0]) not in (None, PACKAGE) else names[1:]:
            found = file_of(module)
            if found:
                files.append(found)
    return files


def file_of(module: str) -> Path | None:
    """The file of a module of the package."""
    if not module.startswith("rota."):
        return None
    base = PACKAGE.joinpath(*module.split(".")[1:])
    return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)


def test_a_kernel_s_stamp_covers_every_module_that_it_imports() -> None:
    found = kernels()
    assert len(found) > 30
    assert sum("replay" in kernel.py_func.__name__ for kernel in found.values()) == 6
    for name, kernel in found.items():
        reached, waiting = set(), [Path(kernel.py_func.__code__.co_filename)]
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                waiting += imported_by(path)
        missing = reached - set(map(Path, Ingredients(kernel).files))
        # A package whose modules are imported by name gives nothing of its own.
        assert not {p for p in missing if p.name != "__init__.py"}, name


@cache
def taken_from(path: Path) -> list[tuple[Path, set[str]]]:
    """The files of the package from which a file imports names, and these names."""
    return [
        (source, {alias.asname or alias.name for alias in node.names})
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and (source := file_of(node.module))
    ]


def test_a_kernel_s_stamp_covers_every_name_that_its_code_reads() -> None:
    for name, kernel in kernels().items():
        made_of = Ingredients(kernel)
        files = set(map(Path, made_of.files))
        for function in made_of.functions:
            origin = Path(function.__code__.co_filename)
            assert origin in files, name
            for source, taken in taken_from(origin):
                read = taken & set(function.__code__.co_names)
                if read and source.name != "__init__.py":
                    assert source in files, (name, function.__name__, read)


def test_constants_that_policies_are_told_apart_by_are_covered_and_the_command_line_is_not() -> (
    None
):
    covered = {path for kernel in kernels().values() for path in Ingredients(kernel).files}
    inside = {Path(path).relative_to(PACKAGE).as_posix() for path in covered}
    assert inside >= {
        "policies/classic/rule.py", "policies/classic/orderings.py",
        "core/speed.py", "core/layout.py", "envs/rewards.py", "sim/state.py",
        "policies/classic/placing.py", "jit.py",
    }  # fmt: skip
    assert not {path for path in inside if path.startswith(("cli/", "dash/", "elastic/"))}


COPIED = """
import numba
import numpy as np
import rota
from rota.core import Cluster, Job, Snapshot
from rota.sim.simulator import fitting, fits_empty
rows = np.array(Snapshot.of(Cluster.uniform(1), [Job(workers=1, cpus_per_worker=8.5)]).jobs.rows)
print(rota.__file__, fitting(Cluster.uniform(1, 8, cpus=8.0), rows)[0],
      bool(fits_empty.stats.cache_hits))
"""


def test_an_edited_constant_of_the_package_changes_the_result(tmp_path: Path, kept: Path) -> None:
    copy = tmp_path / "src" / "rota"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(kept), "PYTHONPATH": str(copy.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip

    def run() -> str:
        command = [sys.executable, "-c", COPIED]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.removeprefix(f"{copy / '__init__.py'} ").strip()

    assert run() == "False False"
    page = copy / "cli" / "app.py"
    page.write_text(page.read_text() + "\n# Nothing that a kernel could read.\n")
    assert run() == "False True"
    layout = copy / "core" / "layout.py"
    assert "SLACK: Final = 1e-9" in layout.read_text()
    layout.write_text(layout.read_text().replace("SLACK: Final = 1e-9", "SLACK: Final = 1.0"))
    assert run() == "True False"


SHARED_PART = """
import numba, numpy as np
from rota.jit import kernel, part

@part
def long_one(a, b, c, d, e, x):
    total = 0.0
{body}
    return total

@kernel
def calls_it_twice(a, b, c, d, e):
    total = long_one(a, b, c, d, e, 1.0)
    for i in range(b.size):
        total += long_one(a, b, c, d, e, b[i])
    return total

@numba.njit
def calls_it_too(a, b, c, d, e, x):
    return long_one(a, b, c, d, e, x)

def ones():
    return [np.ones(4) for _ in range(5)]

calls_it_twice(*ones())
assert calls_it_too(*ones(), 2.0) == long_one.py_func(*ones(), 2.0) > 0.0
"""


def test_a_part_of_a_kernel_may_be_called_by_other_compiled_code_too(tmp_path: Path) -> None:
    # So long that LLVM pastes it nowhere, and with arguments that LLVM drops.
    body = "\n".join(
        f"    for i in range(a.size):\n"
        f"        total += np.sqrt(a[i] * {k} + x) if a[i] < {k} else -total"
        for k in range(2, 40)
    )
    file = tmp_path / "shared.py"
    file.write_text(SHARED_PART.replace("{body}", body))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
