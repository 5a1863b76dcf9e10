"""`import ttnn` meaning softmesh: the alias itself, `softmesh run` and `python -m softmesh`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from warm_python import warm_python

import softmesh
from softmesh import alias
from softmesh.__main__ import as_command_line
from softmesh.alias import AliasRefused, aliased
from softmesh.cli import commands


@pytest.fixture(autouse=True)
def unforced(monkeypatch):
    monkeypatch.delenv("SOFTMESH_ALIAS", raising=False)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file below a fresh folder, which is the working directory too."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    return write


@pytest.fixture
def real_ttnn(write, tmp_path, monkeypatch):
    """A package that calls itself ttnn, as an installed one would be found."""
    path = write("site/ttnn/__init__.py", "REAL = True")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path))  # the first place is the script's, not site-packages
    yield path
    for name in [name for name in sys.modules if name.partition(".")[0] == "ttnn"]:
        del sys.modules[name]


def names_of_ttnn() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == "ttnn"}


# -- the alias -----------------------------------------------------------------------------------


def test_ttnn_and_its_modules_are_softmeshs_own_objects():
    with aliased():
        import ttnn
        import ttnn.model_preprocessing
        from ttnn.model_preprocessing import preprocess_model_parameters
        from ttnn.tensor.dtype import DataType

        assert ttnn is softmesh
        assert ttnn.model_preprocessing is softmesh.model_preprocessing
        assert preprocess_model_parameters is softmesh.model_preprocessing.preprocess_model_parameters
        assert DataType is softmesh.DataType


@pytest.mark.parametrize("module", [softmesh.mesh, softmesh.experimental], ids=["a file", "a namespace of ops"])
def test_aliasing_writes_nothing_into_a_module(module):
    before = dict(vars(module))
    with aliased():
        assert importlib.import_module(f"ttnn.{module.__name__.partition('.')[2]}") is module
    assert vars(module) == before


@pytest.mark.parametrize("name", ["core", "device", "distributed", "types"])
def test_modules_of_ttnn_that_repeat_its_top_names_answer_with_them(name):
    with aliased():
        module = importlib.import_module(f"ttnn.{name}")
        assert module.MeshDevice is softmesh.MeshDevice


def test_nothing_is_left_when_the_alias_ends():
    before, finders, names = names_of_ttnn(), list(sys.meta_path), set(vars(softmesh))
    with aliased():
        import ttnn.device
        import ttnn.model_preprocessing  # noqa: F401
    assert names_of_ttnn() == before
    assert sys.meta_path == finders
    assert set(vars(softmesh)) - names <= {"model_preprocessing", "module_args"}  # modules that load late
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ttnn")


def test_the_alias_ends_on_an_exception_too():
    with pytest.raises(ZeroDivisionError), aliased():
        raise ZeroDivisionError
    assert not names_of_ttnn()


def test_an_inner_alias_does_not_end_an_outer_one():
    with aliased():
        with aliased():
            pass
        assert importlib.import_module("ttnn") is softmesh
    assert not names_of_ttnn()


def test_install_says_whether_it_did_anything_and_uninstall_may_come_twice():
    assert alias.install() is True
    assert alias.install() is False
    alias.uninstall()
    alias.uninstall()
    assert not names_of_ttnn()


def test_a_missing_module_is_named_with_the_reason():
    with aliased(), pytest.raises(ModuleNotFoundError, match=r"'ttnn\.no_such_module': softmesh"):
        importlib.import_module("ttnn.no_such_module")


def test_a_missing_name_is_an_attribute_error_that_knows_near_ones():
    with aliased():
        import ttnn

        with pytest.raises(AttributeError, match="open_mesh_device"):
            _ = ttnn.open_mesh_devic


def test_importing_a_function_as_a_module_does_not_replace_the_function():
    with aliased(), pytest.raises(ModuleNotFoundError, match=r"ttnn\.distribute"):
        importlib.import_module("ttnn.distribute")
    assert callable(softmesh.distribute)


def test_a_module_that_lacks_a_dependency_says_which(write, tmp_path, monkeypatch):
    write("incomplete.py", "import not_installed_here")
    monkeypatch.setattr(softmesh, "__path__", [*softmesh.__path__, str(tmp_path)])
    with aliased(), pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        importlib.import_module("ttnn.incomplete")


def test_an_importable_real_ttnn_is_not_shadowed(real_ttnn):
    with pytest.raises(AliasRefused, match="SOFTMESH_ALIAS=force") as refusal, aliased():
        pass
    assert str(real_ttnn) in str(refusal.value)
    assert importlib.import_module("ttnn").REAL


def test_an_imported_real_ttnn_is_not_shadowed(real_ttnn):
    importlib.import_module("ttnn")
    with pytest.raises(AliasRefused), aliased():
        pass


def test_a_real_ttnn_is_put_aside_by_force_and_comes_back(real_ttnn):
    real = importlib.import_module("ttnn")
    with aliased(force=True):
        assert importlib.import_module("ttnn") is softmesh
    assert importlib.import_module("ttnn") is real


def test_force_may_come_from_the_environment(real_ttnn, monkeypatch):
    monkeypatch.setenv("SOFTMESH_ALIAS", "force")
    with aliased():
        assert importlib.import_module("ttnn") is softmesh


def test_a_folder_called_ttnn_is_not_a_real_ttnn(write, tmp_path, monkeypatch):
    write("ttnn/CMakeLists.txt", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    with aliased():
        assert importlib.import_module("ttnn") is softmesh


# -- softmesh run --------------------------------------------------------------------------------


def softmesh_command(*args: str) -> Result:
    return CliRunner().invoke(commands, list(args))


def test_run_gives_a_script_its_name_arguments_and_folder(write):
    write("tools/helper.py", "import ttnn\nVALUE = ttnn.MeshShape(2, 4)")
    script = write("tools/main.py", "import sys\nimport helper\nprint(__name__, sys.argv, helper.VALUE)")
    result = softmesh_command("run", str(script), "-m", "--shape", "2x4", "--help", "--", "x")
    assert result.exit_code == 0
    assert result.output == (
        f"__main__ {[str(script), '-m', '--shape', '2x4', '--help', '--', 'x']} MeshShape([2, 4])\n"
    )
    del sys.modules["helper"]


def test_run_leaves_the_process_as_it_was(write):
    argv, path = list(sys.argv), list(sys.path)
    softmesh_command("run", str(write("main.py", "import ttnn, sys; sys.path.append('x'); sys.argv.clear()")))
    assert (sys.argv, sys.path) == (argv, path)
    assert not names_of_ttnn()


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [
        ("", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('out of cheese')", 1, "out of cheese\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_run_ends_as_the_script_ends(write, ending, code, error):
    result = softmesh_command("run", str(write("main.py", f"import sys\n{ending}")))
    assert result.exit_code == code
    assert (result.stderr or result.stdout).endswith(error)


def test_an_exception_shows_the_scripts_lines_and_none_of_the_commands(write):
    source = "import ttnn\n\ndef double(x):\n    return 2 * x['shape']\n\ndouble({})\n"
    result = softmesh_command("run", str(write("main.py", source)))
    assert result.exit_code == 1
    assert 'main.py", line 6, in <module>' in result.stderr
    assert 'main.py", line 4, in double' in result.stderr
    assert result.stderr.endswith("KeyError: 'shape'\n")
    assert "cli.py" not in result.stderr
    assert "runpy" not in result.stderr


def test_an_error_of_softmesh_shows_the_users_line(write):
    script = write("main.py", "import ttnn\nttnn.open_mesh_device(ttnn.MeshShape(0, 4))\n")
    result = softmesh_command("run", str(script))
    assert result.exit_code == 1
    assert 'main.py", line 2, in <module>' in result.stderr
    assert "has zero devices" in result.stderr.splitlines()[-1]


def test_a_syntax_error_shows_where_it_is(write):
    result = softmesh_command("run", str(write("main.py", "x = 1\nx = = 2\n")))
    assert result.exit_code == 1
    assert 'main.py", line 2' in result.stderr
    assert "SyntaxError" in result.stderr


@pytest.mark.parametrize("command", [["run"], ["plan", "--system", "N300"]])
def test_a_file_that_no_program_is_as_large_as_is_not_read(tmp_path, command):
    (tmp_path / "huge.py").touch()
    os.truncate(tmp_path / "huge.py", 3 << 30)
    result = softmesh_command(*command, str(tmp_path / "huge.py"))
    assert result.exit_code in (1, 2)
    assert "huge.py is larger than 64 MiB, which no program is" in result.stderr


def test_a_program_may_come_out_of_a_pipe_that_ends(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", 'echo "print(__file__)" > "$0"', str(pipe)])
    assert softmesh_command("run", str(pipe)).output == f"{pipe}\n"
    assert writer.wait() == 0
    writer = subprocess.Popen(["sh", "-c", 'yes > "$0"', str(pipe)], stderr=subprocess.DEVNULL)
    assert "is larger than 64 MiB, which no program is" in softmesh_command("run", str(pipe)).stderr
    writer.wait()


def test_a_missing_file_is_one_sentence_and_exit_code_2():
    result = softmesh_command("run", "no_such_file.py")
    assert result.exit_code == 2
    assert result.stderr == "Error: There is no file no_such_file.py.\n"


def test_a_real_ttnn_is_one_sentence_and_exit_code_2(write, real_ttnn):
    result = softmesh_command("run", str(write("main.py", "import ttnn")))
    assert result.exit_code == 2
    assert "SOFTMESH_ALIAS=force" in result.stderr
    assert "Traceback" not in result.stderr


def test_run_m_runs_a_module_of_the_working_directory(write):
    write("package/__init__.py", "import ttnn")
    write(
        "package/main.py",
        "import sys\nfrom package import ttnn\nprint(__name__, sys.argv[1:], ttnn.TILE_SIZE)",
    )
    result = softmesh_command("run", "-m", "package.main", "--fast")
    assert result.output == "__main__ ['--fast'] 32\n"
    for name in [name for name in sys.modules if name.partition(".")[0] == "package"]:
        del sys.modules[name]


def test_run_m_names_a_module_that_is_not_there():
    result = softmesh_command("run", "-m", "no_such_module")
    assert result.exit_code == 2
    assert result.stderr == "Error: There is no module no_such_module: neither in this folder nor installed.\n"


def test_the_version_is_the_packages():
    assert softmesh_command("--version").output == f"softmesh, version {softmesh.__version__}\n"


def test_help_lists_the_commands():
    output = softmesh_command("--help").output
    assert all(f"\n  {name} " in output for name in ("run", "show", "bench", "demo"))


def test_help_loads_none_of_the_commands():
    code = (
        "import sys\nfrom softmesh.cli import commands\ncommands(['--help'], standalone_mode=False)\n"
        "assert not [m for m in sys.modules if m.startswith(('softmesh.bench', 'softmesh.demo', 'pytest'))]"
    )
    subprocess.run([*warm_python(), "-c", code], check=True, timeout=60, capture_output=True)


def test_show_and_bench_get_their_own_options():
    assert "MeshDevice(rows=1, cols=2)" in softmesh_command("show", "--mesh", "1x2").output
    assert softmesh_command("show", "--no-such-option").exit_code == 2
    for name in ("ops", "mlp"):
        assert f"softmesh bench {name}" in softmesh_command("bench", name, "--help").output


def test_a_bench_is_refused_where_its_clocks_would_not_wait(monkeypatch):
    monkeypatch.setenv("SOFTMESH_DEVICE", "cuda")
    refused = CliRunner().invoke(commands, ["bench", "ops", "--quick"])
    assert refused.exit_code == 2
    assert "SOFTMESH_DEVICE=cuda puts the mesh elsewhere; unset it" in " ".join(refused.output.split())


def test_an_unknown_bench_is_refused():
    assert softmesh_command("bench", "everything").exit_code == 2


# -- python -m softmesh --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["train.py", "--steps", "10"], ["run", "train.py", "--steps", "10"]),
        (["-m", "package.train"], ["run", "-m", "package.train"]),
        (["run", "train.py"], ["run", "train.py"]),
        (["show", "--mesh", "2x4"], ["show", "--mesh", "2x4"]),
        (["--version"], ["--version"]),
        ([], ["--help"]),
    ],
)
def test_python_m_softmesh_knows_files_from_commands(given, meant):
    assert as_command_line(given) == meant


def test_python_m_softmesh_prefers_a_file_to_a_command_of_that_name(write):
    write("show", "print('mine')")
    assert as_command_line(["show"]) == ["run", "show"]


def test_python_m_softmesh_runs_a_script_in_a_process_of_its_own(write):
    source = "import sys\nimport ttnn\nprint(ttnn.__name__, sys.argv, sys.path[0])\nsys.exit(7)"
    script = write("folder/main.py", source)
    result = subprocess.run(
        [*warm_python(), "-m", "softmesh", "folder/main.py", "--name", "x"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stderr == ""
    assert result.stdout == f"softmesh ['folder/main.py', '--name', 'x'] {script.parent.resolve()}\n"
    assert result.returncode == 7


def test_a_folder_named_like_a_command_does_not_hide_the_command(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from softmesh.__main__ import as_command_line

    (tmp_path / "bench").mkdir()
    monkeypatch.chdir(tmp_path)
    assert as_command_line(["bench", "ops"]) == ["bench", "ops"]


SPAWNING = """
import multiprocessing
import sys
import ttnn

def work():
    sys.stdout.write(f"{ttnn.__name__}\\n")

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


def test_processes_that_a_program_starts_find_ttnn_too(write):
    command = [sys.executable, "-m", "softmesh", "run", str(write("spawning.py", SPAWNING))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "softmesh\n"), done.stderr


def test_the_name_that_processes_find_leaves_a_real_ttnn_its_place(write, tmp_path):
    write("site/ttnn/__init__.py", "REAL = True")
    names = Path(softmesh.__file__).parent / "processes" / "launcher" / "ttnn_name"
    environ = {"PYTHONPATH": f"{names}:{tmp_path / 'site'}", "PATH": os.environ["PATH"]}
    ask = [sys.executable, "-c", "import ttnn; print(ttnn.__name__, getattr(ttnn, 'REAL', False))"]

    def seen(**more: str) -> str:
        return subprocess.run(ask, env=environ | more, capture_output=True, text=True, timeout=120).stdout

    assert seen() == "ttnn True\n"
    assert seen(SOFTMESH_ALIAS="force") == "softmesh False\n"
