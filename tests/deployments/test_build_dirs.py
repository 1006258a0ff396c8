import os

import pytest

from apps.core.ids import uuid7
from apps.deployments.build_dirs import FileNotReadable, RevisionDir, remove_tree


@pytest.fixture
def directory(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    directory = RevisionDir.for_attempt(uuid7(), 1, 1)
    directory.create()
    return directory


def test_file_of_the_source_is_read(directory):
    (directory.source / "app").mkdir()
    (directory.source / "app/langgraph.json").write_text("{}")

    assert directory.read_text("app/langgraph.json") == "{}"


def test_links_are_not_followed(directory, tmp_path):
    (tmp_path / "secret").write_text("the platform's")
    (directory.source / "langgraph.json").symlink_to(tmp_path / "secret")
    (directory.source / "folder").symlink_to(tmp_path)

    for path in ("langgraph.json", "folder/secret"):
        with pytest.raises(FileNotReadable, match="must not have symbolic links"):
            directory.read_text(path)
    assert (directory.file_type("langgraph.json"), directory.file_type("folder/secret")) == (
        "link",
        "link",
    )


def test_named_pipe_does_not_block_the_builder(directory):
    os.mkfifo(directory.source / "langgraph.json")

    with pytest.raises(FileNotReadable):
        directory.read_text("langgraph.json")


def test_paths_outside_the_source_are_rejected(directory, tmp_path):
    (tmp_path / "secret").write_text("the platform's")

    for path in ("../../../../secret", str(tmp_path / "secret"), ""):
        with pytest.raises(FileNotReadable):
            directory.read_text(path)


def test_missing_and_binary_files_are_reported(directory):
    (directory.source / "binary").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(FileNotReadable, match="There is no file x/y in the repository"):
        directory.read_text("x/y")
    with pytest.raises(FileNotReadable, match="not a UTF-8 text file"):
        directory.read_text("binary")


def test_file_type_of_each_path(directory):
    (directory.source / "app").mkdir()
    (directory.source / "app/x.py").write_text("")

    file_types = [
        directory.file_type(path) for path in ("", "app", "app/x.py", "app/y.py", "app/x.py/z")
    ]

    assert file_types == ["folder", "folder", "file", "missing", "missing"]


def test_create_again_empties_the_folder(directory):
    (directory.source / "left").write_text("over")

    directory.create()

    assert list(directory.source.iterdir()) == []


def test_folder_is_accessible_to_its_owner_only(directory):
    assert directory.folder.stat().st_mode & 0o777 == 0o700
    if directory.uid is not None:
        assert directory.folder.stat().st_uid == directory.uid


def test_folder_without_permissions_is_removed(directory, tmp_path):
    (tmp_path / "kept").write_text("outside")
    locked_folder = directory.source / "shut"
    locked_folder.mkdir()
    (locked_folder / "file").write_text("")
    (directory.source / "link").symlink_to(tmp_path / "kept")
    locked_folder.chmod(0)

    remove_tree(directory.folder)

    assert not directory.folder.exists()
    assert (tmp_path / "kept").read_text() == "outside"
