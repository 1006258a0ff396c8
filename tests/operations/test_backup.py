"""Backup, wipe, restore, compare: every table's rows and checksum, and every object."""

import io
import tarfile

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from psycopg import sql

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import objects
from apps.core.objects.files import FileObjectStorage
from apps.operators.backup import archive, contents
from tests.factories.organizations import WorkspaceFactory
from tests.tenant_fixtures import plant

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True),
    pytest.mark.xdist_group("machine"),
]


@pytest.fixture
def empty_database():
    """The alias of a database that has nothing in it."""
    default = connections["default"]
    name = f"{default.settings_dict['NAME']}_restored"
    with psycopg.connect(**_where(default, "postgres"), autocommit=True) as session:
        session.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(_name(name)))
        session.execute(sql.SQL("CREATE DATABASE {}").format(_name(name)))
    connections.settings["restored"] = {**default.settings_dict, "NAME": name}
    yield "restored"
    connections["restored"].close()
    del connections.settings["restored"]
    delattr(connections._connections, "restored")
    with psycopg.connect(**_where(default, "postgres"), autocommit=True) as session:
        session.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(_name(name)))


@pytest.fixture
def filled(transactional_db):
    """A workspace with a row of every kind that tracing keeps, an audit entry, and two objects."""
    workspace = WorkspaceFactory()
    plant(workspace, "word", "secret")
    record(Action.PROJECT_DELETED, Target("project", "p", "gone"), workspace_id=workspace.pk)
    paths = [f"{workspace.pk}/one", f"{workspace.pk}/deep/er/two"]
    for path in paths:
        objects.put(path, path.encode() * 1000)
    yield {path: path.encode() * 1000 for path in paths}
    objects.remove(paths)
    # Runs have no models, so what empties the tables of models leaves them.
    with connections["default"].cursor() as cursor:
        cursor.execute("TRUNCATE trace_store_run, trace_store_run_payload")


def test_backup_is_restored_into_an_empty_database(tmp_path, filled, empty_database):
    file, storage = tmp_path / "backup.tar", FileObjectStorage(location=tmp_path / "objects")

    written = archive.write(file)
    before = measured("default")
    report = archive.read(file, using=empty_database, storage=storage)

    assert report.differences == ()
    assert measured(empty_database) == before
    assert (report.rows, report.tables) == (written.rows, written.tables)
    assert before["audit_entry"][0] >= 1
    assert sum(rows for table, (rows, _) in before.items() if "trace_store_run" in table) >= 1
    assert {path: storage.get(path) for path in filled} == filled
    assert file.stat().st_mode & 0o077 == 0


def test_restore_replaces_existing_data(tmp_path, filled, empty_database):
    file, storage = tmp_path / "backup.tar", FileObjectStorage(location=tmp_path / "objects")
    archive.write(file)
    archive.read(file, using=empty_database, storage=storage)
    with psycopg.connect(**_where(connections[empty_database])) as session:
        session.execute("UPDATE organizations_organization SET name = 'spoilt'")
        session.execute("UPDATE tracing_project SET description = 'spoilt'")
        session.execute("CREATE TABLE stray (a int)")
    (path, *_) = filled
    storage.remove([path])
    storage.put(path, b"spoilt")

    report = archive.read(file, using=empty_database, storage=storage)

    assert report.differences == ()
    assert measured(empty_database) == measured("default")
    assert storage.get(path) == filled[path]


def test_restored_audit_log_is_append_only(tmp_path, filled, empty_database):
    file = tmp_path / "backup.tar"
    archive.write(file)
    archive.read(
        file, using=empty_database, storage=FileObjectStorage(location=tmp_path / "objects")
    )

    with (
        psycopg.connect(**_where(connections[empty_database])) as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"),
    ):
        session.execute("DELETE FROM audit_entry")


def test_differences_lists_the_tables_that_differ(filled):
    before = measured("default")
    after = {**before, "audit_entry": [0, "0"]}
    del after["tracing_project"]

    lines = contents.differences(before, after)

    assert [line.partition(":")[0] for line in lines] == ["audit_entry", "tracing_project"]


def test_backup_contains_no_secrets_of_the_installation(tmp_path, filled, settings):
    file = tmp_path / "backup.tar"

    archive.write(file)

    content = file.read_bytes()
    for secret in (settings.SECRET_KEY, *settings.ENCRYPTION_KEYS, settings.METRICS_TOKEN):
        assert secret.encode() not in content


def test_file_that_is_no_backup_is_rejected_before_the_database_changes(tmp_path, filled):
    file = tmp_path / "other.tar"
    with tarfile.open(file, "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json.txt"), io.BytesIO())
    before = measured("default")

    with pytest.raises(archive.NotABackup):
        archive.read(file)

    assert measured("default") == before


def test_backup_does_not_overwrite_an_existing_file(tmp_path):
    file = tmp_path / "backup.tar"
    file.write_text("mine")

    with pytest.raises(CommandError, match="exists already"):
        call_command("backup", str(file))

    assert file.read_text() == "mine"


def test_restore_over_organizations_requires_confirmation(tmp_path, filled):
    file = tmp_path / "backup.tar"
    archive.write(file, quick=True)

    with pytest.raises(CommandError, match=r"organizations, which would be replaced|is running"):
        call_command("restore", str(file))


def measured(alias):
    with psycopg.connect(**_where(connections[alias])) as session:
        return contents.measure(session)


def _where(wrapper, name=None):
    parameters = wrapper.get_connection_params()
    settings = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port")
             if parameters.get(key)}  # fmt: skip
    return settings | ({"dbname": name} if name else {})


def _name(name):
    return sql.Identifier(name)
