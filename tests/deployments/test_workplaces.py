import os

import pytest

from apps.core.ids import uuid7
from apps.deployments.build_dirs import FileNotReadable, RevisionDir, remove_tree


@pytest.fixture
def place(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    place = RevisionDir.for_attempt(uuid7(), 1, 1)
    place.make()
    return place


def test_a_file_is_read(place):
    (place.source / "app").mkdir()
    (place.source / "app/langgraph.json").write_text("{}")

    assert place.read("app/langgraph.json") == "{}"


def test_links_lead_nowhere(place, tmp_path):
    (tmp_path / "secret").write_text("the platform's")
    (place.source / "langgraph.json").symlink_to(tmp_path / "secret")
    (place.source / "folder").symlink_to(tmp_path)

    for path in ("langgraph.json", "folder/secret"):
        with pytest.raises(FileNotReadable, match="reached through no link"):
            place.read(path)
    assert (place.kind("langgraph.json"), place.kind("folder/secret")) == ("link", "link")


def test_a_pipe_does_not_hold_the_builder(place):
    os.mkfifo(place.source / "langgraph.json")

    with pytest.raises(FileNotReadable):
        place.read("langgraph.json")


def test_nothing_outside_is_read(place, tmp_path):
    (tmp_path / "secret").write_text("the platform's")

    for path in ("../../../../secret", str(tmp_path / "secret"), ""):
        with pytest.raises(FileNotReadable):
            place.read(path)


def test_what_is_missing_or_no_text_is_said(place):
    (place.source / "binary").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(FileNotReadable, match="There is no file x/y in the repository"):
        place.read("x/y")
    with pytest.raises(FileNotReadable, match="not a text file in UTF-8"):
        place.read("binary")


def test_kinds(place):
    (place.source / "app").mkdir()
    (place.source / "app/x.py").write_text("")

    found = [place.kind(path) for path in ("", "app", "app/x.py", "app/y.py", "app/x.py/z")]

    assert found == ["folder", "folder", "file", "nothing", "nothing"]


def test_making_it_again_empties_it(place):
    (place.source / "left").write_text("over")

    place.make()

    assert list(place.source.iterdir()) == []


def test_only_its_owner_may_enter(place):
    assert place.folder.stat().st_mode & 0o777 == 0o700
    if place.uid is not None:
        assert place.folder.stat().st_uid == place.uid


def test_a_shut_folder_is_removed_too(place, tmp_path):
    (tmp_path / "kept").write_text("outside")
    shut = place.source / "shut"
    shut.mkdir()
    (shut / "file").write_text("")
    (place.source / "link").symlink_to(tmp_path / "kept")
    shut.chmod(0)

    remove_tree(place.folder)

    assert not place.folder.exists()
    assert (tmp_path / "kept").read_text() == "outside"
