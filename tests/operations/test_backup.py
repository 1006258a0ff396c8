"""Backup and restore: rows and checksum of every table, and every object."""

import io
import tarfile

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from psycopg import sql

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import object_storage
from apps.core.object_storage.files import FileObjectStorage
from apps.operators import backup
from tests.factories.organizations import WorkspaceFactory
from tests.installation import wait_until
from tests.tenant_fixtures import create_tracing_rows

pytestmark = [
    pytest.mark.integration,
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def empty_database():
    """The alias of an empty database."""
    default = connections["default"]
    name = f"{default.settings_dict['NAME']}_restored"
    with psycopg.connect(**_connection_parameters(default, "postgres"), autocommit=True) as session:
        _drop_database(session, name)
        session.execute(sql.SQL("CREATE DATABASE {}").format(_name(name)))
    connections.settings["restored"] = {**default.settings_dict, "NAME": name}
    yield "restored"
    connections["restored"].close()
    del connections.settings["restored"]
    delattr(connections._connections, "restored")
    with psycopg.connect(**_connection_parameters(default, "postgres"), autocommit=True) as session:
        _drop_database(session, name)


def _drop_database(session: psycopg.Connection, name: str) -> None:
    """Drop the database; wait while one of the server's own processes works on it."""
    statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(_name(name))

    def is_dropped() -> bool:
        try:
            session.execute(statement)
        except psycopg.errors.InsufficientPrivilege:  # such as a worker of autovacuum
            return False
        return True

    wait_until(is_dropped, f"the end of {name}")


@pytest.fixture
def stored_objects(transactional_db):
    """A workspace with one row of each tracing table, an audit entry and two objects."""
    workspace = WorkspaceFactory()
    create_tracing_rows(workspace, "word", "secret")
    record(Action.PROJECT_DELETED, Target("project", "p", "gone"), workspace_id=workspace.pk)
    paths = [f"{workspace.pk}/one", f"{workspace.pk}/deep/er/two"]
    for path in paths:
        object_storage.put(path, path.encode() * 1000)
    yield {path: path.encode() * 1000 for path in paths}
    object_storage.remove(paths)
    # Runs have no models, so Django's cleanup does not truncate their tables.
    with connections["default"].cursor() as cursor:
        cursor.execute("TRUNCATE trace_store_run, trace_store_run_payload")


def test_backup_is_restored_into_an_empty_database(tmp_path, stored_objects, empty_database):
    file, storage = tmp_path / "backup.tar", FileObjectStorage(location=tmp_path / "objects")

    written = backup.write_backup(file)
    tables_before = measure_tables("default")
    report = backup.restore_backup(file, using=empty_database, storage=storage)

    assert report.differences == ()
    assert measure_tables(empty_database) == tables_before
    assert (report.rows, report.tables) == (written.rows, written.tables)
    assert tables_before["audit_entry"][0] >= 1
    assert (
        sum(rows for table, (rows, _) in tables_before.items() if "trace_store_run" in table) >= 1
    )
    assert {path: storage.get(path) for path in stored_objects} == stored_objects
    assert file.stat().st_mode & 0o077 == 0


def test_restore_replaces_existing_data(tmp_path, stored_objects, empty_database):
    file, storage = tmp_path / "backup.tar", FileObjectStorage(location=tmp_path / "objects")
    backup.write_backup(file)
    backup.restore_backup(file, using=empty_database, storage=storage)
    with psycopg.connect(**_connection_parameters(connections[empty_database])) as session:
        session.execute("UPDATE organizations_organization SET name = 'changed'")
        session.execute("UPDATE tracing_project SET description = 'changed'")
        session.execute("CREATE TABLE stray (a int)")
    (path, *_) = stored_objects
    storage.remove([path])
    storage.put(path, b"changed")

    report = backup.restore_backup(file, using=empty_database, storage=storage)

    assert report.differences == ()
    assert measure_tables(empty_database) == measure_tables("default")
    assert storage.get(path) == stored_objects[path]


def test_restored_audit_log_is_append_only(tmp_path, stored_objects, empty_database):
    file = tmp_path / "backup.tar"
    backup.write_backup(file)
    backup.restore_backup(
        file, using=empty_database, storage=FileObjectStorage(location=tmp_path / "objects")
    )

    with (
        psycopg.connect(**_connection_parameters(connections[empty_database])) as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"),
    ):
        session.execute("DELETE FROM audit_entry")


def test_differences_lists_the_tables_that_differ(stored_objects):
    tables_before = measure_tables("default")
    tables_after = {**tables_before, "audit_entry": [0, "0"]}
    del tables_after["tracing_project"]

    lines = backup.find_table_differences(tables_before, tables_after)

    assert [line.partition(":")[0] for line in lines] == ["audit_entry", "tracing_project"]


def test_backup_contains_no_secrets_of_the_installation(tmp_path, stored_objects, settings):
    file = tmp_path / "backup.tar"

    backup.write_backup(file)

    content = file.read_bytes()
    for secret in (settings.SECRET_KEY, *settings.ENCRYPTION_KEYS, settings.METRICS_TOKEN):
        assert secret.encode() not in content


def test_file_that_is_no_backup_is_rejected_before_the_database_changes(tmp_path, stored_objects):
    file = tmp_path / "other.tar"
    with tarfile.open(file, "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json.txt"), io.BytesIO())
    tables_before = measure_tables("default")

    with pytest.raises(backup.NotABackup):
        backup.restore_backup(file)

    assert measure_tables("default") == tables_before


def test_backup_does_not_overwrite_an_existing_file(tmp_path):
    file = tmp_path / "backup.tar"
    file.write_text("mine")

    with pytest.raises(CommandError, match="exists already"):
        call_command("backup", str(file))

    assert file.read_text() == "mine"


def test_restore_over_organizations_requires_confirmation(tmp_path, stored_objects):
    file = tmp_path / "backup.tar"
    backup.write_backup(file, quick=True)

    with pytest.raises(CommandError, match=r"organizations, which would be replaced|is running"):
        call_command("restore", str(file))


def measure_tables(alias):
    with psycopg.connect(**_connection_parameters(connections[alias])) as session:
        return backup.measure_tables(session)


def _connection_parameters(wrapper, name=None):
    parameters = wrapper.get_connection_params()
    settings = {key: parameters[key] for key in ("dbname", "user", "password", "host", "port")
             if parameters.get(key)}  # fmt: skip
    return settings | ({"dbname": name} if name else {})


def _name(name):
    return sql.Identifier(name)
