"""Kept results are known by the marks of the user's own key; what others keep is not unpickled."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from test_marks import THEIRS, forged

import pumice
from pumice import results_key, run_key
from pumice.result_store import KeptResults

NOBODY = 65534


@pytest.fixture
def sprung(tmp_path):
    return tmp_path / "sprung"


@pumice.task
def double(x):
    return x * 2


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_is_kept_is_marked_with_the_users_own_key(fake, tmp_path):
    store = tmp_path / "store"
    assert double.map([1, 2], store=store).results() == [2, 4]
    file = results_key.key_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.parent.parent == Path(os.environ["XDG_CONFIG_HOME"])
    assert all(path.read_bytes().startswith(b"PMKV\x01") for path in kept(store))
    with warnings.catch_warnings(action="error"):
        again = double.map([1, 2], store=store)
    assert again.results() == [2, 4] and all(item.from_store for item in again.items)


def test_another_program_knows_what_this_one_kept(fake, tmp_path):
    program = "import sys; from pumice.result_store import KeptResults; from pumice.results_key import user_key; "
    program += "KeptResults(sys.argv[1], 'f', 'v', user_key()).write('k', b'+value')"
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
    assert KeptResults(tmp_path, "f", "v", results_key.user_key()).read("k") == b"+value"


def spoil_with(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


SPOILED = {
    "changed": spoil_with(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "cut": spoil_with(lambda data: data[:-1]),
    "cut in its mark": spoil_with(lambda data: data[:20]),
    "with a changed mark": spoil_with(lambda data: data[:5] + bytes(32) + data[37:]),
    "of another record": lambda path: path.write_bytes(next(p for p in kept(path.parent) if p != path).read_bytes()),
    "marked with another key": lambda path: results_key.key_file().write_text(f"{THEIRS}\n"),
    "without a mark, of somebody else": lambda path: (spoil_with(lambda data: data[37:])(path), os.chown(path, NOBODY, 0)),
    "without a mark, for all to write": lambda path: (spoil_with(lambda data: data[37:])(path), path.chmod(0o666)),
    "without a mark, behind a link": lambda path: (
        spoil_with(lambda data: data[37:])(path),
        path.rename(path.with_name("elsewhere")),
        path.symlink_to("elsewhere"),
    ),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_what_may_be_somebody_elses_is_not_read_and_nothing_runs(fake, tmp_path, spoil):
    if os.geteuid():
        pytest.skip("only root can give files away")
    double.map([1, 2], store=tmp_path).results()
    path = kept(tmp_path)[0]
    spoil(path)
    with pytest.raises(pumice.NotMarked) as caught:
        double.map([1, 2, 3], store=tmp_path)
    assert str(path) in str(caught.value) and "allow_pickle=True" in str(caught.value)
    assert run_key.whose(path.stat().st_uid) in str(caught.value)
    assert len(fake.jobs) == 1


# INV-47
@pytest.mark.parametrize("marked", [True, False])
def test_a_pickle_of_somebody_else_runs_only_where_that_is_allowed(fake, tmp_path, sprung, marked):
    if os.geteuid():
        pytest.skip("only root can give files away")
    store = tmp_path / "store"
    double.map([1], store=store).results()
    (path,) = kept(store)
    data = forged(sprung)
    path.write_bytes(b"PMKV\x01" + bytes(32) + data if marked else data)
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(pumice.NotMarked, match="which belongs to user nobody"):
        double.map([1], store=store)
    assert not sprung.exists()
    double.map([1], store=store, allow_pickle=True)
    assert sprung.exists()


def test_ones_own_of_before_are_read_with_one_warning_a_map(fake, tmp_path):
    double.map([1, 2], store=tmp_path).results()
    for path in kept(tmp_path):
        path.write_bytes(path.read_bytes()[37:])
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="was kept before results were marked") as warned:
            again = double.map([1, 2, 3], store=tmp_path)
        assert len(warned) == 1 and again.results() == [2, 4, 6]
        assert [item.from_store for item in again.items][:2] == [True, True]
    with warnings.catch_warnings(action="error"):
        assert double.map([1, 2, 3], store=tmp_path, allow_pickle=True).results() == [2, 4, 6]


def test_an_empty_or_foreign_file_is_no_result(fake, tmp_path):
    double.map([1, 2], store=tmp_path).results()
    empty, other = kept(tmp_path)
    empty.write_bytes(b"")
    other.unlink()
    other.mkdir()
    with pytest.raises(pumice.BadOption, match="is no plain file"):
        double.map([1, 2], store=tmp_path)
    other.rmdir()
    os.mkfifo(other)
    with pytest.raises(pumice.BadOption, match="is no plain file"):
        double.map([1, 2], store=tmp_path)
    other.unlink()
    assert double.map([1, 2], store=tmp_path).results() == [2, 4]


def test_a_copied_folder_is_read_where_the_key_was_copied_too(fake, tmp_path, monkeypatch):
    double.map([1], store=tmp_path / "here").results()
    there = tmp_path / "there"
    subprocess.run(["cp", "-r", tmp_path / "here", there], check=True)
    key = results_key.key_file().read_bytes()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(pumice.NotMarked, match=r"copy ~/\.config/pumice/results\.key from there"):
        double.map([1], store=there)
    results_key.key_file().write_bytes(key)
    assert [item.from_store for item in double.map([1], store=there).items] == [True]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.chmod(0o640), "its mode 600, and they are 0 and 640"),
        (lambda path: path.chmod(0o602), "others can read or write it"),
        (lambda path: os.chown(path, NOBODY, 0), f"its mode 600, and they are {NOBODY} and 600"),
        (lambda path: path.write_text("key"), "should hold 64 hexadecimal digits"),
        (lambda path: path.write_text(THEIRS * 2), "should hold 64 hexadecimal digits"),
        (lambda path: path.write_bytes(b""), "should hold 64 hexadecimal digits"),
        (lambda path: (path.unlink(), path.mkdir()), "is no plain file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is no plain file"),
    ],
)
def test_a_key_that_others_may_know_is_refused(fake, tmp_path, monkeypatch, spoil, said):
    if os.geteuid():
        pytest.skip("only root can give files away")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    results_key.user_key()
    spoil(results_key.key_file())
    with pytest.raises(pumice.BadOption) as caught:
        double.map([1], store=tmp_path / "store")
    assert said in str(caught.value) and str(results_key.key_file()) in str(caught.value)
    assert THEIRS not in str(caught.value) and fake.jobs == []


def test_a_key_that_can_not_be_made_is_said(fake, tmp_path, monkeypatch):
    (tmp_path / "config").write_text("a file")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(pumice.BadOption, match=r"store= marks what it keeps with a key of yours, .*XDG_CONFIG_HOME"):
        double.map([1], store=tmp_path / "store")
    assert double.map([1]).results() == [2]


@pytest.mark.parametrize("named", ["", "relative/path"])
def test_the_key_is_in_the_home_where_nothing_else_is_named(tmp_path, monkeypatch, named):
    monkeypatch.setenv("XDG_CONFIG_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert results_key.user_key() == results_key.user_key()
    assert results_key.key_file() == tmp_path / ".config" / "pumice" / "results.key"
    assert results_key.key_file().exists()


def test_programs_that_begin_at_once_have_one_key(tmp_path):
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from pumice.results_key import user_key; print(user_key().hex())"]
    programs = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    keys = {program.communicate(timeout=60)[0] for program in programs}
    assert len(keys) == 1 and len(keys.pop()) == 65
    assert kept(tmp_path) == [tmp_path / "pumice" / "results.key"]
